/*
 * cache_flush.c - what the caching allocator gives back, and when; what it leaves to the driver.
 *
 * Our cache must never be the reason for an error that the plain driver would not give: whatever
 * fails for want of memory is repeated after a flush, and where a device runs short its idle
 * segments go back at the program's own synchronisations.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>
#include <string.h>

#include "allocator/lock.h"
#include "allocator/rules.h"
#include "preload/cache/cache_heap.h"
#include "preload/order/capture.h"
#include "preload/order/order.h"
#include "preload/cache/pool_attributes.h"
#include "preload/hooks/sample.h"
#include "preload/cache/writers.h"
#include "allocator/lock.h"

#define SHORT_PART 64u			/* of the device's memory: less free than this is short */
#define SCARCE_PART 16u			/* less free or idle than this is scarce */
#define LOOKS_EVERY 256u		/* frees that waited for it */
#define TOLD_PART 512u			/* so much stream-ordered memory nobody will lack */
#define POISON 0xa5u
#define SETTLE_NS UINT64_C(20000000)	/* for what stood still before, or waits for a capture's end */
#if GM_TEST_RULES
#define PATIENCE_NS (gm_rules_patience_ms ? gm_rules_patience_ms * UINT64_C(1000000) : STILL_NS)
#else
#define PATIENCE_NS STILL_NS
#endif
#define STILL_NS UINT64_C(10000000000)	/* a GPU that made no progress for so long waits for the host */
#define BACK_NS UINT64_C(1000000)	/* the free of idle memory takes a few microseconds */

static _Atomic(uint64_t) is_short;	/* a bit for each device */
static _Atomic(uint64_t) scarce;	/* likewise; with GM_CACHE_SCARCE for all of them */
static _Atomic(uint32_t) scarce_asked;
static _Atomic(bool) dedicate;

/* ---- requests that are the driver's ---- */

void gm_cache_dedicate(void)
{
	dedicate = true;
}

bool gm_cache_dedicated_large(uint16_t module)
{
	return dedicate || gm_writers_own_segment(module);
}

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

/* ---- waiting for the GPU before "out of memory" ---- */

/* The driver's cudaFree would have waited, and who allocates next would have had the memory. Ours
 * returned at once, in whatever thread: so the wait is made up for here. It has an end, since the
 * work may be waiting for what this thread does next. */

void gm_cache_await_begin(struct gm_cache_await *await)
{
	await->stamp = gm_reuse_stamp(gm_order_reuse());
	await->completed = gm_reuse_completed(gm_order_reuse());
	await->streams = gm_cache_streams_arrived();
	await->end_ns = gm_now_ns() + PATIENCE_NS;
	await->again = false;
}

static uint64_t in_limbo(uint8_t domain)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; gm_cache_heap_at(i); i++) {
		const struct gm_cache_heap *heap = gm_cache_heap_at(i);

		if (heap->number && (domain == GM_DOMAIN_UNKNOWN || heap->domain == domain))
			bytes += gm_reuse_limbo_bytes(gm_order_reuse(), heap->number);
	}
	return bytes;
}

static bool idle_anywhere(uint8_t domain)
{
	bool any = false;

	for (uint8_t d = 0; d < GM_MAX_DEVICES && !any; d++)
		any = (domain == GM_DOMAIN_UNKNOWN || d == domain) && gm_cache_idle_bytes(d);
	return any;
}

/* Does anything wait? 0: no; 1: for the GPU; -EAGAIN: for the end of a capture alone. */
static int waits(const struct gm_cache_await *await, uint8_t domain, bool streams)
{
	int r = in_limbo(domain) ? gm_reuse_waits(gm_order_reuse(), await->stamp) : 0;

	if (r <= 0 && streams && gm_now_ns() < await->end_ns &&
	    (gm_cache_orphans_any() || (idle_anywhere(domain) && gm_cache_streams_pending())))
		r = 1;
	return r;
}

static uint64_t progress(void)
{
	return gm_reuse_progress(gm_order_reuse()) + (gm_cache_streams_arrived() << 48);
}

static void look(bool streams)
{
	gm_reuse_poll_all(gm_order_reuse());
	if (!streams)
		return;
	gm_cache_streams_look();
	gm_cache_orphans_back();
}

/* Until enough is complete, nothing waits any more, or the GPU made no progress for too long. What
 * was in its way then is not waited for as long again. False: nothing waited at all. */
static bool wait_for_gpu(const struct gm_cache_await *await, uint8_t domain, uint64_t bytes,
			 bool streams)
{
	static _Atomic(uint64_t) stalled = UINT64_MAX;	/* the progress at which it stood still */
	uint64_t begin = in_limbo(domain), seen = UINT64_MAX, until = 0, now, got_on;
	int saved_errno = errno, r;
	bool any = false;

	for (long pause_ns = 20000;; pause_ns += pause_ns < 2000000 ? pause_ns / 4 : 0) {
		look(streams);
		r = waits(await, domain, streams);
		any |= r != 0;
		if (!r || (bytes && begin >= bytes && in_limbo(domain) <= begin - bytes))
			break;
		got_on = progress();
		now = gm_now_ns();
		if (got_on != seen)
			until = now + (r < 0 || got_on == stalled ? SETTLE_NS : PATIENCE_NS);
		seen = got_on;
		if (now >= until) {
			stalled = seen;
			break;
		}
		gm_nap(pause_ns);
	}
	errno = saved_errno;
	return any;
}

bool gm_cache_await(struct gm_cache_await *await, uint8_t domain, uint64_t bytes, bool streams)
{
	uint64_t completed, arrived;
	bool waited, more;

	waited = in_limbo(domain) && gm_reuse_waits(gm_order_reuse(), await->stamp);
	gm_reuse_wait_all(gm_order_reuse());
	if (gm_rule(GM_RULE_AWAIT) && !gm_in_host_function())
		waited |= wait_for_gpu(await, domain, bytes, streams);
	completed = gm_reuse_completed(gm_order_reuse());
	arrived = gm_cache_streams_arrived();
	more = completed != await->completed || arrived != await->streams;
	/* Others free and complete without end: only what waited, or had just come, is a reason. */
	more &= waited || !await->again;
	await->completed = completed;
	await->streams = arrived;
	await->again = true;
	return more;
}

bool gm_cache_retry(CUresult result, unsigned int *tries)
{
	struct gm_cache_await await;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || !gm_cache_on() || !gm_rule(GM_RULE_FLUSH))
		return false;
	if (!(*tries)++ && gm_cache_flush(GM_DOMAIN_UNKNOWN))
		return true;
	if (*tries > 2)
		return false;
	*tries = 2;
	gm_cache_await_begin(&await);
	gm_cache_await(&await, GM_DOMAIN_UNKNOWN, 0, false);
	return gm_cache_flush(GM_DOMAIN_UNKNOWN) > 0;
}

void gm_cache_short_of_memory(uint8_t domain)
{
	is_short |= UINT64_C(1) << domain;
}

/* While memory is plenty, what was freed waits for the GPU and others are served from elsewhere. That
 * takes more segments than the driver would, with holes in them, and where memory is scarce they
 * would be the reason for a refusal. There frees wait as the driver's do. */
static void set_scarce(uint8_t domain, uint64_t free_bytes, uint64_t total_bytes)
{
	uint64_t bit = UINT64_C(1) << domain, left = free_bytes + gm_cache_idle_bytes(domain);

	if (left < total_bytes / SCARCE_PART)
		scarce |= bit;
	else if (left > total_bytes / SCARCE_PART + total_bytes / SHORT_PART)
		scarce &= ~bit;
	if (scarce)
		gm_cache_unusual |= GM_CACHE_SCARCE;
	else
		gm_cache_unusual &= ~(uint32_t)GM_CACHE_SCARCE;
}

bool gm_cache_scarce(uint8_t domain)
{
	size_t free_bytes, total_bytes;

	if (!(scarce >> domain & 1))
		return false;
	if (!(++scarce_asked % LOOKS_EVERY) &&
	    !GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
		set_scarce(domain, free_bytes, total_bytes);
	return true;
}

void gm_cache_grew(struct gm_cache_heap *heap, const struct gm_call *call)
{
	size_t free_bytes = 0, total_bytes = 0;

	gm_sample_growth(call->where);
	if (!GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes)) {
		if (free_bytes < total_bytes / SHORT_PART)
			gm_cache_short_of_memory(heap->domain);
		set_scarce(heap->domain, free_bytes, total_bytes);
	}
	if (call->alloc.stream && heap->segments >= total_bytes / TOLD_PART)
		gm_cache_tell_frees();
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
	for (unsigned int i = 0; gm_cache_heap_at(i); i++) {
		struct gm_cache_heap *heap = gm_cache_heap_at(i);
		uint64_t largest;

		if (!heap->number || heap->domain != domain)
			continue;
		failure->limbo_bytes += gm_reuse_limbo_bytes(gm_order_reuse(), heap->number);
		largest = gm_cached_largest_free(heap->cached);
		if (largest > failure->largest_free_bytes)
			failure->largest_free_bytes = largest;
	}
	if (gm_cache_request.over_limit)
		gm_cache_describe_limit(domain, failure);
}

/* ---- the default pools, for their attributes ---- */

static struct gm_cache_heap *pool_of(uint8_t domain)
{
	for (unsigned int i = 0; gm_cache_on() && gm_cache_heap_at(i); i++) {
		struct gm_cache_heap *heap = gm_cache_heap_at(i);

		if (heap->number && heap->domain == domain && heap->kind == GM_KIND_POOL)
			return heap;
	}
	return NULL;
}

bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool)
{
	struct gm_cache_heap *heap = pool_of(domain);

	if (!heap)
		return false;
	ret_pool->segments = heap->segments;
	gm_cached_used(heap->cached, &ret_pool->used, &ret_pool->used_high);
	ret_pool->idle = gm_cached_idle_bytes(heap->cached);
	return true;
}

void gm_cache_pool_reset_high(uint8_t domain)
{
	struct gm_cache_heap *heap = pool_of(domain);

	if (heap)
		gm_cached_reset_high(heap->cached);
}

void gm_cache_pool_flush(uint8_t domain, uint64_t keep)
{
	struct gm_cache_heap *heap = pool_of(domain);

	/* Who has the lock may be waiting for what this thread does next. */
	if (!heap || heap->segments <= keep || !gm_cached_idle_bytes(heap->cached) ||
	    !gm_cache_growth_try(domain))
		return;
	gm_cached_empty(heap->cached);
	gm_cache_orphans_back();
	gm_cache_back_wait(heap, BACK_NS);
	gm_cache_growth_unlock(domain);
}

/* ---- faults ---- */

/* Errors that stay with the context: every later call in it says them again. */
static bool sticks(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return false;
	}
}

void gm_cache_fault(CUresult result)
{
	struct gm_where where;

	if (!gm_cache_on() || !sticks(result))
		return;
	where = gm_where_now();
	for (unsigned int i = 0; gm_cache_heap_at(i); i++) {
		struct gm_cache_heap *heap = gm_cache_heap_at(i);

		if (heap->number && heap->domain == where.domain &&
		    (heap->context == where.context || heap->kind == GM_KIND_POOL))
			heap->faulted = (uint32_t)result;
	}
}

/* ---- filling ---- */

void gm_cache_fill(struct gm_cache_heap *heap, CUdeviceptr address, uint64_t bytes)
{
	unsigned char value = gm_state.options.fill == GM_FILL_ZERO ? 0 : POISON;
	struct gm_relaxed relaxed;
	CUstream stream;

	relaxed = gm_relax();
	stream = heap->kind == GM_KIND_POOL ? gm_cache_request.stream : gm_cache_back_stream(heap);
	/* A cudaMalloc's memory has no stream: it is filled before anybody has it. */
	if (!GM_REAL(cuMemsetD8Async)(address, value, bytes, stream) &&
	    heap->kind != GM_KIND_POOL)
		GM_REAL(cuStreamSynchronize)(stream);
	gm_unrelax(&relaxed);
}
