/*
 * cache_driver.c - the heaps behind cudaMalloc and cudaMallocAsync, and their segments (see
 * cache_internal.h).
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>
#include <stdatomic.h>

#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"
#include "preload/order/order.h"
#include "preload/cache/cache.h"
#include "allocator/map.h"
#include "allocator/page_map.h"
#include "preload/cache/thread_cache.h"

#define FAILURES_MOST 10u

static struct gm_lock making;			/* taken while a heap is made */
static _Atomic(uint32_t) endings;		/* heaps whose context is about to end */
static _Atomic(uint32_t) failures[GM_MAX_DEVICES];	/* failures in a row to make a heap */
static _Atomic(uint32_t) passed[GM_MAX_DEVICES];	/* calls since the last failure that were not served */

__thread struct gm_cache_last_heap gm_cache_last, gm_cache_last_pool;

/* ---- segments ---- */

static CUresult ask_driver(const struct gm_cache_heap *heap, uint64_t bytes, CUdeviceptr *ret)
{
	return heap->kind == GM_KIND_POOL
		       ? GM_REAL(cuMemAllocAsync)(ret, bytes, gm_cache_request.stream)
		       : GM_REAL(cuMemAlloc_v2)(ret, bytes);
}

static int segment_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	struct gm_cache_heap *heap = arg;
	struct gm_relaxed relaxed = gm_relax();
	CUdeviceptr address = 0;
	CUresult result;
	int r = -EIO;			/* a request larger than the device is not tried in other ways */

	if (!gm_cache_within_limit(heap->domain, bytes)) {
		gm_cache_request.result = CUDA_SUCCESS;		/* the driver was not asked */
		gm_unrelax(&relaxed);
		return -ENOMEM;
	}
	gm_writers_look();
	result = ask_driver(heap, bytes, &address);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && !gm_cache_is_past_device(heap)) {
		gm_cache_back_done(heap->domain);	/* segments on their way back may be enough */
		gm_pool_trim(heap->domain);
		result = ask_driver(heap, bytes, &address);
		r = -ENOMEM;
	}
	gm_unrelax(&relaxed);
	gm_cache_request.result = result;
	if (result)
		return result == CUDA_ERROR_OUT_OF_MEMORY ? r : -EIO;
	heap->segments += bytes;
	gm_cache_request.grown = true;
	if (stream)
		gm_order_stream_meet(stream, gm_cache_request.stream, true);
	*ret_address = address;
	return 0;
}

static void segment_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	struct gm_cache_heap *heap = arg;
	struct gm_visit visit;
	CUstream back;

	if (!heap->at.handle)
		gm_cache_home_find(heap);
	visit = gm_visit_begin(heap);
	heap->segments -= bytes;
	if (stream) {
		gm_cache_ordered_segment_free(heap, address, bytes, stream);
	} else {
		back = gm_cache_back_stream(heap);
		if (back)
			gm_order_behind_frees(back);
		if (back && !GM_REAL(cuMemFreeAsync)(address, back))
			heap->at.going_back++;
		else
			GM_REAL(cuMemFree_v2)(address);
	}
	gm_visit_end(&visit);
}

/* May a segment of @stream go back to the driver? The domain's lock is held. */
static bool may_go(void *arg, uint64_t stream)
{
	const struct gm_cache_heap *heap = arg;
	enum gm_stream_frees seen;
	bool ended;

	if (heap->ending)
		return false;
	if (!stream || heap->pages)	/* for pages, the points of their frees decide */
		return !gm_cache_request.ended_only;
	seen = gm_timeline_stream_frees(gm_reuse_time(gm_order_reuse()), stream, &ended);
	if (gm_cache_request.ended_only && !ended)
		return false;
	return seen == GM_FREES_PASSED || ((seen == GM_FREES_UNKNOWN || gm_cache_request.chains) &&
					   gm_cache_orphans_room());
}

/* Find out how far the GPU is, before idle segments go back. Does not wait, because the growth lock is held. */
static void synchronize(void *arg)
{
	gm_reuse_poll(gm_order_reuse());
	gm_reuse_look_streams(gm_order_reuse(), false);
	if (((const struct gm_cache_heap *)arg)->pages)
		gm_reuse_look(gm_order_reuse());
}

/* ---- heaps ---- */

static struct gm_heap_ops backend = {
	.driver_alloc = segment_alloc, .driver_free = segment_free, .may_go = may_go, .synchronize = synchronize,
	.reserve = gm_cache_pages_reserve, .map = gm_cache_pages_map, .unmap = gm_cache_pages_unmap,
	.trim = gm_cache_pages_trim, .waits = gm_cache_pages_wanted, .costly = gm_cache_pages_costly,
	.point = gm_cache_pages_point, .passed = gm_cache_pages_passed,
};

/* Return the heap of @context; of the device's default pool with @context 0; NULL: there is none. */
static struct gm_cache_heap *find(uint32_t context, uint8_t domain)
{
	struct gm_cache_heap *heap = NULL;

	while ((heap = gm_cache_heap_next(heap, domain)) && heap->context != context)
		;
	return heap;
}

static void *pages(void *arg, size_t bytes)
{
	(void)arg;
	return gm_map_pages(bytes);
}

/* Is it too soon to try again to make a heap, after failures? Each failure doubles the number of calls that pass
 * unserved. */
static bool is_put_off(uint8_t domain)
{
	uint32_t times = failures[domain];

	return times && ++passed[domain] & ((1u << (times < FAILURES_MOST ? times : FAILURES_MOST)) - 1);
}

static struct gm_cache_heap *get(uint32_t context, struct gm_where where)
{
	struct gm_cache_heap *heap = find(context, where.domain);
	struct gm_heap_config config;
	struct gm_cache_heap_setup setup = {
		.config = &config, .map = gm_cache_page_map, .ops = &backend,
		.context = context, .home = where.context, .domain = where.domain,
		.kind = context ? GM_KIND_DEVICE : GM_KIND_POOL,
		.thread_cache = gm_state.options.thread_cache,
	};

	if (heap || is_put_off(where.domain))
		return heap;
	setup.handle = gm_context_owner(where.context);
	if (!setup.handle)
		return NULL;
	gm_cache_config(where.domain, &config);
	if (gm_state.options.expandable_segments)
		setup.pages = gm_cache_pages_new(where.domain, !context);
	if (setup.pages)
		config.class = &gm_pages_class;
	if (gm_lock(&making)) {
		heap = find(context, where.domain);
		if (!heap && gm_cache_heap_new(&setup, &heap))
			heap = NULL;
		gm_unlock(&making);
	}
	if (setup.pages && (!heap || heap->pages != setup.pages))
		gm_cache_pages_end(setup.pages);
	if (heap)
		gm_cache_apply_limit(heap);
	failures[where.domain] = heap ? 0 : failures[where.domain] + 1;
	return heap;
}

static struct gm_cache_heap *remember(struct gm_cache_last_heap *last, const struct gm_where *where,
				      struct gm_cache_heap *heap)
{
	*last = (struct gm_cache_last_heap){ where->context, heap ? heap->number : 0, heap };
	return heap;
}

struct gm_cache_heap *gm_cache_context_heap_find(const struct gm_where *where)
{
	if (!where->context || where->domain >= GM_MAX_DEVICES)
		return NULL;
	return remember(&gm_cache_last, where, get(where->context, *where));
}

struct gm_cache_heap *gm_cache_pool_heap_find(const struct gm_where *where)
{
	struct gm_cache_heap *heap;

	if (!where->context || where->domain >= GM_MAX_DEVICES)
		return NULL;
	heap = get(0, *where);
	if (heap && !heap->at.handle)
		gm_cache_home_here(heap, where->context);
	return remember(&gm_cache_last_pool, where, heap);
}

/* Once the driver's call has begun, the context's addresses may belong to others, so nothing more may be given back
 * there. A thread that is giving back memory at this time holds the growth lock. */
void gm_cache_context_ending(uint32_t context, bool ending)
{
	enum gm_context_role role;
	CUdevice device = -1;
	bool locked, held;

	if (!gm_cache_on())
		return;
	gm_context_handle(context, &role, &device);
	locked = ending && device >= 0 && device < (CUdevice)GM_MAX_DEVICES &&
		 gm_cache_growth_waits((uint8_t)device);
	held = ending && gm_cache_orphans_hold();
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, GM_DOMAIN_UNKNOWN));) {
		if (heap->at.home != context)
			continue;
		if (heap->kind != GM_KIND_POOL) {
			endings += ending - heap->ending;
			gm_cache_heap_suspend(heap, ending);
		} else if (locked && held && gm_cache_home_moves(heap)) {
			continue;
		}
		heap->ending = ending;
	}
	if (locked)
		gm_cache_growth_unlock((uint8_t)device);
	if (held)
		gm_cache_orphans_let_go();
}

/* Give back the pages of a heap whose context has ended. A growth in flight notices that, and ends. */
static void end_pages(struct gm_cache_heap *heap)
{
	if (!gm_cache_growth_waits(heap->domain))
		return;			/* better to leak the pages than to let two threads use them */
	gm_cache_pages_end(heap->pages);
	heap->pages = NULL;
	gm_cache_growth_unlock(heap->domain);
}

void gm_cache_context_ended(uint32_t context, uint64_t tsc, uint32_t stack)
{
	for (struct gm_cache_heap *heap = NULL;
	     gm_cache_on() && (heap = gm_cache_heap_next(heap, GM_DOMAIN_UNKNOWN));) {
		if (heap->kind == GM_KIND_POOL)
			gm_cache_home_lost(heap, context);
		if (heap->kind == GM_KIND_POOL || heap->at.home != context)
			continue;
		gm_reuse_forget(gm_order_reuse(), heap->number);
		gm_cache_heap_drop(heap, tsc, stack);
		endings -= heap->ending;
		if (heap->pages)
			end_pages(heap);
	}
}

void gm_cache_address_reused(struct gm_where where, uint64_t address, uint64_t bytes)
{
	if (endings && gm_cache_on() && where.domain < GM_MAX_DEVICES)
		gm_cache_heap_address_reused(gm_cache_page_map, where.domain, address, bytes);
}

/* ---- growth and flush ---- */

uint64_t gm_cache_empty(uint8_t domain, const struct gm_cache_heap *but)
{
	uint64_t bytes = 0;

	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		if (heap != but && !heap->ending)
			bytes += gm_cache_heap_empty(heap, UINT64_MAX);
	bytes += gm_cache_orphans_back();
	if (bytes)
		gm_cache_back_done(domain);
	return bytes;
}

void gm_cache_release_ended(uint8_t domain)
{
	static uint32_t seen[GM_MAX_DEVICES];	/* lock: growth */
	uint32_t left = gm_order_streams_over();
	uint64_t bytes = 0;

	if (gm_state.options.expandable_segments)
		gm_reuse_look(gm_order_reuse());	/* which pages may be moved */
	if (left == seen[domain])
		return;
	seen[domain] = left;
	gm_cache_request.ended_only = true;
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		if (!heap->ending)
			bytes += gm_cache_heap_release(heap);
	gm_cache_request.ended_only = false;
	bytes += gm_cache_orphans_back();
	if (bytes)
		gm_cache_back_done(domain);
}

uint64_t gm_cache_idle_bytes(uint8_t domain)
{
	uint64_t bytes = 0;

	for (struct gm_cache_heap *heap = NULL;
	     gm_cache_on() && (heap = gm_cache_heap_next(heap, domain));)
		bytes += gm_cache_heap_idle_bytes(heap);
	return bytes;
}

bool gm_cache_idle_or_limbo(uint8_t domain)
{
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		if (gm_cache_heap_idle_bytes(heap) ||
		    gm_reuse_limbo_bytes(gm_order_reuse(), heap->number))
			return true;
	return false;
}

int gm_cache_heaps_start(void)
{
	gm_cache_context_start();
	gm_cache_heap_begin();
	gm_tcache_begin(gm_cache_heap_free_late);
	gm_cache_heap_records(&backend);
	gm_cache_page_map = gm_page_map_new(pages, NULL);
	return gm_cache_page_map ? 0 : -ENOMEM;
}
