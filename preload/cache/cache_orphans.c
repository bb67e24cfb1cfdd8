/*
 * cache_orphans.c - segments of stream-ordered memory go back to the driver (see cache_internal.h).
 *
 * A segment is freed on an empty private stream when the host knows that the work which could touch it is complete.
 * So the driver has the segment at once, and no work waits for other work. A segment that leaves its heap before that
 * is known is an orphan. It goes back when the context of its stream has passed the point at which the segment left
 * (preload/order/timeline.h). Nothing waits for that.
 *
 * The last resort before a stream-ordered request is refused (@chains) frees segments behind the point where their
 * blocks were freed, complete or not. The driver may then make the stream of that request wait for the free, as it
 * does with freed memory of its own.
 *
 * Thread context: any, inside a hook. Lock: a leaf. Signal context: none.
 */
#include <string.h>

#include "preload/cache/cache_internal.h"
#include "preload/order/order.h"

#define LOOKING_TURNS 10000u
#define LOOKING_NS 20000
#define ORPHANS 1024u			/* segments that find no room stay in their heap */

/* @context: that of stream @key; 0: not known, so any context may have used it. */
static struct orphan { uint64_t address, bytes, point, key; uint32_t number, context; } orphans[ORPHANS];
static struct gm_lock orphans_lock;
static _Atomic(uint32_t) waiting;	/* number of orphans */
static _Atomic(bool) looking;		/* a thread is giving orphans back, or no thread may */

static void keep_orphan(const struct orphan *orphan)
{
	if (!gm_lock(&orphans_lock))
		return;
	for (unsigned int i = 0; i < ORPHANS; i++)
		if (!orphans[i].address) {
			orphans[i] = *orphan;
			waiting++;
			break;
		}
	gm_unlock(&orphans_lock);
}

bool gm_cache_orphans_room(void)
{
	return waiting + GM_MAX_DEVICES < ORPHANS;	/* one thread for each device may be giving back */
}

bool gm_cache_orphans_any(void)
{
	return waiting != 0;
}

static bool is_passed(const struct orphan *orphan)
{
	struct gm_timeline *time = gm_reuse_time(gm_order_reuse());

	return gm_timeline_stream_passed(time, orphan->key) >= orphan->point ||
	       gm_timeline_passed(time, orphan->context) >= orphan->point;
}

/* Take an orphan that is passed, of any heap; or, with @number not 0, any orphan of that heap. Its address is 0 if
 * there is none. */
static struct orphan take_orphan(uint32_t number)
{
	struct orphan orphan = { 0 };

	if (!waiting || !gm_lock(&orphans_lock))
		return orphan;
	for (unsigned int i = 0; i < ORPHANS && !orphan.address; i++)
		if (orphans[i].address && (number ? orphans[i].number == number : is_passed(&orphans[i]))) {
			orphan = orphans[i];
			orphans[i].address = 0;
			waiting--;
		}
	gm_unlock(&orphans_lock);
	return orphan;
}

/* ---- ways back ---- */

/* Free a segment that nothing can touch any more, on the heap's private stream. Returns false if that failed. */
static bool give_back(struct gm_cache_heap *heap, uint64_t address)
{
	CUstream back = gm_cache_back_stream(heap);

	if (!back || GM_REAL(cuMemFreeAsync)(address, back))
		return false;
	heap->at.going_back++;
	return true;
}

/* Return a private stream on which a free waits for the stream of @key. Prefer a stream that waits for no other one,
 * because frees on it may then complete before the work that other streams wait for. NULL: there is none. */
static CUstream stream_behind(struct gm_cache_heap *heap, uint64_t key)
{
	struct gm_cache_behind *behind = &heap->at.own.behind[0];

	for (unsigned int i = 0; i < GM_CACHE_BEHIND; i++) {
		behind = &heap->at.own.behind[i];
		if (!behind->stream || behind->key == key ||
		    GM_REAL(cuStreamQuery)(behind->stream) != CUDA_ERROR_NOT_READY)
			break;
	}
	behind->key = key;
	return gm_cache_private_stream(&behind->stream);
}

static bool free_behind(struct gm_cache_heap *heap, uint64_t address, uint64_t key)
{
	CUstream own = stream_behind(heap, key);

	return own && (gm_order_behind_stream(key, own, true) || gm_order_behind_all(own)) &&
	       !GM_REAL(cuMemFreeAsync)(address, own);
}

void gm_cache_ordered_segment_free(struct gm_cache_heap *heap, uint64_t address, uint64_t bytes,
				   uint64_t key)
{
	struct orphan orphan = { .address = address, .bytes = bytes, .number = heap->number, .key = key };
	struct gm_stream_track stream;

	/* No context of the device is left, so nothing can use the segment. */
	if (!heap->at.handle && !GM_REAL(cuMemFree_v2)(address))
		return;
	if (heap->at.handle && gm_reuse_stream_is_past(gm_order_reuse(), key) && give_back(heap, address))
		return;
	if (heap->at.handle && gm_cache_request.chains && free_behind(heap, address, key))
		return;
	if (gm_timeline_stream_copy(gm_reuse_time(gm_order_reuse()), key, &stream))
		orphan.context = stream.context;
	orphan.point = gm_timeline_free(gm_reuse_time(gm_order_reuse()));
	keep_orphan(&orphan);
}

/* ---- orphans ---- */

static uint64_t give_orphans_back(void)
{
	struct orphan orphan;
	uint64_t bytes = 0;

	for (uint32_t n = waiting; n && (orphan = take_orphan(0)).address; n--) {
		struct gm_cache_heap *heap = gm_cache_heap_by_number(orphan.number);
		struct gm_visit visit;
		bool done;

		if (!heap)
			continue;
		if (heap->ending) {
			keep_orphan(&orphan);
			continue;
		}
		if (!heap->at.handle)
			gm_cache_home_find(heap);
		visit = gm_visit_begin(heap);
		done = heap->at.handle ? give_back(heap, orphan.address)
				    : !GM_REAL(cuMemFree_v2)(orphan.address);
		gm_visit_end(&visit);
		if (!done)
			keep_orphan(&orphan);
		bytes += done ? orphan.bytes : 0;
	}
	return bytes;
}

uint64_t gm_cache_orphans_back(void)
{
	uint64_t bytes;

	if (!waiting || __atomic_exchange_n((bool *)&looking, true, __ATOMIC_ACQ_REL))
		return 0;
	gm_reuse_look(gm_order_reuse());
	bytes = give_orphans_back();
	__atomic_store_n((bool *)&looking, false, __ATOMIC_RELEASE);
	return bytes;
}

bool gm_cache_orphans_hold(void)
{
	for (unsigned int i = 0; i < LOOKING_TURNS; i++) {
		if (!__atomic_exchange_n((bool *)&looking, true, __ATOMIC_ACQ_REL))
			return true;
		gm_nap(LOOKING_NS);
	}
	return false;
}

void gm_cache_orphans_let_go(void)
{
	__atomic_store_n((bool *)&looking, false, __ATOMIC_RELEASE);
}

uint64_t gm_cache_orphans_chain(struct gm_cache_heap *heap)
{
	struct orphan orphan;
	uint64_t bytes = 0;

	for (uint32_t n = heap->ending ? 0 : waiting;
	     n && (orphan = take_orphan(heap->number)).address; n--) {
		struct gm_visit visit = gm_visit_begin(heap);
		bool done = heap->at.handle && free_behind(heap, orphan.address, 0);

		gm_visit_end(&visit);
		if (!done)
			keep_orphan(&orphan);
		bytes += done ? orphan.bytes : 0;
	}
	return bytes;
}
