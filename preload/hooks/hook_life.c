/*
 * hook_life.c - contexts come and go, and what dies with them.
 *
 * A context takes its cuMemAlloc, managed, array, pinned and imported memory along; memory of pools
 * and of VMM handles stays (seen on the GPU for cudaDeviceReset). Nothing is forgotten unless the
 * driver said that it is gone. In a process that exits, the snapshot is taken before the first
 * such call is made.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/order/capture.h"
#include "preload/order/context.h"
#include "preload/hooks/graph.h"
#include "preload/hooks/record.h"
#include "preload/hooks/retry.h"
#include "preload/hooks/sample.h"
#include "preload/triggers/exit.h"

/* Before the real call: what is free, and the exit snapshot, while everything is still there. */
static void before_end(void)
{
	uint64_t free_bytes, total_bytes;

	gm_sample_now(gm_where_now(), &free_bytes, &total_bytes);
	gm_exit_context_end();
}

static CUresult after_end(const struct gm_ending *ending, CUresult result, bool ended)
{
	gm_where_moved();
	gm_context_ended(ending, ended);
	if (gm_graph_nodes())
		gm_graph_refresh(NULL);
	return gm_leave(result);
}

/* Releasing a primary context ends it when nobody else holds it; a reset that returns an old error
 * may have ended it all the same. */
static bool is_inactive(CUdevice device)
{
	unsigned int flags;
	int active = 1;

	return !GM_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && !active;
}

/* ---- contexts of the program's own ---- */

/* However it is asked for. */
#define CREATES(name, parameters, ...)						\
	CUresult name parameters						\
	{									\
		CUresult result;						\
										\
		GM_ENTER(name, __VA_ARGS__);					\
		result = GM_TRY(name, __VA_ARGS__);				\
		if (!result)							\
			gm_context_seen(*pctx, dev, GM_CONTEXT_OWN);		\
		return gm_leave(result);					\
	}

CREATES(cuCtxCreate, (CUcontext *pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
CREATES(cuCtxCreate_v2, (CUcontext *pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
CREATES(cuCtxCreate_v3, (CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			 unsigned int flags, CUdevice dev), pctx, paramsArray, numParams, flags, dev)
CREATES(cuCtxCreate_v4, (CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			 CUdevice dev), pctx, ctxCreateParams, flags, dev)

/* The graphics libraries' own: without a prototype where those are not installed. */
CREATES(cuGLCtxCreate, (CUcontext *pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
CREATES(cuGLCtxCreate_v2, (CUcontext *pctx, unsigned int flags, CUdevice dev), pctx, flags, dev)
CREATES(cuVDPAUCtxCreate, (CUcontext *pctx, unsigned int flags, CUdevice dev, uint32_t vdp_device,
			   void *vdp_get_proc_address), pctx, flags, dev, vdp_device,
	vdp_get_proc_address)
CREATES(cuVDPAUCtxCreate_v2, (CUcontext *pctx, unsigned int flags, CUdevice dev,
			      uint32_t vdp_device, void *vdp_get_proc_address), pctx, flags, dev,
	vdp_device, vdp_get_proc_address)

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuCtxDestroy_v2, ctx);
	before_end();
	gm_context_ending(&ending, ctx);
	result = GM_REAL(cuCtxDestroy_v2)(ctx);
	return after_end(&ending, result, !result);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuCtxDestroy, ctx);
	before_end();
	gm_context_ending(&ending, ctx);
	result = GM_REAL(cuCtxDestroy)(ctx);
	return after_end(&ending, result, !result);
}

/* The last detach destroys; then the context is not current any more. */
CUresult cuCtxDetach(CUcontext ctx)
{
	struct gm_ending ending;
	CUcontext current = NULL;
	CUresult result;

	GM_ENTER(cuCtxDetach, ctx);
	before_end();
	gm_context_ending(&ending, ctx);
	result = GM_REAL(cuCtxDetach)(ctx);
	GM_REAL(cuCtxGetCurrent)(&current);
	return after_end(&ending, result, !result && current != ctx);
}

/* ---- primary contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result;

	GM_ENTER(cuDevicePrimaryCtxRetain, pctx, dev);
	result = GM_TRY(cuDevicePrimaryCtxRetain, pctx, dev);
	if (!result)
		gm_context_seen(*pctx, dev, GM_CONTEXT_PRIMARY);
	return gm_leave(result);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuDevicePrimaryCtxRelease_v2, dev);
	before_end();
	gm_primary_ending(&ending, dev);
	result = GM_REAL(cuDevicePrimaryCtxRelease_v2)(dev);
	return after_end(&ending, result, is_inactive(dev));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuDevicePrimaryCtxRelease, dev);
	before_end();
	gm_primary_ending(&ending, dev);
	result = GM_REAL(cuDevicePrimaryCtxRelease)(dev);
	return after_end(&ending, result, is_inactive(dev));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuDevicePrimaryCtxReset_v2, dev);
	before_end();
	gm_primary_ending(&ending, dev);
	result = GM_REAL(cuDevicePrimaryCtxReset_v2)(dev);
	return after_end(&ending, result, !result || is_inactive(dev));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuDevicePrimaryCtxReset, dev);
	before_end();
	gm_primary_ending(&ending, dev);
	result = GM_REAL(cuDevicePrimaryCtxReset)(dev);
	return after_end(&ending, result, !result || is_inactive(dev));
}

/* A green context holds the primary context of its device, and may be the last that does. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuGreenCtxDestroy, hCtx);
	before_end();
	result = GM_REAL(cuGreenCtxDestroy)(hCtx);
	for (CUdevice dev = 0; !result && dev < gm_device_count(); dev++) {
		if (!is_inactive(dev))
			continue;
		gm_primary_ending(&ending, dev);
		gm_context_ended(&ending, true);
	}
	gm_context_handles_changed();
	return gm_leave(result);
}
