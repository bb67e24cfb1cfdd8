/*
 * cache_points.c - how far the GPU has come with the frees in a heap's pages (preload/order/timeline.h): see
 * cache_pages.h.
 *
 * A page moves, or goes back to the driver, when the host knows that the contexts which may touch it have passed the
 * point of its last free. A page that was freed from a default pool in the order of a stream may also move when only
 * that stream is known to have passed the free (timeline_streams.c), because a program may need just that memory to
 * end its other work. A free that the host has seen complete, because the host waited or the block was in limbo, has
 * point 0.
 *
 * A free records no event. Contexts that lack a mark get one when memory is needed or given back, and before a capture
 * begins.
 *
 * Thread context: any, inside a hook. Signal context: none. No lock.
 */
#include <errno.h>

#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"

static struct gm_timeline *timeline(void)
{
	return gm_reuse_time(gm_order_reuse());
}

uint64_t gm_cache_pages_point(void *arg)
{
	struct gm_cache_heap *heap = arg;

	if (heap->seen)
		return 0;
	heap->moving.freed_at = gm_timeline_free(timeline());
	return heap->moving.freed_at;
}

uint64_t gm_cache_pages_passed(void *arg, uint64_t stream)
{
	const struct gm_cache_heap *heap = arg;
	uint64_t point = gm_timeline_passed_by_all(timeline(), heap->context), own = 0;

	if (!gm_rule(GM_RULE_PAGES))
		return gm_reuse_now(gm_order_reuse());
	if (heap->kind == GM_KIND_POOL && stream != UINT64_MAX)
		own = gm_timeline_stream_passed(timeline(), stream);
	return own > point ? own : point;
}

bool gm_cache_pages_wanted(void *arg)
{
	struct gm_cache_heap *heap = arg;

	return gm_rule(GM_RULE_AWAIT) && gm_cache_request.waits && heap->core->idle &&
	       heap->moving.freed_at > gm_cache_pages_passed(heap, UINT64_MAX);
}

int gm_cache_pages_waits(struct gm_cache_heap *heap, uint64_t until)
{
	uint64_t freed = heap->moving.freed_at < until ? heap->moving.freed_at : until;

	if (!gm_cache_heap_in_pages(heap) || freed <= gm_cache_pages_passed(heap, UINT64_MAX))
		return 0;
	return gm_timeline_marked(timeline(), heap->context) < freed &&
	       gm_timeline_is_capturing(timeline(), heap->context) ? -EAGAIN : 1;
}
