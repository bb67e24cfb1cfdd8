/*
 * hook_mem.c - linear memory: allocate, pitched, managed, free; with the 32-bit names of CUDA 2.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/cache/cache.h"
#include "preload/cache/cache_inside.h"
#include "preload/hooks/retry.h"

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	unsigned int tries = 0;
	struct gm_call call;
	CUresult result;
	bool refused;

	GM_ENTER(cuMemAlloc_v2, dptr, bytesize);
	gm_alloc_prepare(&call, "cuMemAlloc_v2", GM_KIND_DEVICE, bytesize, GM_CALLER);
	if (gm_cache_malloc(&call, dptr, &result))
		return result;
	refused = call.op;		/* the cache has tried, waited and flushed for it */
	gm_alloc_flight(&call);
	result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
	while (result && !refused && gm_cache_retry(result, &tries))
		result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr, bytesize);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAlloc, dptr, bytesize);
	gm_alloc_begin(&call, "cuMemAlloc", GM_KIND_DEVICE, bytesize, GM_CALLER);
	result = GM_TRY(cuMemAlloc, dptr, bytesize);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr, bytesize);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			    unsigned int ElementSizeBytes)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	gm_alloc_begin(&call, "cuMemAllocPitch_v2", GM_KIND_DEVICE, WidthInBytes * Height,
		       GM_CALLER);
	result = GM_TRY(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr,
			    result ? 0 : *pPitch * Height);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			 unsigned int Height, unsigned int ElementSizeBytes)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAllocPitch, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	gm_alloc_begin(&call, "cuMemAllocPitch", GM_KIND_DEVICE, (uint64_t)WidthInBytes * Height,
		       GM_CALLER);
	result = GM_TRY(cuMemAllocPitch, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr,
			    result ? 0 : (uint64_t)*pPitch * Height);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAllocManaged, dptr, bytesize, flags);
	gm_alloc_begin(&call, "cuMemAllocManaged", GM_KIND_MANAGED, bytesize, GM_CALLER);
	result = GM_TRY(cuMemAllocManaged, dptr, bytesize, flags);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr, bytesize);
}

static __attribute__((noinline)) CUresult free_inside(CUdeviceptr dptr)
{
	if (!gm_inside_covers(dptr))
		return GM_REAL(cuMemFree_v2)(dptr);
	return gm_inside_freed(dptr, GM_REAL(cuMemFree_v2)(GM_NOBODYS));
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct gm_call call;
	CUresult result;

	if (!gm_enter(false))
		return free_inside(dptr);
	if (gm_cache_free(dptr, GM_CALLER, &result))
		return result;
	gm_free_begin(&call, GM_MAP_ADDRESS, dptr, NULL);
	result = GM_REAL(cuMemFree_v2)(dptr);
	return gm_free_end(&call, result);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemFree, dptr);
	gm_free_begin(&call, GM_MAP_ADDRESS, dptr, NULL);
	result = GM_REAL(cuMemFree)(dptr);
	return gm_free_end(&call, result);
}
