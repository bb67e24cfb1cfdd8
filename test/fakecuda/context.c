/*
 * context.c - contexts: their life, and each thread's stack of current ones.
 *
 * A primary context keeps its object and handle for ever; retain, release and reset make it active
 * and inactive. Any use of an inactive or destroyed context that is still current gives 709.
 * A thread's stack, and its per-thread default streams, go when the thread ends.
 *
 * Lock: fc.lock; the thread-specific destructor takes it itself.
 */
#include "test/fakecuda/context.h"

#include <stdlib.h>

#include "test/fakecuda/stream/stream.h"

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

/* ---- threads ---- */

static void drop_stack(void)
{
	while (fc_tls.n_stack)
		fc_ctx_put(fc_tls.stack[--fc_tls.n_stack]);
	free(fc_tls.stack);
	fc_tls.stack = NULL;
}

static void thread_ends(void *unused)
{
	(void)unused;
	if (fc_forked())
		return;
	fc_lock();
	fc_stream_thread_ended(fc_tls.thread_id);
	drop_stack();
	fc_unlock();
}

static void make_key(void)
{
	pthread_key_create(&thread_key, thread_ends);
}

uint64_t fc_thread_id(void)
{
	static uint64_t last;

	if (!fc_tls.thread_id) {
		pthread_once(&thread_once, make_key);
		pthread_setspecific(thread_key, &fc_tls);
		fc_tls.thread_id = ++last;
	}
	return fc_tls.thread_id;
}

/* ---- objects ---- */

struct fc_ctx *fc_ctx_new(struct fc_device *dev, unsigned int flags, struct fc_ctx *base)
{
	struct fc_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->handle = fc_handle_new(FC_H_CTX, ctx);
	if (!ctx->handle) {
		free(ctx);
		return NULL;
	}
	ctx->refs = 1;
	ctx->dev = dev;
	ctx->id = ++fc.next_id;
	ctx->flags = flags;
	ctx->api_version = 3020;
	ctx->active = true;
	ctx->base = base ? fc_ctx_ref(base) : ctx;
	ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 6 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
	ctx->next = fc.ctxs;
	ctx->prevp = &fc.ctxs;
	if (fc.ctxs)
		fc.ctxs->prevp = &ctx->next;
	fc.ctxs = ctx;
	return ctx;
}

struct fc_ctx *fc_ctx_ref(struct fc_ctx *ctx)
{
	ctx->refs++;
	return ctx;
}

void fc_ctx_put(struct fc_ctx *ctx)
{
	if (!ctx || --ctx->refs)
		return;
	*ctx->prevp = ctx->next;
	if (ctx->next)
		ctx->next->prevp = ctx->prevp;
	if (ctx->base != ctx)
		fc_ctx_put(ctx->base);
	free(ctx);
}

CUresult fc_ctx_get(CUcontext h, struct fc_ctx **ret_ctx)
{
	struct fc_ctx *ctx = fc_handle_get(h, FC_H_CTX);

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx->active)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult fc_ctx_current(struct fc_ctx **ret_ctx)
{
	struct fc_ctx *ctx;

	if (!fc_tls.n_stack)
		return CUDA_ERROR_INVALID_CONTEXT;
	ctx = fc_tls.stack[fc_tls.n_stack - 1];
	if (!ctx->active)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_ctx = ctx;
	return ctx->base->sticky;
}

CUresult fc_ctx_push(struct fc_ctx *ctx)
{
	struct fc_ctx **grown;

	fc_thread_id();
	grown = realloc(fc_tls.stack, (fc_tls.n_stack + 1) * sizeof(struct fc_ctx *));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fc_tls.stack = grown;
	fc_tls.stack[fc_tls.n_stack++] = fc_ctx_ref(ctx);
	return CUDA_SUCCESS;
}

CUresult fc_ctx_end(struct fc_ctx *ctx, const char *why)
{
	CUresult r = CUDA_SUCCESS;

	if (!ctx->active)
		return CUDA_SUCCESS;
	fc_ctx_ref(ctx);
	if (ctx->base == ctx) {
		r = fc_wait_ctx(ctx, why);
		fc_graph_ctx_ended(ctx);
		fc_event_ctx_ended(ctx);
		fc_module_ctx_ended(ctx);
		fc_array_ctx_ended(ctx);
		fc_external_ctx_ended(ctx);
		fc_stream_ctx_ended(ctx);
		fc_mem_ctx_ended(ctx);
		fc_pool_ctx_ended(ctx);
		fc_op_put(ctx->barrier);
		ctx->barrier = NULL;
		ctx->peers = 0;
		ctx->sticky = CUDA_SUCCESS;
	}
	ctx->active = false;
	fc_ctx_put(ctx);
	return r;
}

void fc_ctx_drop(struct fc_ctx *ctx)
{
	fc_handle_drop(ctx->handle);
	fc_ctx_put(ctx);
}

/* ---- create and destroy ---- */

static CUresult create(CUcontext *pctx, unsigned int flags, CUdevice dev, unsigned int version)
{
	const unsigned int known = CU_CTX_FLAGS_MASK;
	struct fc_device *device;
	struct fc_ctx *ctx;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!pctx || (flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	if (device->faulted)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	ctx = fc_ctx_new(device, flags, NULL);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->api_version = version;
	r = fc_ctx_push(ctx);
	if (r) {
		fc_ctx_drop(ctx);
		return r;
	}
	*pctx = ctx->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev, 3010);
}

CUresult fc_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev, 3020);
}

CUresult fc_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			   unsigned int flags, CUdevice dev)
{
	if (numParams < 0 || (numParams && !paramsArray))
		return CUDA_ERROR_INVALID_VALUE;
	return create(pctx, flags, dev, 3020);
}

CUresult fc_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
			   unsigned int flags, CUdevice dev)
{
	(void)ctxCreateParams;
	return create(pctx, flags, dev, 3020);
}

static void pop_top(void)
{
	fc_ctx_put(fc_tls.stack[--fc_tls.n_stack]);
}

CUresult fc_cuCtxDestroy_v2(CUcontext ctx)
{
	struct fc_ctx *c;
	CUresult r = fc_ctx_get(ctx, &c);

	if (r)
		return r;
	if (c->primary || c->green)
		return CUDA_ERROR_INVALID_CONTEXT;
	fc_ctx_ref(c);
	r = fc_ctx_end(c, "cuCtxDestroy");
	if (fc_tls.n_stack && fc_tls.stack[fc_tls.n_stack - 1] == c)
		pop_top();
	if (fc_handle_get(ctx, FC_H_CTX) == c)	/* nobody else did meanwhile */
		fc_ctx_drop(c);
	fc_ctx_put(c);
	return r;
}

/* ---- the stack ---- */

CUresult fc_cuCtxPushCurrent_v2(CUcontext ctx)
{
	struct fc_ctx *c;
	CUresult r = fc_ctx_get(ctx, &c);

	return r ? r : fc_ctx_push(c);
}

CUresult fc_cuCtxPushCurrent(CUcontext ctx)
{
	return fc_cuCtxPushCurrent_v2(ctx);
}

CUresult fc_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	if (!fc_tls.n_stack)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (pctx)
		*pctx = fc_tls.stack[fc_tls.n_stack - 1]->handle;
	pop_top();
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxPopCurrent(CUcontext *pctx)
{
	return fc_cuCtxPopCurrent_v2(pctx);
}

CUresult fc_cuCtxSetCurrent(CUcontext ctx)
{
	struct fc_ctx *c = NULL;
	CUresult r = ctx ? fc_ctx_get(ctx, &c) : CUDA_SUCCESS;

	if (r)
		return r;
	if (c)
		fc_ctx_ref(c);
	if (fc_tls.n_stack)
		pop_top();
	if (!c)
		return CUDA_SUCCESS;
	r = fc_ctx_push(c);
	fc_ctx_put(c);
	return r;
}

CUresult fc_cuCtxGetCurrent(CUcontext *pctx)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = fc_tls.n_stack ? fc_tls.stack[fc_tls.n_stack - 1]->handle : NULL;
	return CUDA_SUCCESS;
}

void fc_context_reset(void)
{
	drop_stack();
	for (int i = 0; i < fc.n_devices; i++) {
		fc.devices[i].primary = NULL;
		fc.devices[i].primary_refs = 0;
	}
	for (struct fc_ctx *ctx = fc.ctxs, *next; ctx; ctx = next) {
		next = ctx->next;
		ctx->active = false;
		fc_op_put(ctx->barrier);
		ctx->barrier = NULL;
		if (fc_handle_get(ctx->handle, FC_H_CTX) == ctx)
			fc_ctx_drop(ctx);
	}
}
