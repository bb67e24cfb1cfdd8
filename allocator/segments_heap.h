/*
 * segments_heap.h - the segments heap: PyTorch's caching algorithm, to the last counter.
 *
 * Two pools (small: rounded requests up to 1 MiB; large), best fit by (stream, size, address),
 * splitting, merging, collection and release as PyTorch's CUDACachingAllocator does them, so that
 * with the driver's addresses given it hands out the same addresses and keeps the same statistics
 * (the traces under test/traces are the judge; gpumem replay --verify).
 *
 *   segments_heap.c   finding, splitting, merging; the class
 *   heap_grow.c   the driver: growth, collection, release
 *   heap_stats.c  the statistics
 *
 * Context: as heap.h.
 */
#ifndef GM_ALLOCATOR_SEGMENTS_HEAP_H
#define GM_ALLOCATOR_SEGMENTS_HEAP_H

#include "allocator/heap.h"

struct gm_segments_heap {
	struct gm_heap heap;
	struct gm_free_set pool[2];	/* 0 small, 1 large */
	uint64_t lookups[2];		/* requests by pool, while collection is on: the clock of a block's age */
};

static inline struct gm_segments_heap *gm_segments(struct gm_heap *heap)
{
	return (struct gm_segments_heap *)(void *)heap;
}

static inline bool gm_heap_is_split(const struct gm_block *block)
{
	return block->prev || block->next;
}

/* ---- segments_heap.c ---- */

/* As gm_heap_find and gm_heap_detach. */
int gm_segments_find(struct gm_heap *heap, const struct gm_heap_request *request,
		     uint32_t *ret_block);
void gm_segments_detach(struct gm_heap *heap, uint32_t block);

/* Make @address a segment of @bytes with one active block for @request, cut to size. */
int gm_segments_adopt(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		  uint64_t address, uint64_t bytes, uint32_t *ret_block);

/* ---- heap_grow.c ---- */

int gm_segments_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
		      uint32_t *ret_block);
int gm_segments_release(struct gm_heap *heap, bool synchronize, uint64_t *ret_bytes);

#endif
