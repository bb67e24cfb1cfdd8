/*
 * pools.h - application pools: a framework or program gets memory from the driver and hands it out itself.
 *
 * Each pool has a domain of its own (struct gm_pool in journal/format.h), made when the pool first reports a
 * block. gm_record_alloc and gm_record_free record there the pieces of memory that the pool holds
 * (GM_SEGMENT_HELD), in the same way as they record the driver's memory in the devices' domains. The blocks that the
 * pool hands out are in a table of the pool (lives.h). preload/pools/ calls these functions.
 *
 * Thread context: any, no lock of recorder/ held. Signal context: none. Lock: the domain's.
 */
#ifndef GM_RECORDER_POOLS_H
#define GM_RECORDER_POOLS_H

#include "recorder/journal/state.h"

/* Make a new pool on @device; @name is a string id, @key tells pools of one name apart. Returns its domain; 0 when
 * nothing is recorded, or there are GM_MAX_POOLS already (counted). One thread at a time. */
uint8_t gm_record_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* Return the pool in @domain; NULL: no pool has this domain. A pool never ends. */
static inline struct gm_pool *gm_pool_at(unsigned int domain)
{
	if (!gm_header_get() || domain < GM_DOMAIN_POOLS ||
	    domain >= gm_get_acquire(&gm_rec.domain_count))
		return NULL;
	return &gm_rec.domains[domain].pool;
}

/* A piece of memory that the driver, or our cache in its place, allocated by one call. */
struct gm_piece {
	uint64_t address, size, tsc;
	uint32_t context, stack;
	uint16_t module;
	uint8_t kind, flags;		/* GM_SEGMENT_EXPANDABLE */
};

/* Find the segment in @domain that contains @address and belongs to no heap; of several, the newest. Returns false when
 * there is none. Then [*ret_low, *ret_high) contains @address and no address of such a segment; the range is empty
 * when the domain's lock was not free in time. */
bool gm_record_find(uint8_t domain, uint64_t address, struct gm_piece *ret_piece, uint64_t *ret_low,
		    uint64_t *ret_high);

/* Return the generation counter of @domain's segments that belong to no heap: it rises when such a segment is added
 * or changed. While it stays the same, gm_record_find keeps returning false for an address where it returned false.
 * Takes no lock. */
uint32_t gm_record_outside_generation(uint8_t domain);

/* Return the id of the context whose end frees @block, a block of a heap. */
uint32_t gm_record_context_of(uint32_t block);

/* Read the size of a device's memory, and how much was free at the driver's last report, in bytes. Takes no lock. */
void gm_record_memory_of(uint8_t device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);

/* Store the totals that @pool reports about itself, in bytes. Call only while the journal is recorded to. */
static inline void gm_record_told(struct gm_pool *pool, uint64_t allocated_bytes, uint64_t reserved_bytes)
{
	gm_set(&pool->told_allocated_bytes, allocated_bytes);
	gm_set(&pool->told_reserved_bytes, reserved_bytes);
}

#endif
