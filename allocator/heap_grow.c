/*
 * heap_grow.c - the segments heap and the driver: growth, collection, release, out of memory.
 *
 * Source of the rules: PyTorch's CUDACachingAllocator (malloc, alloc_block,
 * garbage_collect_cached_blocks, release_available_cached_blocks, release_cached_blocks).
 * The lock is released around every call of the driver. What was read before the call may no longer hold after it.
 */
#include "allocator/segments_heap.h"

#include <errno.h>

/* Take the domain's lock again. Returns false when the lock is lost (not free in time): the caller must not touch the
 * heap any more. */
static bool lock(const struct gm_heap *heap, bool grown)
{
	return !heap->ops->lock || heap->ops->lock(heap->ops->arg, grown);
}

static void unlock(const struct gm_heap *heap)
{
	if (heap->ops->unlock)
		heap->ops->unlock(heap->ops->arg);
}

static bool may_go(const struct gm_heap *heap, uint64_t stream)
{
	return !heap->ops->may_go || heap->ops->may_go(heap->ops->arg, stream);
}

/* Give a wholly free segment, block @id, back to the driver and add its size to *@bytes. Returns false when the lock is
 * lost. */
static bool release(struct gm_heap *heap, uint32_t id, uint64_t *bytes)
{
	struct gm_block copy = heap->blocks[id];

	gm_segments_detach(heap, id);
	*bytes += copy.size;
	unlock(heap);
	heap->ops->driver_free(heap->ops->arg, copy.address, copy.size, copy.stream);
	return lock(heap, false);
}

/* Get a segment of @bytes from the driver and serve the request from it. @size: the rounded request. Returns as
 * gm_heap_alloc. */
static int grow_by(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size, uint64_t bytes,
		   uint32_t *ret_block)
{
	uint64_t address = 0, limit = heap->config.limit;
	int r;

	if (limit != GM_HEAP_UNLIMITED && (bytes > limit || heap->reserved > limit - bytes))
		return -ENOMEM;
	unlock(heap);
	r = heap->ops->driver_alloc(heap->ops->arg, bytes, request->stream, &address);
	if (!lock(heap, !r)) {
		if (!r)
			heap->ops->driver_free(heap->ops->arg, address, bytes, request->stream);
		return -ETIMEDOUT;
	}
	if (r)
		return r;
	r = gm_segments_adopt(heap, request, size, address, bytes, ret_block);
	if (r == -ENOSPC) {
		unlock(heap);
		heap->ops->driver_free(heap->ops->arg, address, bytes, request->stream);
		if (!lock(heap, false))
			return -ETIMEDOUT;
	}
	return r;
}

/* Add a segment of PyTorch's size and cut the request from it. If such a segment may not be cut, or the driver has no
 * memory for it, add one of the request's own size, rounded to 2 MiB (only with request->whole or config.shared_most).
 * @retry: count the call in num_alloc_retries. */
static int grow(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		bool retry, uint32_t *ret_block)
{
	uint64_t bytes = gm_heap_segment_bytes(&heap->config, size), own = bytes;
	int r = -ENOMEM;

	if (retry)
		gm_heap_count_one(heap, &heap->stats->num_alloc_retries);
	if ((request->whole || heap->config.shared_most != GM_HEAP_UNLIMITED) && gm_heap_pool_of(size))
		own = (size + GM_HEAP_ROUND_LARGE - 1) & ~(GM_HEAP_ROUND_LARGE - 1);
	if (own == bytes || (!request->whole && gm_segments_may_share(heap, bytes, size)))
		r = grow_by(heap, request, size, bytes, ret_block);
	return r == -ENOMEM && own != bytes ? grow_by(heap, request, size, own, ret_block) : r;
}

/* ---- collection ---- */

static bool collectable(const struct gm_heap *heap, uint32_t id)
{
	return !gm_heap_is_split(&heap->blocks[id]) && may_go(heap, heap->blocks[id].stream);
}

static double age(struct gm_heap *heap, uint32_t id)
{
	return (double)(gm_segments(heap)->lookups[1] - heap->links[id].born);
}

/* Give large free segments of at least the mean age back to the driver, until the heap is down to the threshold.
 * Returns false when the lock is lost. */
static bool collect(struct gm_heap *heap)
{
	uint64_t threshold = (uint64_t)(heap->config.garbage_collection_threshold *
					(double)heap->config.limit);
	uint64_t target, reclaimed = 0;
	double total = 0;
	uint64_t count = 0;
	bool freed = true;
	uint32_t id;

	if (heap->reserved <= threshold || !heap->idle)
		return true;
	target = heap->reserved - threshold;
	for (struct gm_free_cursor at = { 0 }; (id = gm_free_set_next(&gm_segments(heap)->pool[1], &at));)
		if (collectable(heap, id)) {
			total += age(heap, id);
			count++;
		}
	while (reclaimed < target && freed && count) {
		double mean = total / (double)count;

		freed = false;
		for (struct gm_free_cursor at = { 0 }; (id = gm_free_set_next(&gm_segments(heap)->pool[1], &at));)
			if (collectable(heap, id) && age(heap, id) >= mean) {
				freed = true;
				total -= age(heap, id);
				count--;
				if (!release(heap, id, &reclaimed))
					return false;
			}
	}
	return true;
}

/* ---- release ---- */

/* Give oversize blocks of @stream back to the driver: one that is large enough, else the largest ones until their sum
 * is. Returns 1 if the request may fit now, else 0; -ETIMEDOUT: the lock is lost. */
static int release_available(struct gm_heap *heap, unsigned int pool, uint64_t size,
			      uint64_t stream)
{
	uint64_t limit = heap->config.max_split_size;
	uint64_t key = size < limit ? limit : size;
	uint64_t total = 0;
	uint32_t id;

	if (limit == GM_HEAP_UNLIMITED || !may_go(heap, stream))
		return 0;
	id = gm_free_set_at_least(&gm_segments(heap)->pool[pool], stream, key, 0);
	if (id)
		return release(heap, id, &total) ? 1 : -ETIMEDOUT;
	while (total < key) {
		id = gm_free_set_below(&gm_segments(heap)->pool[pool], stream, key, 0);
		if (!id || heap->blocks[id].size < limit)
			break;
		if (!release(heap, id, &total))
			return -ETIMEDOUT;
	}
	return total >= key;
}

/* Give every wholly free segment that may go back to the driver, up to @most bytes in all, the large pool first, as
 * PyTorch does. Adds their sizes to *@bytes, which is 0. Returns false when the lock is lost. The test of heap->idle
 * comes first, because calls that find no such segment are frequent when memory has run out. */
static bool release_most(struct gm_heap *heap, uint64_t most, uint64_t *bytes)
{
	for (unsigned int p = 2; p-- > 0;) {
		struct gm_free_cursor at = { 0 };
		uint32_t id;

		while (heap->idle && *bytes < most && (id = gm_free_set_next(&gm_segments(heap)->pool[p], &at)))
			if (heap->blocks[id].size <= most - *bytes && collectable(heap, id) &&
			    !release(heap, id, bytes))
				return false;
	}
	return true;
}

static bool synchronize(struct gm_heap *heap)
{
	gm_heap_count_one(heap, &heap->stats->num_sync_all_streams);
	if (!heap->ops->synchronize)
		return true;
	unlock(heap);
	heap->ops->synchronize(heap->ops->arg);
	return lock(heap, false);
}

int gm_segments_release(struct gm_heap *heap, uint64_t most, bool first_synchronize, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	if (first_synchronize && !synchronize(heap))
		return -ETIMEDOUT;
	return release_most(heap, most, ret_bytes) ? 0 : -ETIMEDOUT;
}

void gm_segments_begin_period(struct gm_heap *heap)
{
	for (unsigned int p = 0; p < 2 && !gm_heap_collects(heap); p++)
		gm_segments(heap)->lookups[p]++;
}

/* Skips blocks below 2 MiB, because none of them is a whole segment. */
int gm_segments_release_unused(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	for (unsigned int p = 2; p-- > 0 && !gm_heap_collects(heap);) {
		struct gm_free_cursor at = { 0 };
		uint32_t id;

		while (heap->idle && (id = gm_free_set_next(&gm_segments(heap)->pool[p], &at))) {
			if (heap->blocks[id].size < GM_HEAP_SMALL_SEGMENT) {
				gm_free_cursor_skip(&at, GM_HEAP_SMALL_SEGMENT);
				continue;
			}
			if (*ret_bytes && *ret_bytes + heap->blocks[id].size > most)
				return 0;
			if (heap->links[id].born < gm_segments(heap)->lookups[p] && collectable(heap, id) &&
			    !release(heap, id, ret_bytes))
				return -ETIMEDOUT;
		}
	}
	return 0;
}

int gm_segments_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
		      uint32_t *ret_block)
{
	uint64_t size, bytes;
	int r;

	if (request->bytes >= GM_HEAP_REQUEST_LIMIT)
		return -E2BIG;
	size = gm_heap_round(&heap->config, request->bytes);
	r = gm_segments_find(heap, request, ret_block);
	if (r != -EAGAIN)
		return r;
	if (gm_heap_collects(heap)) {
		gm_segments(heap)->lookups[gm_heap_pool_of(size)]++;	/* PyTorch counts this look-up */
		if (!collect(heap))
			return -ETIMEDOUT;
	}
	r = grow(heap, request, size, false, ret_block);
	if (r == -ENOMEM) {
		r = release_available(heap, gm_heap_pool_of(size), size, request->stream);
		r = r > 0 ? grow(heap, request, size, false, ret_block) : r ? r : -ENOMEM;
	}
	if (r == -ENOMEM) {
		r = gm_segments_release(heap, UINT64_MAX, true, &bytes);
		if (!r)
			r = grow(heap, request, size, true, ret_block);
	}
	if (r == -ENOMEM)
		gm_heap_count_one(heap, &heap->stats->num_ooms);
	return r;
}
