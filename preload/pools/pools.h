/*
 * pools.h - what the program hands out of the memory that it got: pools of libc10 (PyTorch), of
 * NVTX's memory extension, and of programs that call gpumem_pool_* (gpumem.h).
 *
 *   pools.c        the pieces that a pool holds, and the functions for those who report
 *   pools_change.h a block is handed out, and taken back
 *   held.c         the pieces, by address
 *   libc10.c       PyTorch's functions, defined here and passed on
 *   next_symbol.c  where the real ones are
 *
 * A pool holds whatever of the driver's memory it has handed a block out of: that piece is found,
 * and recorded, with the first block in it. It ends when the program gives it back, with what is
 * still handed out in it.
 *
 * Nothing here calls the driver, and every wait has an end, because callers hold locks of their
 * own. Thread context: any, while the library runs. Signal context: none. Lock: a pool's
 * (GM_RANK_POOL), never two.
 */
#ifndef GM_PRELOAD_POOLS_H
#define GM_PRELOAD_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/order/context.h"
#include "preload/pools/held.h"
#include "preload/process/state.h"
#include "recorder/record/lives.h"
#include "recorder/record/pools.h"

#define GM_LARGEST_USUAL (UINT64_C(1) << 40)	/* sums of all blocks that there can be, none larger, stay in 64 bits */
#define GM_GRANULE_BITS 21u		/* 2 MiB: the driver's large pages, of which pools get whole ones */
#define GM_GRANULES 65536u		/* in the array; addresses 128 GiB apart share an entry */

/* What is known of 2 MiB of addresses. */
struct gm_granule {
	_Atomic(uint64_t) held;		/* held_word() (pools.c) where one piece has all of it; else 0 */
	_Atomic(uint64_t) live;		/* blocks handed out that begin in it (or in one that shares the entry) */
};

/* A pool of the program's. */
struct gm_program_pool {
	struct gm_lives lives;
	struct gm_granule *granules;
	struct gm_lock lock;
	struct gm_held_list held;	/* lock: @lock */
	_Atomic(uint64_t) low, high;	/* all of @held lies between them; without the lock, too */
	/* where nothing of the driver's was found, and gm_record_comings then */
	uint64_t vain_low, vain_high;
	uint32_t vain_comings;
};

/* Can something be recorded now, in this process? */
static inline bool gm_pools_recording(void)
{
	uint32_t word = gm_state_word();

	return (gm_likely(word == GM_STATE_RUNNING) ||
		(word == GM_STATE_RUNNING_CHECKED && gm_state_is_mine())) && gm_header_get();
}

/* The id of a pool's name, of which at most 256 bytes are kept; 0: it has none, or there is no room. */
uint32_t gm_pool_name_id(const char *name);

/* The pool of (@source, @device, @name, @key), made when it is new; @name: a string id. Returns its
 * domain; 0 when there is none. */
uint8_t gm_pool_open(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* The domain of the first pool that has @name and @device, whatever its source; 0: none. */
uint8_t gm_pool_find(const char *name, uint32_t device);

/* The pool of that domain; NULL: there is none. */
struct gm_program_pool *gm_pool_of(uint8_t domain);

/* @pool hands [@address, +@size) out; it takes the block at @address back. @caller:
 * __builtin_return_address(0) of the function that the program called; @module: its module, if stacks need
 * not tell, or 0. @pool may be NULL. Returns 0; -EINVAL; -ENOENT where nothing is handed out at @address; -ENOMEM,
 * -ETIMEDOUT. All but -EINVAL are counted. */
int gm_pool_give(struct gm_program_pool *pool, uint64_t address, uint64_t size, uint64_t stream, const void *caller,
		 uint16_t module);
int gm_pool_take(struct gm_program_pool *pool, uint64_t address);

/* The size of the block that is handed out at @address; 0: there is none. */
uint64_t gm_pool_size_at(uint8_t domain, uint64_t address);

/* The block at @address has this name from now on; @name: a string id. */
void gm_pool_name(uint8_t domain, uint64_t address, uint32_t name);

/* The device in whose memory @address lies; where that is not known, the one on which the thread
 * worked last. */
uint8_t gm_pool_device_of(uint64_t address);

/* The pool takes back all blocks in [@address, +@size). */
void gm_pool_take_all(uint8_t domain, uint64_t address, uint64_t size);

/* An object at @path was loaded: if it is a PyTorch whose blocks are not reported here, print that,
 * once and under option verbose. Takes no lock and looks up no module. */
void gm_libc10_loaded(const char *path);

/* Ends the pieces that pools hold in a context that ends. */
extern const struct gm_context_watcher gm_pools_of_contexts GM_HIDDEN;

/* ---- for pools_change.h and pools.c ---- */

static inline struct gm_granule *gm_granule_of(const struct gm_program_pool *pool, uint64_t address)
{
	return &pool->granules[(address >> GM_GRANULE_BITS) % GM_GRANULES];
}

static inline uint64_t gm_granule_word(uint64_t address, uint8_t kind)
{
	return ((address >> GM_GRANULE_BITS) + 1) << 8 | kind;
}

/* The kind of the memory of [@address, @end), found under the pool's lock: pieces that were not known become known. A
 * block in memory of which nothing is known counts as outside. */
uint8_t gm_pool_kind_slow(struct gm_program_pool *pool, uint64_t address, uint64_t end);

/* Blocks may lie in one another, but not so that the sums of their sizes pass 64 bits. */
bool gm_pool_is_possible(const struct gm_program_pool *pool, uint64_t address, uint64_t size);

#endif
