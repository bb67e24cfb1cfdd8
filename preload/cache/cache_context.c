/*
 * cache_context.c - what a call of the driver's for a heap needs: its context, the growth lock, and the streams on
 * which memory goes back; and what happens when the context ends (see cache_internal.h).
 *
 * A segment is given back by cuMemFreeAsync on a stream of our own with nothing on it: cuMemFree
 * would wait for everything the device was given, also for what was submitted after the last use
 * of the segment, and a program may hang there that ends without us. (Seen on an H200: 6 us, and
 * the memory is free after a wait for that stream alone, whatever the other streams do.)
 *
 * The memory of a default pool's heap outlives contexts, the streams that segments go back on do not: such a heap
 * works in one context or another, its home.
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one for homes, never held over a driver call. Of @own, which whoever holds the growth lock uses, it is
 * not: before a home is left no more of that is begun (gm_cache_context_ending).
 */
#include <sched.h>

#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"

#define BACK_NS UINT64_C(20000000)	/* for segments on their way back; cache_await.c waits longer */
#define ENDING_NS UINT64_C(2000000000)	/* for a growth in flight, before a context ends */
#define GROWTH_LIMIT_NS UINT64_C(60000000000)	/* the driver's calls may take long */

_Atomic(uint32_t) gm_cache_unusual = GM_CACHE_OFF;
__thread struct gm_cache_request gm_cache_request;
struct gm_page_map *gm_cache_page_map;

static struct gm_lock growth[GM_MAX_DEVICES];
static _Atomic(uint64_t) back_count;	/* times that what was on its way back had come there */

void gm_cache_context_start(void)
{
	for (unsigned int i = 0; i < GM_MAX_DEVICES; i++)
		growth[i].rank = GM_RANK_GROWTH;
}

/* ---- around driver calls ---- */

CUresult gm_cache_permission(const struct gm_cache_heap *heap)
{
	if (gm_rule(GM_RULE_CAPTURE_PERMISSION) && gm_capturing())
		return gm_capture_permission(heap->at.home);
	return CUDA_SUCCESS;
}

bool gm_cache_push_context(CUcontext handle)
{
	CUcontext current = NULL;

	return handle && !GM_REAL(cuCtxGetCurrent)(&current) && current != handle &&
	       !GM_REAL(cuCtxPushCurrent_v2)(handle);
}

void gm_cache_pop_context(bool pushed)
{
	CUcontext ignored;

	if (pushed)
		GM_REAL(cuCtxPopCurrent_v2)(&ignored);
}

struct gm_visit gm_visit_begin(const struct gm_cache_heap *heap)
{
	struct gm_visit visit = { .relaxed = gm_relax() };

	visit.pushed = gm_cache_push_context(heap->at.handle);
	return visit;
}

void gm_visit_end(struct gm_visit *visit)
{
	gm_cache_pop_context(visit->pushed);
	gm_unrelax(&visit->relaxed);
}

CUstream gm_cache_private_stream(CUstream *stream)
{
	if (!*stream && GM_REAL(cuStreamCreate)(stream, CU_STREAM_NON_BLOCKING))
		*stream = NULL;
	return *stream;
}

CUstream gm_cache_back_stream(struct gm_cache_heap *heap)
{
	return gm_cache_private_stream(&heap->at.own.back);
}

bool gm_cache_growth_lock(uint8_t domain)
{
	return gm_lock_once(&growth[domain], GROWTH_LIMIT_NS);
}

bool gm_cache_growth_try(uint8_t domain)
{
	return gm_lock_try(&growth[domain]);
}

bool gm_cache_growth_waits(uint8_t domain)
{
	return gm_lock_within(&growth[domain], ENDING_NS);
}

void gm_cache_growth_unlock(uint8_t domain)
{
	gm_unlock(&growth[domain]);
}

/* ---- memory on its way back ---- */

/* @stream is synchronised as soon as it is idle: what was freed in its order the driver keeps until
 * then. False: it was not within @limit_ns, of which a stop of the process is an eighth at most. */
static bool settle_stream(CUstream stream, uint64_t limit_ns)
{
	uint64_t at = gm_now_ns(), waited = 0;
	CUresult result;

	while ((result = GM_REAL(cuStreamQuery)(stream)) == CUDA_ERROR_NOT_READY &&
	       (waited += gm_passed_ns(&at, limit_ns / 8)) < limit_ns)
		sched_yield();
	if (!result)
		GM_REAL(cuStreamSynchronize)(stream);
	return result != CUDA_ERROR_NOT_READY;
}

/* With an end: what is freed early on one thread may wait for what this one is about to submit. */
void gm_cache_back_wait(struct gm_cache_heap *heap, uint64_t limit_ns)
{
	uint32_t given = heap->at.going_back;
	struct gm_visit visit;

	if (heap->ending || given == heap->at.came_back)
		return;
	if (!heap->at.own.back) {		/* it went with its context, and what was on it is back */
		heap->at.came_back = given;
		return;
	}
	visit = gm_visit_begin(heap);
	if (settle_stream(heap->at.own.back, limit_ns)) {
		heap->at.came_back = given;
		back_count++;
	}
	gm_visit_end(&visit);
}

void gm_cache_back_done(uint8_t domain)
{
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		gm_cache_back_wait(heap, BACK_NS);
}

void gm_cache_back_look(uint8_t domain)
{
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));) {
		/* Else its context may end meanwhile. Who has the lock looks for itself. */
		if (heap->at.going_back == heap->at.came_back || !gm_cache_growth_try(heap->domain))
			continue;
		gm_cache_back_wait(heap, 0);
		gm_cache_growth_unlock(heap->domain);
	}
}

bool gm_cache_back_waits(uint8_t domain)
{
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		if (!heap->ending && heap->at.going_back != heap->at.came_back)
			return true;
	return false;
}

uint64_t gm_cache_back_progress(void)
{
	return back_count;
}

/* ---- homes ---- */

static struct gm_lock lock;

/* Some living context of the device; NULL: there is none. */
static CUcontext any_home(uint8_t domain, uint32_t *ret_id)
{
	enum gm_context_role role;
	CUcontext handle = NULL;
	CUdevice device;
	uint32_t id = 0;

	while (!handle && (id = gm_context_next(id)) != 0) {
		handle = gm_context_handle(id, &role, &device);
		if (handle && device != domain)
			handle = NULL;
	}
	*ret_id = id;
	return handle;
}

/* The first that comes is it: what two say at the same moment is never mixed. */
static void settle(struct gm_cache_heap *heap, uint32_t context, CUcontext handle)
{
	if (!handle || !gm_lock(&lock))
		return;
	if (!heap->at.handle) {
		heap->at.home = context;
		heap->at.handle = handle;
	}
	gm_unlock(&lock);
}

void gm_cache_home_find(struct gm_cache_heap *heap)
{
	uint32_t id;
	CUcontext handle = any_home(heap->domain, &id);

	settle(heap, id, handle);
}

void gm_cache_home_here(struct gm_cache_heap *heap, uint32_t context)
{
	settle(heap, context, gm_context_owner(context));
}

bool gm_cache_home_moves(struct gm_cache_heap *heap)
{
	struct gm_cache_home was;
	uint32_t id;
	CUcontext handle = any_home(heap->domain, &id);

	if (!handle || !gm_lock(&lock))
		return false;
	was = heap->at.own;
	was.id = heap->at.home;
	heap->at.own = heap->at.left.id == id ? heap->at.left : (struct gm_cache_home){ 0 };
	heap->at.left = was;
	heap->at.home = id;
	heap->at.handle = handle;
	gm_unlock(&lock);
	return true;
}

/* Without the lock where it cannot be had: what has ended must not be used. */
void gm_cache_home_lost(struct gm_cache_heap *heap, uint32_t context)
{
	bool locked = gm_lock(&lock);

	if (heap->at.left.id == context)
		heap->at.left = (struct gm_cache_home){ 0 };
	if (heap->at.home == context) {
		heap->at.own = (struct gm_cache_home){ 0 };
		heap->at.home = 0;
		heap->at.handle = NULL;
		heap->ending = false;
		heap->faulted = 0;
	}
	if (locked)
		gm_unlock(&lock);
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
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, where.domain));)
		if (heap->context == where.context || heap->kind == GM_KIND_POOL)
			heap->faulted = (uint32_t)result;
}
