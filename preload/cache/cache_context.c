/*
 * cache_context.c - the context, the growth lock and the private streams with which a heap calls the driver, and what
 * happens when the context ends (see cache_internal.h).
 *
 * A segment is given back by cuMemFreeAsync on an empty private stream. cuMemFree would wait for everything that the
 * device was given, even for work submitted after the last use of the segment, and could so hang a program that ends
 * without us. (Seen on an H200: 6 us, and the memory is free after a wait for that stream alone, whatever the other
 * streams do.)
 *
 * The memory of a default pool's heap outlives contexts, but the streams on which its segments are freed do not. Such
 * a heap works in one context of its device at a time, its home.
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one for homes, never held over a driver call. It does not guard @own, which the holder of the growth lock uses:
 * before a heap leaves its home, no more such use begins (gm_cache_context_ending).
 */
#include <sched.h>

#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"

#define BACK_NS UINT64_C(20000000)	/* longest wait for segments on their way back; cache_await.c waits longer */
#define ENDING_NS UINT64_C(2000000000)	/* longest wait for a growth in flight before a context ends */
#define GROWTH_LIMIT_NS UINT64_C(60000000000)	/* the driver's calls may take long */

_Atomic(uint32_t) gm_cache_unusual = GM_CACHE_OFF;
__thread struct gm_cache_thread_request gm_cache_request;
struct gm_page_map *gm_cache_page_map;

static struct gm_lock growth[GM_MAX_DEVICES];
static _Atomic(uint64_t) back_count;	/* how often segments on their way back have arrived */

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

/* Wait until @stream is idle, and then synchronise it, because the driver keeps memory that was freed in its order
 * until then. Returns false if the stream was not idle within @limit_ns. A stop of the process counts as an eighth of
 * that at most. */
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

/* The wait has an end, because the frees on that stream may wait for work that this thread is about to submit. */
void gm_cache_back_wait(struct gm_cache_heap *heap, uint64_t limit_ns)
{
	uint32_t given = heap->at.going_back;
	struct gm_visit visit;

	if (heap->ending || given == heap->at.came_back)
		return;
	if (!heap->at.own.back) {		/* the stream ended with its context, so its frees are complete */
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
		/* The lock keeps the context from ending meanwhile. If another thread holds it, that thread looks
		 * itself. */
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

/* Return any living context of the device, and its id; NULL: there is none. */
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

/* Set the heap's home if it has none. If two threads set it at the same time, the first one wins, so that id and
 * handle always match. */
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

/* Goes on without the lock if it cannot be taken, because a context that has ended must not be used. */
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

/* Does @result stay with the context, so that every later call in it returns it again? */
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
