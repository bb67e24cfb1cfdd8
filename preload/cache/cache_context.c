/*
 * cache_context.c - the context that a default pool's heap works in: its memory outlives contexts, the
 * streams that segments go back on do not (see cache_internal.h).
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one, never held over a driver call. Of @own, which whoever holds the growth lock uses, it is
 * not: before a home is left no more of that is begun (gm_cache_context_ending).
 */
#include "preload/cache/cache_internal.h"

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
	if (!heap->handle) {
		heap->home = context;
		heap->handle = handle;
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
	was = heap->own;
	was.id = heap->home;
	heap->own = heap->left.id == id ? heap->left : (struct gm_cache_home){ 0 };
	heap->left = was;
	heap->home = id;
	heap->handle = handle;
	gm_unlock(&lock);
	return true;
}

/* Without the lock where it cannot be had: what has ended must not be used. */
void gm_cache_home_lost(struct gm_cache_heap *heap, uint32_t context)
{
	bool locked = gm_lock(&lock);

	if (heap->left.id == context)
		heap->left = (struct gm_cache_home){ 0 };
	if (heap->home == context) {
		heap->own = (struct gm_cache_home){ 0 };
		heap->home = 0;
		heap->handle = NULL;
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
