/*
 * pools.h - pools of the program's: what somebody got from the driver and hands out a second time.
 *
 * Each pool has a domain of its own (struct gm_pool in journal/format.h), made when it first tells
 * something. What it hands out is recorded there by gm_record_alloc and gm_record_free, as what the
 * driver gives is in the devices' domains, and so is the memory that it holds (GM_SEGMENT_HELD). Who
 * tells of pools is in preload/pools/.
 *
 * Thread context: any, no lock of this floor held. Signal context: none. Lock: the domain's.
 */
#ifndef GM_RECORDER_POOLS_H
#define GM_RECORDER_POOLS_H

#include "recorder/journal/state.h"

/* A new pool of @device, its name a string id. Returns its domain; 0 when nothing is recorded, or there
 * are GM_MAX_POOLS already (counted). One thread at a time. */
uint8_t gm_record_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* The pool in @domain; NULL where there is none. It is there for good. */
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

/* Find what of the driver's in @domain has @address: among the segments that no heap has, the newest
 * first. False: none has; then [*ret_low, *ret_high) is all around it that none has either. */
bool gm_record_find(uint8_t domain, uint64_t address, struct gm_piece *ret_piece, uint64_t *ret_low,
		    uint64_t *ret_high);

/* How often a segment, but a heap's, has come into @domain or changed there: while it is the same, so is
 * what gm_record_find says of an address that none has. Without a lock. */
uint32_t gm_record_comings(uint8_t domain);

/* The context that @block, of a heap, dies with. */
uint32_t gm_record_context_of(uint32_t block);

/* Some of the blocks that are handed out in [@address, +@size) of a pool's domain, at most @max, as they
 * are. Returns how many. */
struct gm_given { uint64_t address, size; uint32_t block; };
unsigned int gm_record_given(uint8_t domain, uint64_t address, uint64_t size,
			     struct gm_given *ret, unsigned int max);

/* The program has named what a pool handed out as @block; the caller keeps it from going. @name: a string
 * id. One word, which no transaction changes. */
void gm_record_name(uint32_t block, uint32_t name);

/* The memory of a device, and what was free of it when the driver was asked last. */
void gm_record_memory_of(uint8_t device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);

/* What the pool says of itself. */
void gm_record_told(uint8_t domain, uint64_t allocated_bytes, uint64_t reserved_bytes);

#endif
