/*
 * cache_flush.c - what the caching allocator gives back to the driver, and when.
 *
 * Our cache must never be the reason for an error that the plain driver would not give: whatever
 * fails for want of memory is repeated after a flush, and where a device runs short its idle
 * segments go back at the program's own synchronisations.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache.h"
#include "preload/order/order.h"

#define BACK_NS UINT64_C(1000000)	/* the free of idle memory takes a few microseconds */

static _Atomic(uint64_t) is_short;	/* a bit for each device */

/* ---- giving back ---- */

uint64_t gm_cache_flush(uint8_t domain)
{
	bool settled = false;
	uint64_t bytes = 0;

	for (uint8_t d = 0; gm_cache_on() && d < GM_MAX_DEVICES; d++) {
		if ((domain != GM_DOMAIN_UNKNOWN && d != domain) || !gm_cache_idle_or_limbo(d))
			continue;
		if (!settled)
			gm_reuse_wait_all(gm_order_reuse());
		settled = true;
		if (!gm_cache_growth_lock(d))
			continue;
		bytes += gm_cache_empty(d, NULL);
		gm_pool_trim(d);
		gm_cache_growth_unlock(d);
	}
	return bytes;
}

bool gm_cache_retry(CUresult result, unsigned int *tries)
{
	struct gm_cache_await await;
	bool more;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || !gm_cache_on() || !gm_rule(GM_RULE_FLUSH))
		return false;
	if (!(*tries)++ && gm_cache_flush(GM_DOMAIN_UNKNOWN))
		return true;
	if (*tries > 2)
		return false;
	*tries = 2;
	gm_cache_await_begin(&await);
	more = gm_cache_await(&await, GM_DOMAIN_UNKNOWN, 0, false);
	return gm_cache_flush(GM_DOMAIN_UNKNOWN) > 0 || more;
}

void gm_cache_short_of_memory(uint8_t domain)
{
	is_short |= UINT64_C(1) << domain;
}

void gm_cache_synchronised(void)
{
	uint64_t devices;

	if (!gm_cache_on())
		return;
	gm_reuse_poll(gm_order_reuse());
	gm_cache_orphans_back();
	if (!is_short)
		return;
	devices = __atomic_exchange_n((uint64_t *)&is_short, 0, __ATOMIC_ACQ_REL);
	for (uint8_t d = 0; d < GM_MAX_DEVICES; d++)
		if (devices >> d & 1)
			gm_cache_flush(d);
}

/* ---- out of memory ---- */

void gm_cache_describe(uint8_t domain, struct gm_failure *failure)
{
	struct gm_stats stats;

	if (!gm_cache_on() || domain >= GM_MAX_DEVICES || gm_record_stats(domain, &stats))
		return;
	failure->reserved_bytes = (uint64_t)stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current;
	failure->cached_bytes = failure->reserved_bytes -
				(uint64_t)stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL].current;
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));) {
		uint64_t largest = gm_cache_heap_largest_free(heap);

		failure->limbo_bytes += gm_reuse_limbo_bytes(gm_order_reuse(), heap->number);
		if (largest > failure->largest_free_bytes)
			failure->largest_free_bytes = largest;
	}
	if (gm_cache_request.over_limit)
		gm_cache_describe_limit(domain, failure);
}

/* ---- the default pools, for their attributes ---- */

static struct gm_cache_heap *pool_of(uint8_t domain)
{
	struct gm_cache_heap *heap = NULL;

	while (gm_cache_on() && (heap = gm_cache_heap_next(heap, domain)))
		if (heap->kind == GM_KIND_POOL)
			return heap;
	return NULL;
}

bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool)
{
	struct gm_cache_heap *heap = pool_of(domain);

	if (!heap)
		return false;
	ret_pool->pages = gm_cache_heap_in_pages(heap);
	ret_pool->segments = heap->segments;
	ret_pool->segments_high = heap->segments_high;
	gm_cache_heap_used(heap, &ret_pool->used, &ret_pool->used_high);
	ret_pool->idle = gm_cache_heap_idle_bytes(heap);
	return true;
}

void gm_cache_pool_reset_high(uint8_t domain)
{
	struct gm_cache_heap *heap = pool_of(domain);

	if (heap)
		gm_cache_heap_reset_high(heap);
}

void gm_cache_pool_reset_segments_high(uint8_t domain)
{
	struct gm_cache_heap *heap = pool_of(domain);

	if (heap)
		heap->segments_high = (uint64_t)heap->segments;
}

void gm_cache_pool_flush(uint8_t domain, uint64_t keep)
{
	struct gm_cache_heap *heap = pool_of(domain);

	/* Who has the lock may be waiting for what this thread does next. */
	if (!heap || heap->segments <= keep || !gm_cache_heap_idle_bytes(heap) ||
	    !gm_cache_growth_try(domain))
		return;
	gm_cache_heap_empty(heap);
	gm_cache_orphans_back();
	gm_cache_back_wait(heap, BACK_NS);
	gm_cache_growth_unlock(domain);
}
