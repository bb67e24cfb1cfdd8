/*
 * segments_heap.h - the segments heap: PyTorch's caching algorithm, to the last counter.
 *
 * It has two pools (small: rounded requests up to 1 MiB; large), best fit by (stream, size, address), and splits,
 * merges, collects and releases as PyTorch's CUDACachingAllocator does. Given the same addresses from the driver, it
 * hands out the same addresses and keeps the same statistics (the traces under test/traces prove that; gpumem replay
 * --verify).
 *
 *   segments_heap.c   finding, splitting, merging; the class
 *   heap_grow.c   the driver: growth, collection, release
 *   heap_stats.c  the statistics
 *
 * One rule is not PyTorch's, and off by default (config.shared_most). A free block in a segment with live blocks cannot
 * go back to the driver, and serves no larger request. So PyTorch's algorithm can refuse a request that the driver,
 * which has no such segments, would serve. The rule bounds the bytes of large segments that are cut into several
 * blocks, and bounds the idle bytes in them to a tenth of that. Within the bound all is as in PyTorch. Beyond it:
 *   - a request of 2 MiB or more gets a segment of its own size, rounded to the driver's granularity of 2 MiB;
 *   - no whole segment is cut, and it serves only requests that differ by less than that granularity;
 *   - a request above 1 MiB and below 2 MiB shares segments of 2 MiB with small requests, as in the driver.
 *
 * Context: as heap.h.
 */
#ifndef GM_ALLOCATOR_SEGMENTS_HEAP_H
#define GM_ALLOCATOR_SEGMENTS_HEAP_H

#include "allocator/heap.h"

#define GM_SHARED_IDLE 10u		/* 1/10 of config.shared_most may be idle */

struct gm_segments_heap {
	struct gm_heap heap;
	struct gm_free_set pool[2];	/* 0 small, 1 large */
	uint64_t lookups[2];		/* the clock for ages of blocks: requests by pool, or periods (no collection) */
	uint64_t shared;		/* bytes of large segments that are cut into several blocks */
};

static inline struct gm_segments_heap *gm_segments(struct gm_heap *heap)
{
	return (struct gm_segments_heap *)(void *)heap;
}

static inline bool gm_heap_is_split(const struct gm_block *block)
{
	return block->prev || block->next;
}

/* May a whole large segment of @bytes be cut for a request of @size? */
static inline bool gm_segments_may_share(const struct gm_heap *heap, uint64_t bytes, uint64_t size)
{
	uint64_t most = heap->config.shared_most, shared = gm_segments((struct gm_heap *)heap)->shared;
	uint64_t idle = (uint64_t)heap->stats->stat[GM_STAT_INACTIVE_SPLIT_BYTES][GM_POOL_LARGE].current;

	return most == GM_HEAP_UNLIMITED ||
	       (shared + bytes <= most && idle + (bytes - size) <= most / GM_SHARED_IDLE);
}

/* Return the pool for which a request of @size bytes gets a new segment. Beyond the bound, a request below 2 MiB shares
 * segments of 2 MiB with small requests, as in the driver. */
static inline unsigned int gm_segments_pool(const struct gm_heap *heap, uint64_t size)
{
	return size > GM_HEAP_SMALL_REQUEST && (size >= GM_HEAP_SMALL_SEGMENT ||
						gm_segments_may_share(heap, heap->config.large_segment_size, size));
}

/* ---- segments_heap.c ---- */

/* As gm_heap_find and gm_heap_detach. */
int gm_segments_find(struct gm_heap *heap, const struct gm_heap_request *request,
		     uint32_t *ret_block);
void gm_segments_detach(struct gm_heap *heap, uint32_t block);

/* Make a segment of @bytes at @address, and cut an active block for @request from it. */
int gm_segments_adopt(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		  uint64_t address, uint64_t bytes, uint32_t *ret_block);

/* ---- heap_grow.c ---- */

int gm_segments_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
		      uint32_t *ret_block);
int gm_segments_release(struct gm_heap *heap, uint64_t most, bool synchronize, uint64_t *ret_bytes);
void gm_segments_begin_period(struct gm_heap *heap);
int gm_segments_release_unused(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes);

#endif
