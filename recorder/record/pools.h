/*
 * pools.h - pools of the program's: memory from the driver that a framework or program hands out
 * again.
 *
 * Each pool has a domain of its own (struct gm_pool in journal/format.h), made when the pool is
 * first heard of. The pieces of memory that it holds (GM_SEGMENT_HELD) are recorded there by gm_record_alloc and
 * gm_record_free, as memory of the driver is in the devices' domains. What it hands out is in a table of its own
 * (lives.h). preload/pools/ calls all this.
 *
 * Thread context: any, no lock of this floor held. Signal context: none. Lock: the domain's.
 */
#ifndef GM_RECORDER_POOLS_H
#define GM_RECORDER_POOLS_H

#include "recorder/journal/state.h"

/* Make a new pool of @device; @name is a string id. Returns its domain; 0 when nothing is recorded,
 * or there are GM_MAX_POOLS already (counted). One thread at a time. */
uint8_t gm_record_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* The pool in @domain; NULL where there is none. A pool never ends. */
static inline struct gm_pool *gm_pool_at(unsigned int domain)
{
	if (!gm_header_get() || domain < GM_DOMAIN_POOLS ||
	    domain >= gm_get_acquire(&gm_rec.domain_count))
		return NULL;
	return &gm_rec.domains[domain].pool;
}

/* Memory that the driver gave in one piece, or the cache in its place. */
struct gm_piece {
	uint64_t address, size, tsc;
	uint32_t context, stack;
	uint16_t module;
	uint8_t kind, flags;		/* GM_SEGMENT_EXPANDABLE */
};

/* Find the driver's memory at @address in @domain: the newest of the segments there that belong to
 * no heap. False: there is none; then there is none in all of [*ret_low, *ret_high) either, which
 * contains @address. */
bool gm_record_find(uint8_t domain, uint64_t address, struct gm_piece *ret_piece, uint64_t *ret_low,
		    uint64_t *ret_high);

/* How often a segment that is no heap's has come into @domain or changed there. While this number
 * stays the same, gm_record_find finds nothing at an address where it found nothing. Takes no
 * lock. */
uint32_t gm_record_comings(uint8_t domain);

/* The id of the context with which @block, one of a heap's, dies. */
uint32_t gm_record_context_of(uint32_t block);

/* The memory of a device in bytes, and how much of it was free when the driver was last asked. */
void gm_record_memory_of(uint8_t device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);

/* The totals that @pool itself reports, while something is recorded. */
static inline void gm_record_told(struct gm_pool *pool, uint64_t allocated_bytes, uint64_t reserved_bytes)
{
	gm_set(&pool->told_allocated_bytes, allocated_bytes);
	gm_set(&pool->told_reserved_bytes, reserved_bytes);
}

#endif
