/*
 * cache_back.c - segments of the default pools go back to the driver (see cache_heap.h).
 *
 * In the order of the stream that a segment was used on, while it can be named. Else behind
 * everything that the device was given so far; never with a wait of the host's. What cannot go back
 * just now (a capture forbids the event) is an orphan, and goes at a later flush or synchronise.
 *
 * Thread context: any, inside a hook. Lock: a leaf. Signal context: none. Fork:
 * gm_cache_orphans_forget.
 */
#include <string.h>

#include "preload/cache_heap.h"
#include "preload/order.h"

#define ORPHANS 1024u			/* more than fit stay with us */
#define TRIM_NS UINT64_C(1000000)	/* an idle stream's free takes a few microseconds */

static struct orphan { uint64_t address; uint32_t number; } orphans[ORPHANS];
static struct gm_lock orphans_lock;
static _Atomic(uint32_t) waiting;	/* how many orphans there are */

static void keep_orphan(const struct gm_cache_heap *heap, uint64_t address)
{
	if (!gm_lock(&orphans_lock))
		return;
	for (unsigned int i = 0; i < ORPHANS; i++)
		if (!orphans[i].address) {
			orphans[i] = (struct orphan){ address, heap->number };
			waiting++;
			break;
		}
	gm_unlock(&orphans_lock);
}

/* Of heap @number, or 0 for any one's. */
static struct orphan take_orphan(uint32_t number)
{
	struct orphan orphan = { 0 };

	if (!waiting || !gm_lock(&orphans_lock))
		return orphan;
	for (unsigned int i = 0; i < ORPHANS && !orphan.address; i++)
		if (orphans[i].address && (!number || orphans[i].number == number)) {
			orphan = orphans[i];
			orphans[i].address = 0;
			waiting--;
		}
	gm_unlock(&orphans_lock);
	return orphan;
}

/* @back comes after everything that context @handle was given so far. */
static bool wait_for_context(CUcontext handle, CUstream back)
{
	CUcontext ignored;
	CUevent event = NULL;
	bool done;

	if (GM_REAL(cuCtxPushCurrent_v2)(handle))
		return false;
	done = !GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) &&
	       gm_order_record_context(handle, event) &&
	       !GM_REAL(cuStreamWaitEvent)(back, event, 0);
	if (event)
		GM_REAL(cuEventDestroy_v2)(event);
	GM_REAL(cuCtxPopCurrent_v2)(&ignored);
	return done;
}

static bool free_behind_all(struct gm_cache_heap *heap, uint64_t address)
{
	CUstream back = gm_cache_private_stream(&heap->behind);
	enum gm_context_role role;
	bool done = back && !gm_capturing();
	struct orphan more;
	CUdevice device;

	for (uint32_t id = 0; done && (id = gm_context_next(id)) != 0;) {
		CUcontext handle = gm_context_handle(id, &role, &device);

		if (handle && device == heap->domain)
			done = wait_for_context(handle, back);
	}
	done = done && !GM_REAL(cuMemFreeAsync)(address, back);
	while (done && (more = take_orphan(heap->number)).address)
		GM_REAL(cuMemFreeAsync)(more.address, back);
	return done;
}

void gm_cache_pool_segment_free(struct gm_cache_heap *heap, uint64_t address, uint64_t key)
{
	CUstream stream;

	if (gm_cache_stream_find(key, &stream) && !GM_REAL(cuMemFreeAsync)(address, stream)) {
		if (gm_cache_request.trims && !gm_capturing())
			gm_cache_settle_stream(stream, TRIM_NS);
		return;
	}
	/* Every context of the device has ended, and with them all that could use it. */
	if (!heap->handle && !GM_REAL(cuMemFree_v2)(address))
		return;
	if (!heap->handle || !free_behind_all(heap, address))
		keep_orphan(heap, address);
}

void gm_cache_orphans_back(void)
{
	for (uint32_t n = waiting; n; n--) {
		struct orphan orphan = take_orphan(0);
		struct gm_cache_heap *heap = gm_cache_heap_numbered(orphan.number);
		struct gm_visit visit;

		if (!orphan.address || !heap)
			return;
		if (!heap->handle)
			gm_cache_find_home(heap);
		visit = gm_visit_begin(heap);
		gm_cache_pool_segment_free(heap, orphan.address, 0);
		__atomic_store_n((uint32_t *)&heap->going_back, 1, __ATOMIC_RELEASE);
		gm_visit_end(&visit);
	}
}

void gm_cache_orphans_forget(void)
{
	memset(orphans, 0, sizeof(orphans));
	orphans_lock = (struct gm_lock){ 0 };
	waiting = 0;
}
