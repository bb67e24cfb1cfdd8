/*
 * pools_change.h - a pool hands out a block or takes it back: the path of every PyTorch tensor (pools.h).
 *
 * Inlined into PyTorch's function (libc10.c) and into the functions of pools.h, because a call with its arguments and
 * saved registers would cost as much as the counters.
 *
 * Thread context, signal context, locks: as pools.h.
 */
#ifndef GM_PRELOAD_POOLS_CHANGE_H
#define GM_PRELOAD_POOLS_CHANGE_H

#include <errno.h>

#include "preload/api/history.h"
#include "preload/pools/pools.h"
#include "recorder/modules/modules.h"
#include "recorder/record/lives_change.h"
#include "recorder/stacks/stacks.h"

/* Return the kind of the memory of [@address, @end), whose first granule has the number @first. Takes no lock if pieces
 * of one kind cover the first and the last granule. */
GM_LIVES_INLINE uint8_t gm_pool_kind_of(struct gm_program_pool *pool, uint64_t address, uint64_t end, uint64_t first)
{
	uint64_t word = gm_get(&pool->granules[first % GM_GRANULES].held), last = (end - 1) >> GM_GRANULE_BITS;
	uint8_t kind = (uint8_t)word;

	/* Granules between the first and the last are not checked. A last granule of another kind takes the slow
	 * path. */
	if (gm_likely(word >> 8 == first + 1) &&
	    (gm_likely(first == last) ||
	     gm_get(&gm_granule_of(pool, end - 1)->held) == gm_granule_word(end - 1, kind)))
		return kind;
	return gm_pool_kind_slow(pool, address, end);
}

/* As gm_pool_give and gm_pool_take, but @pool must not be NULL. */
GM_LIVES_INLINE int gm_pool_give_now(struct gm_program_pool *pool, uint64_t address, uint64_t size, uint64_t stream,
				     const void *caller, uint16_t module)
{
	uint64_t granule = address >> GM_GRANULE_BITS;
	struct gm_handed block;
	struct gm_regs regs;
	int r;

	gm_lives_prepare(&pool->lives, address);
	/* A small block at a usual address needs no further check. The -1 also sends size 0 and address 0 there. */
	if (gm_unlikely(size - 1 >= GM_LARGEST_USUAL || address - 1 >= GM_LARGEST_USUAL << 8) &&
	    !gm_pool_is_possible(pool, address, size))
		return -EINVAL;
	if (gm_stacks_wanted()) {
		gm_regs_capture(&regs);
		block.stack = gm_stacks_capture(&regs, &module);
	} else {
		block.stack = GM_NONE;
		if (!module && caller)
			module = gm_modules_caller(caller, NULL);
	}
	block.address = address;
	block.size = size;
	block.stream = stream;
	block.module = module;
	block.kind = gm_pool_kind_of(pool, address, address + size, granule);
	block.stack_of_block_only = gm_history_context() == GM_CONTEXT_STATE;
	r = gm_lives_add(&pool->lives, &block);
	if (gm_unlikely(r))
		gm_count(r > 0 ? &pool->lives.pool->double_allocations : &pool->lives.pool->lost, 1);
	else
		gm_count(&pool->granules[granule % GM_GRANULES].live, 1);
	return r < 0 ? r : 0;
}

GM_LIVES_INLINE int gm_pool_take_now(struct gm_program_pool *pool, uint64_t address)
{
	uint32_t stack = gm_stacks_wanted() && gm_history_context() != GM_CONTEXT_STATE ?
			 GM_STACK_OF_BLOCK : GM_NONE;	/* to walk the stack of the free would double the cost */
	int r;

	gm_lives_prepare(&pool->lives, address);
	r = gm_lives_end(&pool->lives, address, stack);
	if (gm_likely(!r))
		gm_count(&gm_granule_of(pool, address)->live, -1);
	else if (!address)
		r = -EINVAL;
	else
		gm_count(r == -ENOENT ? &pool->lives.pool->unknown_frees : &pool->lives.pool->lost, 1);
	return r;
}

#endif
