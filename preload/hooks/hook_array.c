/*
 * hook_array.c - CUDA arrays and mipmapped arrays. Their address in the record is the handle.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/array_size.h"
#include "preload/order/capture.h"
#include "preload/hooks/record.h"
#include "preload/hooks/retry.h"

static const CUDA_ARRAY3D_DESCRIPTOR *flat(const CUDA_ARRAY_DESCRIPTOR *d,
					   CUDA_ARRAY3D_DESCRIPTOR *ret)
{
	if (!d)
		return NULL;
	*ret = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = d->Width, .Height = d->Height,
					  .Format = d->Format, .NumChannels = d->NumChannels };
	return ret;
}

static const CUDA_ARRAY3D_DESCRIPTOR *flat_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *d,
					      CUDA_ARRAY3D_DESCRIPTOR *ret)
{
	if (!d)
		return NULL;
	*ret = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = d->Width, .Height = d->Height,
					  .Format = d->Format, .NumChannels = d->NumChannels };
	return ret;
}

static const CUDA_ARRAY3D_DESCRIPTOR *solid_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *d,
					       CUDA_ARRAY3D_DESCRIPTOR *ret)
{
	if (!d)
		return NULL;
	*ret = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = d->Width, .Height = d->Height,
					  .Depth = d->Depth, .Format = d->Format,
					  .NumChannels = d->NumChannels, .Flags = d->Flags };
	return ret;
}

/* What the descriptor says is what was asked for; the driver knows what it takes. 0: the array has
 * no memory of its own (sparse, deferred). */
static CUresult array_end(struct gm_call *call, CUresult result, CUarray array)
{
	uint64_t size = call->alloc.requested;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	struct gm_relaxed relaxed;

	if (!result && size) {
		relaxed = gm_relax();
		if (!GM_REAL(cuArrayGetMemoryRequirements)(&needs, array, call->where.domain))
			size = needs.size;
		gm_unrelax(&relaxed);
	}
	return gm_alloc_end(call, result, GM_MAP_ARRAY, size ? (uintptr_t)array : 0, size);
}

static CUresult mipmapped_end(struct gm_call *call, CUresult result, CUmipmappedArray array)
{
	uint64_t size = call->alloc.requested;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	struct gm_relaxed relaxed;

	if (!result && size) {
		relaxed = gm_relax();
		if (!GM_REAL(cuMipmappedArrayGetMemoryRequirements)(&needs, array,
								    call->where.domain))
			size = needs.size;
		gm_unrelax(&relaxed);
	}
	return gm_alloc_end(call, result, GM_MAP_ARRAY, size ? (uintptr_t)array : 0, size);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuArrayCreate_v2, pHandle, pAllocateArray);
	gm_alloc_begin(&call, "cuArrayCreate_v2", GM_KIND_ARRAY,
		       gm_array_bytes(flat(pAllocateArray, &desc), 1), GM_CALLER);
	result = GM_TRY(cuArrayCreate_v2, pHandle, pAllocateArray);
	return array_end(&call, result, result ? NULL : *pHandle);
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuArrayCreate, pHandle, pAllocateArray);
	gm_alloc_begin(&call, "cuArrayCreate", GM_KIND_ARRAY,
		       gm_array_bytes(flat_v1(pAllocateArray, &desc), 1), GM_CALLER);
	result = GM_TRY(cuArrayCreate, pHandle, pAllocateArray);
	return array_end(&call, result, result ? NULL : *pHandle);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuArray3DCreate_v2, pHandle, pAllocateArray);
	gm_alloc_begin(&call, "cuArray3DCreate_v2", GM_KIND_ARRAY,
		       gm_array_bytes(pAllocateArray, 1), GM_CALLER);
	result = GM_TRY(cuArray3DCreate_v2, pHandle, pAllocateArray);
	return array_end(&call, result, result ? NULL : *pHandle);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuArray3DCreate, pHandle, pAllocateArray);
	gm_alloc_begin(&call, "cuArray3DCreate", GM_KIND_ARRAY,
		       gm_array_bytes(solid_v1(pAllocateArray, &desc), 1), GM_CALLER);
	result = GM_TRY(cuArray3DCreate, pHandle, pAllocateArray);
	return array_end(&call, result, result ? NULL : *pHandle);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				unsigned int numMipmapLevels)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMipmappedArrayCreate, pHandle, pMipmappedArrayDesc, numMipmapLevels);
	gm_alloc_begin(&call, "cuMipmappedArrayCreate", GM_KIND_ARRAY,
		       gm_array_bytes(pMipmappedArrayDesc, numMipmapLevels), GM_CALLER);
	result = GM_TRY(cuMipmappedArrayCreate, pHandle, pMipmappedArrayDesc, numMipmapLevels);
	return mipmapped_end(&call, result, result ? NULL : *pHandle);
}

CUresult cuArrayDestroy(CUarray hArray)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuArrayDestroy, hArray);
	gm_free_begin(&call, GM_MAP_ARRAY, (uintptr_t)hArray, NULL);
	result = GM_REAL(cuArrayDestroy)(hArray);
	return gm_free_end(&call, result);
}

/* A mipmapped array mapped from external memory is one of its mappings (hook_external.c). */
CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMipmappedArrayDestroy, hMipmappedArray);
	gm_free_begin(&call, GM_MAP_ARRAY, (uintptr_t)hMipmappedArray, NULL);
	result = GM_REAL(cuMipmappedArrayDestroy)(hMipmappedArray);
	return gm_free_end(&call, result);
}
