/*
 * cache_await.c - where memory runs out, a request waits for the GPU before it is refused.
 *
 * The driver's cudaFree would have waited for the GPU, and the next request would have got the
 * memory. Our cudaFree returned at once, on any thread: so the request that lacks the memory waits
 * instead. The wait has an end, since the GPU's work may be waiting for what this thread does next. A
 * pages heap waits so before it takes more memory than is live.
 *
 * While there is plenty of memory, freed blocks wait for the GPU, and requests are served from
 * other blocks. That takes more segments than the driver would, with holes in them; where memory is
 * scarce, such holes would be the reason for a refusal. So frees wait there as the driver's do.
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

#define SCARCE_PART 16u			/* of the device's memory: less free or idle than this is scarce */
#define AMPLE_PART 64u			/* and so much more is not */
#define LOOKS_EVERY 256u		/* frees that waited for it */
#define MARKED_PART 512u		/* less stream-ordered memory than this no request can lack */
#define SETTLE_NS UINT64_C(20000000)	/* for what stood still before, or waits for a capture's end */
#define STILL_NS UINT64_C(10000000000)	/* a GPU that made no progress for so long waits for the host */
#define VAIN_NS UINT64_C(2000000000)	/* the same before a pages heap grows: only memory is at stake */
#define SLICE_NS UINT64_C(10000000)	/* that a turn of a wait counts at most (gm_passed_ns) */
#define CALL_NS UINT64_C(1000000000)	/* likewise, a call of the driver that waits */
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

/* @of_streams: in a default pool's heap, too. */
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

/* The time since the last time, of which a stop of the process is @most_ns at most. */
static uint64_t pass(struct gm_cache_await *await, uint64_t most_ns)
{
	uint64_t passed = gm_passed_ns(&await->at_ns, most_ns);

	await->left_ns -= passed < await->left_ns ? passed : await->left_ns;
	return passed;
}

/* Does anything that this device's heaps were given back wait? @pages: what they have idle, too. 0: no; 1: for the
 * GPU; -EAGAIN: for the end of a capture alone. */
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
	if (r <= 0 && gm_cache_back_waits(domain))	/* idle segments, behind the GPU's work */
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

/* Until enough is complete, nothing waits any more, or the GPU made no progress for too long. What
 * was in its way then is not waited for as long again. False: nothing waited at all. */
static bool wait_for_gpu(struct gm_cache_await *await, uint8_t domain, uint64_t bytes,
			 bool streams)
{
	static _Atomic(uint64_t) stalled = UINT64_MAX;	/* the progress at which it stood still */
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
	/* Others free and complete without end: only what waited, or had just come, is a reason. */
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
		if (pool)		/* its streams may be past their frees, and another one stand still */
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
		gm_order_tell_frees();
}
