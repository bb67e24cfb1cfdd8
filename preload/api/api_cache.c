/*
 * api_cache.c - the public functions of gpumem.h that change what the cache does, and the allocator
 * for PyTorch.
 *
 * Thread context: any, outside our hooks. Signal context: none. Fork: see api.c.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>

#include "preload/cache/cache_heap.h"

/* Driver calls that come back to our exported names pass through. */
static uintptr_t step_in(void)
{
	uintptr_t before = gm_inside;

	gm_inside = (uintptr_t)__builtin_frame_address(0);
	return before;
}

int64_t gpumem_empty_cache(void)
{
	uintptr_t before;
	uint64_t bytes;

	if (!gm_state_is_mine())
		return -ENODATA;
	before = step_in();
	bytes = gm_cache_flush(GM_DOMAIN_UNKNOWN);
	gm_inside = before;
	return (int64_t)bytes;
}

int gpumem_set_per_process_memory_fraction(double fraction, int device)
{
	size_t total = 0;
	uint64_t limit;

	if (!(fraction >= 0 && fraction <= 1) || device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_cache_on())
		return -ENOTSUP;
	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device))
		return -EINVAL;
	limit = (uint64_t)(fraction * (double)total);
	gm_cache_set_limit((uint8_t)device, limit ? limit : 1);
	gm_cache_set_fraction((uint8_t)device, fraction);
	return 0;
}

double gpumem_get_per_process_memory_fraction(int device)
{
	size_t total = 0;

	if (device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_state_is_mine())
		return -ENODATA;
	if (!gm_cache_on())
		return -ENOTSUP;
	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device) || !total)
		return -EINVAL;
	return gm_cache_fraction((uint8_t)device, total);
}

/* Both call the exported hooks where there is no cache, which record as they do for everybody. */
void *gpumem_torch_malloc(ssize_t size, int device, void *stream)
{
	struct gm_call call;
	CUdeviceptr ptr = 0;
	CUresult result;
	bool served;

	(void)device;
	if (size <= 0)
		return NULL;
	if (gm_inside || !gm_state_start() || !gm_cache_on())
		return cuMemAlloc_v2(&ptr, (size_t)size) ? NULL : (void *)(uintptr_t)ptr;
	step_in();
	gm_alloc_begin(&call, "gpumem_torch_malloc", GM_KIND_DEVICE, (uint64_t)size, GM_CALLER);
	served = gm_cache_malloc_ordered(&call, &ptr, stream, &result);
	if (!served) {
		result = GM_REAL(cuMemAlloc_v2)(&ptr, (size_t)size);
		result = gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : ptr,
				      (uint64_t)size);
	}
	return result ? NULL : (void *)(uintptr_t)ptr;
}

void gpumem_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	CUresult result;

	(void)size;
	(void)device;
	if (!ptr)
		return;
	if (gm_inside || !gm_state_start() || !gm_cache_on()) {
		cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
		return;
	}
	step_in();
	if (gm_cache_free_async((CUdeviceptr)(uintptr_t)ptr, stream, false, &result))
		return;
	gm_inside = 0;
	cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
}
