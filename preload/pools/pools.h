/*
 * pools.h - application pools: allocators of the program that hand out blocks of memory which they got from the driver.
 *
 * A pool is reported by PyTorch (libc10), by NVTX's memory extension, or by calls of gpumem_pool_* (gpumem.h).
 *
 *   pools.c        the pieces that a pool holds, and the functions for reporters
 *   pools_change.h hand out a block, take back a block
 *   held.c         the list of pieces, by address
 *   libc10.c       PyTorch's functions: defined here, passed on to the real ones
 *   next_symbol.c  find the real ones
 *
 * No reporter names the pieces. When a pool hands out the first block in an allocation of the driver or the cache,
 * that allocation is looked up and recorded as a piece of the pool. The piece ends when the program frees the
 * allocation; blocks that are still live in the piece end with it.
 *
 * Nothing here calls the driver, and every wait has a limit, because callers hold locks of their own.
 *
 * Thread context: any, while the library runs. Signal context: none. Lock: a pool's (GM_RANK_POOL), never two.
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

#define GM_LARGEST_USUAL (UINT64_C(1) << 40)	/* fewer than 2^24 such sizes add up to less than 2^64 */
#define GM_GRANULE_BITS 21u		/* 2 MiB: the driver's large page; most pieces consist of whole ones */
#define GM_GRANULES 65536u		/* in the array; addresses 128 GiB apart share an entry */

/* The entry of 2 MiB of addresses. */
struct gm_granule {
	_Atomic(uint64_t) held;		/* gm_granule_word() if one piece covers the whole granule; else 0 */
	_Atomic(uint64_t) live;		/* how many live blocks begin in the granules that share this entry */
};

/* An application pool. */
struct gm_program_pool {
	struct gm_lives lives;		/* table of live blocks */
	struct gm_granule *granules;
	struct gm_lock lock;
	struct gm_held_list held;	/* lock: @lock */
	_Atomic(uint64_t) low, high;	/* every piece lies in [low, high); they only widen; read without @lock */
	/* The last failed search: no driver allocation in [vain_low, vain_high), and the generation
	 * (gm_record_outside_generation) before the search. lock: @lock */
	uint64_t vain_low, vain_high;
	uint32_t vain_generation;
};

/* Is the library recording in this process (and not in a forked child of it)? */
static inline bool gm_pools_recording(void)
{
	uint32_t word = gm_state_word();

	return (gm_likely(word == GM_STATE_RUNNING) ||
		(word == GM_STATE_RUNNING_CHECKED && gm_state_is_mine())) && gm_header_get();
}

/* Return the string id of a pool's or block's name, which is cut to 256 bytes; 0: @name is empty, or there is no
 * room. */
uint32_t gm_pool_name_id(const char *name);

/* Return the domain of the pool (@source, @device, @name, @key), and create the pool if there is none. @name: a string
 * id. Returns 0 when nothing is recorded, @device or @name is invalid, there is no room for another pool, or the lock
 * was not free in time. */
uint8_t gm_pool_open(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* Return the domain of the first pool with @name and @device, whatever its source; 0: none. */
uint8_t gm_pool_find(const char *name, uint32_t device);

/* Return the pool of @domain; NULL: none. */
struct gm_program_pool *gm_pool_of(uint8_t domain);

/* gm_pool_give: record that @pool hands out [@address, +@size) in the order of @stream. gm_pool_take: record that @pool
 * takes the block at @address back. @caller: __builtin_return_address(0) of the function that the program called.
 * @module: the module to use if no stack is captured; 0: find it by @caller. @pool may be NULL.
 * Return 0; -EINVAL; -ENOENT when no block is live at @address; -ENOMEM; -ETIMEDOUT. All errors except -EINVAL are
 * counted in the pool's record. */
int gm_pool_give(struct gm_program_pool *pool, uint64_t address, uint64_t size, uint64_t stream, const void *caller,
		 uint16_t module);
int gm_pool_take(struct gm_program_pool *pool, uint64_t address);

/* Return the size of the live block at @address; 0: none. */
uint64_t gm_pool_size_at(uint8_t domain, uint64_t address);

/* Give the live block at @address the name @name, a string id; 0 removes the name. */
void gm_pool_name(uint8_t domain, uint64_t address, uint32_t name);

/* Return the device whose memory contains @address; if it is not known, the device that this thread used last. */
uint8_t gm_pool_device_of(uint64_t address);

/* Record that the pool takes back all blocks in [@address, +@size). */
void gm_pool_take_all(uint8_t domain, uint64_t address, uint64_t size);

/* Called when an object at @path was loaded. If it is a PyTorch that does not report its blocks, print that, once and
 * under option verbose. Takes no lock and looks up no module. */
void gm_libc10_loaded(const char *path);

/* When a context ends, ends the pieces that pools hold in it. */
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

/* Return the kind (enum gm_kind) of the memory at @address, and add unknown allocations in [@address, @end) to the
 * pool's pieces. If a part of the range is in no known allocation, the block counts as "outside". Takes the pool's
 * lock. */
uint8_t gm_pool_kind_slow(struct gm_program_pool *pool, uint64_t address, uint64_t end);

/* Are @address and @size valid for a block? Blocks may overlap, so a block above GM_LARGEST_USUAL is refused if it
 * would bring the pool's live bytes beyond 2^57: sums of sizes must fit into 64 bits. */
bool gm_pool_is_possible(const struct gm_program_pool *pool, uint64_t address, uint64_t size);

#endif
