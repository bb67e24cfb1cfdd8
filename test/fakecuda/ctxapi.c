/*
 * ctxapi.c - the entries that read, set or synchronise a context, and peer access.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/context.h"

/* NULL means the current one, in this call and the next. */
static CUresult ctx_or_current(CUcontext h, struct fc_ctx **ret_ctx)
{
	CUresult r;

	if (!h)
		return fc_ctx_current(ret_ctx);
	r = fc_ctx_get(h, ret_ctx);
	return r ? r : (*ret_ctx)->base->sticky;
}

/* The same for a call that stores what it is asked for at @result. */
static CUresult query(CUcontext h, struct fc_ctx **ret_ctx, const void *result)
{
	CUresult r = ctx_or_current(h, ret_ctx);

	return r || result ? r : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuCtxGetDevice(CUdevice *device)
{
	struct fc_ctx *ctx;
	CUresult r = query(NULL, &ctx, device);

	if (!r)
		*device = ctx->dev->ordinal;
	return r;
}

CUresult fc_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	struct fc_ctx *c;
	CUresult r = query(ctx, &c, device);

	if (!r)
		*device = c->dev->ordinal;
	return r;
}

CUresult fc_cuCtxSynchronize_v2(CUcontext ctx)
{
	struct fc_ctx *c, *base;
	CUresult r = ctx_or_current(ctx, &c);

	if (r)
		return r;
	base = fc_ctx_ref(c->base);
	r = fc_capture_check(FC_UNSAFE_CTX, base, NULL);
	r = r ? r : fc_wait_ctx(base, "cuCtxSynchronize");
	r = r ? r : base->sticky;
	fc_ctx_put(base);
	return r;
}

CUresult fc_cuCtxSynchronize(void)
{
	return fc_cuCtxSynchronize_v2(NULL);
}

CUresult fc_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	struct fc_ctx *c;
	CUresult r = query(ctx, &c, version);

	if (!r)
		*version = c->api_version;
	return r;
}

CUresult fc_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	struct fc_ctx *ctx;
	CUresult r = query(NULL, &ctx, pvalue);

	if (r)
		return r;
	if ((unsigned int)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*pvalue = ctx->limits[limit];
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if ((unsigned int)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	ctx->limits[limit] = value;
	return CUDA_SUCCESS;
}

/* ---- peers: every device reaches every other ---- */

CUresult fc_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	struct fc_device *a, *b;
	CUresult r = fc_device_get(dev, &a);

	r = r ? r : fc_device_get(peerDev, &b);
	if (r)
		return r;
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	*canAccessPeer = a != b;
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct fc_ctx *ctx, *peer;
	CUresult r = fc_ctx_current(&ctx);

	r = r ? r : fc_ctx_get(peerContext, &peer);
	if (r)
		return r;
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (peer->dev == ctx->dev)
		return CUDA_ERROR_INVALID_DEVICE;
	if (ctx->base->peers & (1ULL << peer->dev->ordinal))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	ctx->base->peers |= 1ULL << peer->dev->ordinal;
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	struct fc_ctx *ctx, *peer;
	CUresult r = fc_ctx_current(&ctx);

	r = r ? r : fc_ctx_get(peerContext, &peer);
	if (r)
		return r;
	if (!(ctx->base->peers & (1ULL << peer->dev->ordinal)))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	ctx->base->peers &= ~(1ULL << peer->dev->ordinal);
	return CUDA_SUCCESS;
}
