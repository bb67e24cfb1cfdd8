/*
 * texture.c - texture and surface objects, tensor maps: descriptions kept and given back. No kernel
 * here samples a texture; texture references went with CUDA 12. Lock: fc.lock.
 */
#include "test/fakecuda/state.h"

#include <stdlib.h>
#include <string.h>

struct object {
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view, surface;
};

static bool good(const CUDA_RESOURCE_DESC *d)
{
	if (!d || d->flags)
		return false;
	switch (d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return fc_handle_get(d->res.array.hArray, FC_H_ARRAY);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return fc_handle_get(d->res.mipmap.hMipmappedArray, FC_H_MIPMAP);
	case CU_RESOURCE_TYPE_LINEAR:
		return fc_alloc_find(d->res.linear.devPtr);
	case CU_RESOURCE_TYPE_PITCH2D:
		return fc_alloc_find(d->res.pitch2D.devPtr);
	default:
		return false;
	}
}

static CUresult create(unsigned long long *ret_id, const CUDA_RESOURCE_DESC *res,
		       const CUDA_TEXTURE_DESC *tex, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct object *o;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!ret_id || !good(res))
		return CUDA_ERROR_INVALID_VALUE;
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->resource = *res;
	o->surface = !tex;
	if (tex)
		o->texture = *tex;
	o->has_view = view;
	if (view)
		o->view = *view;
	*ret_id = (uintptr_t)fc_handle_new(FC_H_TEXTURE, o);
	if (*ret_id)
		return CUDA_SUCCESS;
	free(o);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct object *get(unsigned long long id, bool surface)
{
	struct object *o = fc_handle_get((void *)(uintptr_t)id, FC_H_TEXTURE);

	return o && o->surface == surface ? o : NULL;
}

static CUresult destroy(unsigned long long id, bool surface)
{
	struct object *o = get(id, surface);

	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	fc_handle_drop((void *)(uintptr_t)id);
	free(o);
	return CUDA_SUCCESS;
}

CUresult fc_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			      const CUDA_TEXTURE_DESC *pTexDesc,
			      const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	return pTexDesc ? create(pTexObject, pResDesc, pTexDesc, pResViewDesc) :
			  CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuTexObjectDestroy(CUtexObject texObject)
{
	return destroy(texObject, false);
}

CUresult fc_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	struct object *o = get(texObject, false);

	if (!o || !pResDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pResDesc = o->resource;
	return CUDA_SUCCESS;
}

CUresult fc_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	struct object *o = get(texObject, false);

	if (!o || !pTexDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pTexDesc = o->texture;
	return CUDA_SUCCESS;
}

CUresult fc_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
					   CUtexObject texObject)
{
	struct object *o = get(texObject, false);

	if (!o || !pResViewDesc || !o->has_view)
		return CUDA_ERROR_INVALID_VALUE;
	*pResViewDesc = o->view;
	return CUDA_SUCCESS;
}

CUresult fc_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	if (pResDesc && pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	return create(pSurfObject, pResDesc, NULL, NULL);
}

CUresult fc_cuSurfObjectDestroy(CUsurfObject surfObject)
{
	return destroy(surfObject, true);
}

CUresult fc_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	struct object *o = get(surfObject, true);

	if (!o || !pResDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pResDesc = o->resource;
	return CUDA_SUCCESS;
}

/* ---- tensor maps: 128 bytes a program passes to kernels by value; the address comes first ---- */

static CUresult encode(CUtensorMap *map, const void *address, cuuint32_t rank)
{
	uint64_t words[16] = { (uintptr_t)address, rank };

	_Static_assert(sizeof(words) == sizeof(*map), "a tensor map");
	if (!map || !address || (uintptr_t)address % 16 || rank < 1 || rank > 5)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(map, words, sizeof(words));
	return CUDA_SUCCESS;
}

CUresult fc_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
				   cuuint32_t tensorRank, void *globalAddress,
				   const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
				   const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
				   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				   CUtensorMapL2promotion l2Promotion,
				   CUtensorMapFloatOOBfill oobFill)
{
	(void)tensorDataType;
	(void)globalStrides;
	(void)interleave;
	(void)swizzle;
	(void)l2Promotion;
	(void)oobFill;
	if (!globalDim || !boxDim || !elementStrides)
		return CUDA_ERROR_INVALID_VALUE;
	return encode(tensorMap, globalAddress, tensorRank);
}

CUresult fc_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	uint64_t word = (uintptr_t)globalAddress;

	if (!tensorMap || !globalAddress || word % 16)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(tensorMap, &word, sizeof(word));
	return CUDA_SUCCESS;
}
