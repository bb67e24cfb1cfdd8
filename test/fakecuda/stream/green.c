/*
 * green.c - green contexts: a share of a device's multiprocessors with streams of its own.
 *
 * Shares have no effect on time here. What counts for a memory library is whose streams and whose
 * memory they are: the primary context's, which cuCtxRecordEvent and cuCtxSynchronize cover too.
 * Lock: fc.lock.
 */
#include "test/fakecuda/context.h"
#include "test/fakecuda/stream/event.h"
#include "test/fakecuda/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#define SM_COUNT 132
#define SM_GROUP 8		/* smallest partition, and what counts are multiples of */

struct fc_green {
	CUgreenCtx handle;
	struct fc_ctx *ctx;	/* what cuCtxFromGreenCtx gives; counted */
	CUdevResource resource;
	uint64_t id;
};

struct desc {
	CUdevResource resource;
};

static void fill_sm(CUdevResource *res, unsigned int count)
{
	memset(res, 0, sizeof(*res));
	res->type = CU_DEV_RESOURCE_TYPE_SM;
	res->sm.smCount = count;
	res->sm.minSmPartitionSize = SM_GROUP;
	res->sm.smCoscheduledAlignment = SM_GROUP;
}

CUresult fc_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
				   CUdevResourceType type)
{
	struct fc_device *dev;
	CUresult r = fc_device_get(device, &dev);

	if (r)
		return r;
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	fill_sm(resource, SM_COUNT);
	return CUDA_SUCCESS;
}

CUresult fc_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
					const CUdevResource *input, CUdevResource *remaining,
					unsigned int useFlags, unsigned int minCount)
{
	unsigned int size = (minCount + SM_GROUP - 1) / SM_GROUP * SM_GROUP, groups;

	(void)useFlags;
	if (!nbGroups || !input)
		return CUDA_ERROR_INVALID_VALUE;
	if (input->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	if (!size)
		size = SM_GROUP;
	groups = input->sm.smCount / size;
	if (!groups)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	if (result) {
		if (*nbGroups < groups)
			groups = *nbGroups;
		for (unsigned int i = 0; i < groups; i++)
			fill_sm(&result[i], size);
		if (remaining)
			fill_sm(remaining, input->sm.smCount - groups * size);
		if (remaining && !remaining->sm.smCount)
			remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
	}
	*nbGroups = groups;
	return CUDA_SUCCESS;
}

CUresult fc_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
				      unsigned int nbResources)
{
	struct desc *d;

	if (!phDesc || !resources || nbResources != 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (resources[0].type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	d = malloc(sizeof(*d));
	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	d->resource = resources[0];
	*phDesc = fc_handle_new(FC_H_DESC, d);	/* lives as long as the driver: no destroy entry */
	if (!*phDesc)
		free(d);
	return *phDesc ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fc_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			     unsigned int flags)
{
	struct desc *d = fc_handle_get(desc, FC_H_DESC);
	struct fc_device *device;
	struct fc_ctx *primary;
	struct fc_green *g;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!phCtx || !d || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_primary_get(device, &primary);
	if (r)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->ctx = fc_ctx_new(device, 0, primary);
	g->handle = g->ctx ? fc_handle_new(FC_H_GREEN, g) : NULL;
	if (!g->handle) {
		if (g->ctx)
			fc_ctx_drop(g->ctx);
		free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	g->ctx->green = g;
	g->resource = d->resource;
	g->id = ++fc.next_id;
	device->primary_refs++;
	*phCtx = g->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct fc_green *g = fc_handle_get(hCtx, FC_H_GREEN);
	struct fc_device *dev;
	CUresult r;

	if (!g)
		return CUDA_ERROR_INVALID_CONTEXT;
	dev = g->ctx->dev;
	fc_handle_drop(hCtx);
	for (struct fc_stream *s = g->ctx->base->streams, *next; s; s = next) {
		next = s->next;
		if (s->green == g) {
			s->green = NULL;
			fc_stream_destroy(s);
		}
	}
	r = fc_ctx_end(g->ctx, "cuGreenCtxDestroy");
	g->ctx->green = NULL;
	fc_ctx_drop(g->ctx);
	free(g);
	if (dev->primary_refs)
		fc_cuDevicePrimaryCtxRelease_v2(dev->ordinal);
	return r;
}

CUresult fc_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	struct fc_green *g = fc_handle_get(hCtx, FC_H_GREEN);

	if (!pContext || !g)
		return pContext ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	*pContext = g->ctx->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
				   int priority)
{
	struct fc_green *g = fc_handle_get(greenCtx, FC_H_GREEN);

	if (!g)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!(flags & CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	return fc_stream_make(g->ctx, g, flags, priority, phStream);
}
