/*
 * cache_flush.c - give memory of the caching allocator back to the driver: what, and when.
 *
 * Our cache must never cause an error that the plain driver would not return. So every call that fails for lack of
 * memory is repeated after a flush, and unused memory goes back by itself.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache.h"
#include "preload/cache/thread_cache.h"
#include "preload/order/order.h"
#include "preload/triggers/neighbours.h"

#define BACK_NS UINT64_C(1000000)	/* limit of a wait; freeing idle memory takes a few microseconds */
#define UNUSED_BYTES (UINT64_C(256) << 20)	/* given back in one step */
#define TURNS_MOST 64u			/* longest period in turns */

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

/* Wait for the GPU, then flush. Returns true if memory went back or became free, even if another thread completed
 * it. */
static bool wait_and_flush(void)
{
	struct gm_cache_await await;
	bool more;

	gm_cache_await_begin(&await);
	more = gm_cache_await(&await, GM_DOMAIN_UNKNOWN, 0, false);
	return gm_cache_flush(GM_DOMAIN_UNKNOWN) > 0 || more;
}

bool gm_cache_ask_others(uint8_t domain, uint64_t bytes)
{
	size_t free_bytes, total_bytes;

	return gm_rule(GM_RULE_FLUSH) && !gm_in_host_function() &&
	       !GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes) &&
	       gm_neighbours_ask(domain, bytes > free_bytes ? bytes - free_bytes : 0);
}

bool gm_cache_retry(CUresult result, unsigned int *tries)
{
	CUdevice device;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || !gm_cache_on() || !gm_rule(GM_RULE_FLUSH))
		return false;
	if (!(*tries)++ && gm_cache_flush(GM_DOMAIN_UNKNOWN))
		return true;
	if (*tries <= 2) {
		*tries = 2;
		if (wait_and_flush())
			return true;
		*tries = 3;
	}
	return *tries == 3 && !GM_REAL(cuCtxGetDevice)(&device) && device < (CUdevice)GM_MAX_DEVICES &&
	       gm_cache_ask_others((uint8_t)device, 0);
}

void gm_cache_synchronised(void)
{
	if (!gm_cache_on())
		return;
	gm_reuse_poll(gm_order_reuse());
	gm_cache_orphans_back();
}

/* ---- unused memory ---- */

static _Atomic(uint32_t) turn;		/* turns so far */

/* Adjust the period, because @heap has grown. Memory that a program uses in each of its iterations must stay, however
 * long an iteration takes. If such memory went back, then growth shows how long an iteration may be: at most the
 * turns since it went back plus two periods. The new period is longer than that. A gap of many turns changes nothing,
 * because keeping such memory costs more than getting it again. */
void gm_cache_missed(struct gm_cache_heap *heap)
{
	uint32_t gave = heap->unused.gave_turn, periods = heap->unused.turns ? heap->unused.turns : 1, gap;

	if (!gave)
		return;
	gap = turn - gave + 2 * periods + 1;
	heap->unused.gave_turn = 0;
	if (gap <= TURNS_MOST)
		heap->unused.turns = gap;
}

/* Can segments of @heap go back by cuMemFreeAsync, behind the work that still uses them? cuMemFree would wait for the
 * GPU, and the calls of other threads would wait with it. */
static bool frees_in_order(struct gm_cache_heap *heap)
{
	struct gm_visit visit;
	int pools = 0;
	bool yes;

	if (heap->pages)
		return true;
	if (!heap->at.handle || GM_REAL(cuDeviceGetAttribute)(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
							   heap->domain))
		return false;
	visit = gm_visit_begin(heap);
	yes = pools && gm_cache_back_stream(heap);
	gm_visit_end(&visit);
	return yes;
}

/* Give back one part of the unused memory. Only a part, because other threads wait for the growth lock meanwhile. */
static uint64_t give_some(struct gm_cache_heap *heap)
{
	uint64_t keep = heap->kind == GM_KIND_POOL ? gm_pool_threshold(heap->domain) : 0, bytes = 0;

	/* A thread that holds the lock is using the heap, so the next turn tries again. */
	if (heap->segments <= keep || !gm_cache_growth_try(heap->domain))
		return 0;
	if (!heap->ending && !heap->dead && !heap->faulted && frees_in_order(heap))
		bytes = gm_cache_heap_release_unused(heap, heap->segments - keep < UNUSED_BYTES ?
							   heap->segments - keep : UNUSED_BYTES);
	if (bytes)
		heap->unused.gave_turn = turn;
	gm_cache_growth_unlock(heap->domain);
	return bytes;
}

static bool may_turn(void)
{
	return !gm_capturing() && gm_cache_on() && !gm_state.turns_ended;
}

static void give_unused(struct gm_cache_heap *heap)
{
	uint64_t left;

	if (++heap->unused.turn < heap->unused.turns)
		return;
	heap->unused.turn = 0;
	while (__atomic_load_n(&heap->core->idle, __ATOMIC_RELAXED) && may_turn() && (left = give_some(heap)))
		;
	gm_cache_heap_begin_period(heap);
}

/* Find out how far the GPU is, because the program may make no call that does so after its last free. */
static void look(void)
{
	struct gm_reuse *reuse = gm_order_reuse();

	/* A mark would invalidate a capture that no hook sees. If there may be one, the program's own next call has
	 * to look. */
	if (!gm_unseen() && (gm_reuse_limbo_bytes(reuse, UINT32_MAX) || gm_state.options.expandable_segments))
		gm_reuse_look(reuse);
	gm_reuse_look_streams(reuse, false);
	gm_cache_orphans_back();
}

void gm_cache_turn(void)
{
	struct gm_relaxed relaxed;

	if (!may_turn() || !gm_cache_heap_next(NULL, GM_CACHE_ALL))
		return;
	relaxed = gm_relax();		/* this thread's calls must not invalidate a capture that begins meanwhile */
	if (!relaxed.changed)
		return;
	turn += turn == UINT32_MAX ? 2 : 1;
	look();
	for (uint8_t d = 0; d < GM_MAX_DEVICES && may_turn(); d++) {
		if (!gm_cache_heap_next(NULL, d))
			continue;
		gm_tcache_flush_unused(d);
		for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, d));)
			give_unused(heap);
		gm_cache_back_look(d);
	}
	gm_unrelax(&relaxed);
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
	uint64_t bytes;

	/* Do not wait for the lock, because its holder may be waiting for this thread's next call. */
	if (!heap || heap->segments <= keep || !gm_cache_heap_idle_bytes(heap) ||
	    !gm_cache_growth_try(domain))
		return;
	bytes = heap->segments;		/* the holder before this thread may have given some back */
	/* Segments go into the driver's pool, which keeps @keep bytes by itself. */
	gm_cache_heap_empty(heap, !heap->pages ? UINT64_MAX : bytes > keep ? bytes - keep : 0);
	gm_cache_orphans_back();
	gm_cache_back_wait(heap, BACK_NS);
	gm_cache_growth_unlock(domain);
}
