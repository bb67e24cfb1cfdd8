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

CUresult fc_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			      const CUDA_TEXTURE_DESC *pTexDesc,
			      const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	return pTexDesc ? create(pTexObject, pResDesc, pTexDesc, pResViewDesc) :
			  CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	if (pResDesc && pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	return create(pSurfObject, pResDesc, NULL, NULL);
}
