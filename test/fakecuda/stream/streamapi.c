/*
 * streamapi.c - the entries that make streams and read or set what they are.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/stream/stream.h"

#include <string.h>

#define PRIORITY_LEAST 0
#define PRIORITY_GREATEST (-5)

static int clamp_priority(int priority)
{
	return priority > PRIORITY_LEAST ? PRIORITY_LEAST :
	       priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
}

CUresult fc_stream_make(struct fc_ctx *ctx, struct fc_green *green, unsigned int flags,
			int priority, CUstream *ret_handle)
{
	struct fc_stream *s;

	if (!ret_handle || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	s = fc_stream_new(ctx->base, flags, clamp_priority(priority));
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->green = green;
	s->handle = fc_handle_new(FC_H_STREAM, s);
	if (!s->handle) {
		fc_stream_destroy(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_handle = s->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	return r ? r : fc_stream_make(ctx, ctx->green, flags, priority, phStream);
}

CUresult fc_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return fc_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult fc_cuStreamDestroy_v2(CUstream hStream)
{
	struct fc_stream *s = fc_handle_get(hStream, FC_H_STREAM);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	fc_stream_destroy(s);
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetPriority(CUstream hStream, int *priority)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = s->priority;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = s->flags;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!streamId)
		return CUDA_ERROR_INVALID_VALUE;
	*streamId = s->id;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = s->ctx->dev->ordinal;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = s->ctx->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (leastPriority)
		*leastPriority = PRIORITY_LEAST;
	if (greatestPriority)
		*greatestPriority = PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
				   unsigned int flags)
{
	const unsigned int all = CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST | CU_MEM_ATTACH_SINGLE;
	struct fc_alloc *a = fc_alloc_find(dptr);
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!a || a->base != dptr || a->kind != FC_MEM_MANAGED || (flags & ~all) ||
	    (length && length != a->size))
		return CUDA_ERROR_INVALID_VALUE;
	return fc_stream_marker(s, "cuStreamAttachMemAsync", NULL);
}

void fc_stream_reset(void)
{
	for (struct fc_ctx *ctx = fc.ctxs; ctx; ctx = ctx->next)
		fc_stream_ctx_ended(ctx);
}
