/*
 * cache_await.c - a request waits for the GPU before it is refused for lack of memory.
 *
 * The driver's cudaFree would have waited for the GPU, and the next request would have got the memory. Our cudaFree
 * returned at once, on any thread, so the request that lacks the memory waits instead. The wait has an end, because
 * the GPU's work may be waiting for what this thread does next. A pages heap also waits so before it takes more
 * memory than is live.
 *
 * While there is plenty of memory, freed blocks wait for the GPU, and requests are served from other blocks. That
 * takes more segments than the driver would take, with holes in them. Where memory is scarce, such holes would cause
 * refusals. So frees wait there as the driver's frees do.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>

#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/record.h"
#include "allocator/lock.h"

#define SCARCE_PART 16u			/* memory is scarce if less than one such part of the device is free or idle */
#define AMPLE_PART 64u			/* and scarce no longer if one such part more is */
#define LOOKS_EVERY 256u		/* scarce frees between two looks */
#define MARKED_PART 512u		/* of the device: with less stream-ordered memory no request can lack it */
#define SETTLE_NS UINT64_C(20000000)	/* limit for work that stood still before, or waits for a capture's end */
#define STILL_NS UINT64_C(10000000000)	/* a GPU without progress for so long is waiting for the host */
#define VAIN_NS UINT64_C(2000000000)	/* the same before a pages heap grows: only memory is at stake */
#define SLICE_NS UINT64_C(10000000)	/* most time that one turn of a wait counts (gm_passed_ns) */
#define CALL_NS UINT64_C(1000000000)	/* likewise for one driver call that waits */
#define PATIENCE_NS (gm_rules_patience_ms ? gm_rules_patience_ms * UINT64_C(1000000) : STILL_NS)

static _Atomic(uint64_t) scarce;	/* a bit for each device; with GM_CACHE_SCARCE for all of them */
static _Atomic(uint32_t) scarce_asked;

void gm_cache_await_begin(struct gm_cache_await *await)
{
	await->point = gm_reuse_now(gm_order_reuse());
	await->progress = gm_reuse_progress(gm_order_reuse());
	await->at_ns = gm_now_ns();
	await->left_ns = PATIENCE_NS;
	await->again = false;
}

static uint64_t in_limbo(uint8_t domain)
{
	uint64_t bytes = 0;

	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		bytes += gm_reuse_limbo_bytes(gm_order_reuse(), heap->number);
	return bytes;
}

/* Is anything idle in a heap of @domain? @of_streams: look into the default pool's heap, too. */
static bool idle_anywhere(uint8_t domain, bool of_streams)
{
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		if ((of_streams || heap->kind != GM_KIND_POOL) && gm_cache_heap_idle_bytes(heap))
			return true;
	return false;
}

static bool streams_pending(void)
{
	return gm_timeline_streams_pending(gm_reuse_time(gm_order_reuse()));
}

/* Return the time since the last call, and subtract it from the time left. A stop of the process counts at most
 * @most_ns. */
static uint64_t pass(struct gm_cache_await *await, uint64_t most_ns)
{
	uint64_t passed = gm_passed_ns(&await->at_ns, most_ns);

	await->left_ns -= passed < await->left_ns ? passed : await->left_ns;
	return passed;
}

/* Does freed memory of @domain's heaps wait? @pages: look also at idle pages. 0: no; 1: yes, for the GPU; -EAGAIN:
 * only for the end of a capture. */
static int waits_in_heaps(uint64_t point, uint8_t domain, bool streams, bool pages)
{
	int r = 0, one;

	for (struct gm_cache_heap *heap = NULL; r <= 0 && (heap = gm_cache_heap_next(heap, domain));) {
		one = gm_reuse_limbo_bytes(gm_order_reuse(), heap->number)
			      ? gm_reuse_waits(gm_order_reuse(), point, heap->context) : 0;
		if (one <= 0 && pages && (streams || heap->kind != GM_KIND_POOL) && gm_cache_heap_idle_bytes(heap))
			one = gm_cache_pages_waits(heap, point) ? gm_cache_pages_waits(heap, point) : one;
		r = one ? one : r;
	}
	return r;
}

static int waits(const struct gm_cache_await *await, uint8_t domain, bool streams)
{
	int r = waits_in_heaps(await->point, domain, streams, await->left_ns != 0);

	if (r <= 0 && streams && await->left_ns &&
	    (gm_cache_orphans_any() || (idle_anywhere(domain, true) && streams_pending())))
		r = 1;
	if (r <= 0 && gm_cache_back_waits(domain))	/* idle segments that were freed behind the GPU's work */
		r = 1;
	return r;
}

static uint64_t progress(void)
{
	return gm_reuse_progress(gm_order_reuse()) + (gm_cache_back_progress() << 32);
}

static void poll(uint8_t domain, bool streams)
{
	gm_reuse_poll_all(gm_order_reuse());
	gm_reuse_look(gm_order_reuse());
	gm_cache_back_look(domain);
	if (!streams)
		return;
	gm_reuse_look_streams(gm_order_reuse(), false);
	gm_cache_orphans_back();
}

/* Wait until enough is complete, nothing waits any more, or the GPU has made no progress for too long. Later waits at
 * the same progress are short. Returns false if nothing waited at all. */
static bool wait_for_gpu(struct gm_cache_await *await, uint8_t domain, uint64_t bytes,
			 bool streams)
{
	static _Atomic(uint64_t) stalled = UINT64_MAX;	/* the progress at which the GPU stood still */
	uint64_t begin = in_limbo(domain), back = gm_cache_back_progress();
	uint64_t seen = UINT64_MAX, waited = 0, limit = 0, got_on;
	int saved_errno = errno, r;
	bool any = false;

	for (long pause_ns = 20000;; pause_ns += pause_ns < 2000000 ? pause_ns / 4 : 0) {
		poll(domain, streams);
		r = waits(await, domain, streams);
		any |= r != 0;
		if (!r || (bytes && begin >= bytes && in_limbo(domain) <= begin - bytes) ||
		    gm_cache_back_progress() != back)
			break;
		got_on = progress();
		waited += pass(await, SLICE_NS);
		if (got_on != seen) {
			limit = r < 0 || got_on == stalled ? SETTLE_NS : PATIENCE_NS;
			waited = 0;
		}
		seen = got_on;
		if (waited >= limit) {
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
	uint64_t got_on, back = gm_cache_back_progress();
	bool waited, more;

	waited = waits_in_heaps(await->point, domain, false, false);
	gm_reuse_wait_all(gm_order_reuse());
	pass(await, CALL_NS);
	if (gm_rule(GM_RULE_AWAIT) && !gm_in_host_function())
		waited |= wait_for_gpu(await, domain, bytes, streams);
	got_on = gm_reuse_progress(gm_order_reuse());
	more = got_on != await->progress;
	/* Other threads free and complete all the time. So progress counts only if something waited, or at the first
	 * call. */
	more &= waited || !await->again;
	more |= gm_cache_back_progress() != back && await->left_ns;
	await->progress = got_on;
	await->again = true;
	return more;
}

bool gm_cache_await_pages(struct gm_cache_heap *heap)
{
	uint64_t patience = PATIENCE_NS < VAIN_NS ? PATIENCE_NS : VAIN_NS;
	uint64_t before = gm_cache_pages_passed(heap, UINT64_MAX);
	uint64_t at = gm_now_ns(), waited = 0, arrived = gm_reuse_time(gm_order_reuse())->streams_moves;
	int saved_errno = errno;
	bool pool = heap->kind == GM_KIND_POOL, more, vain = false;

	for (long pause_ns = 10000;; pause_ns += pause_ns < 200000 ? pause_ns / 4 : 0) {
		gm_reuse_look(gm_order_reuse());
		if (pool)		/* its streams may have passed their frees while another stream stands still */
			gm_reuse_look_streams(gm_order_reuse(), false);
		more = gm_cache_pages_passed(heap, UINT64_MAX) != before ||
		       (pool && gm_reuse_time(gm_order_reuse())->streams_moves != arrived);
		waited += gm_passed_ns(&at, SLICE_NS);
		vain = !more && waited >= patience;
		if (more || vain || gm_cache_pages_waits(heap, UINT64_MAX) <= 0)
			break;
		gm_nap(pause_ns);
	}
	if (vain)
		heap->moving.impatient = true;
	heap->moving.spent_ns += waited + gm_passed_ns(&at, SLICE_NS);
	errno = saved_errno;
	return more;
}

/* ---- where memory is scarce ---- */

static void set_scarce(uint8_t domain, uint64_t free_bytes, uint64_t total_bytes)
{
	uint64_t bit = UINT64_C(1) << domain, left = free_bytes + gm_cache_idle_bytes(domain);

	if (left < total_bytes / SCARCE_PART)
		scarce |= bit;
	else if (left > total_bytes / SCARCE_PART + total_bytes / AMPLE_PART)
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
	if (!GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
		set_scarce(heap->domain, free_bytes, total_bytes);
	if (call->alloc.stream && heap->segments >= total_bytes / MARKED_PART)
		gm_order_report_frees();
}
