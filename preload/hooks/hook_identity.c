/*
 * hook_identity.c - which context a thread works in, and memory that no hook saw made.
 *
 * The pseudo handles (legacy and per-thread stream) mean another stream in another context: while
 * only one context was ever current to anybody they need not be looked at each time.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/order/context.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"

static CUresult used(CUresult result, CUcontext context)
{
	gm_where_moved();
	if (!result && gm_order_on)
		gm_context_used(context);
	return gm_leave(result);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUresult result;

	GM_ENTER(cuCtxFromGreenCtx, pContext, hCtx);
	result = GM_REAL(cuCtxFromGreenCtx)(pContext, hCtx);
	if (!result && pContext)
		gm_context_seen_green(*pContext);
	return used(result, result || !pContext ? NULL : *pContext);
}

/* What is only noted of this thread needs no hook's guard. */
CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult result = GM_REAL(cuCtxPopCurrent_v2)(pctx);

	gm_where_moved();
	return result;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	CUresult result = GM_REAL(cuCtxPopCurrent)(pctx);

	gm_where_moved();
	return result;
}

/* The runtime asks after it made a context current through a table of its own. */
CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = GM_REAL(cuCtxGetCurrent)(pctx);

	if (result || !pctx || *pctx != gm_where_known.handle)
		gm_where_moved();
	return result;
}

/* ---- variables of modules ---- */

/* Managed ones are read and written by kernels and by the host alike. Without CUDA's leave to ask
 * (no context, a host function) it is taken to be one. */
static CUresult variable(CUresult result, CUdeviceptr address)
{
	unsigned int managed = 1;

	if (!result && address && gm_order_on && !gm_host_shares_memory) {
		if (GM_REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
						   address) || managed)
			gm_host_memory_made();
	}
	return gm_leave(result);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUresult result;

	GM_ENTER(cuLibraryGetManaged, dptr, bytes, library, name);
	result = GM_TRY(cuLibraryGetManaged, dptr, bytes, library, name);
	if (!result)
		gm_host_memory_made();
	return gm_leave(result);
}

/* ---- the rows GM_CURRENT and GM_VARIABLE of hooks.def ---- */

#define GM_HOOK(class, name, type, params, args)
#define GM_CURRENT(class, name, type, params, args) \
	CUresult name params \
	{ \
		GM_ENTER_WITH(name, args); \
		return used(GM_REAL(name) args, ctx); \
	}
#define GM_VARIABLE(class, name, type, params, args) \
	CUresult name params \
	{ \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		result = GM_TRY_WITH(name, args); \
		return variable(result, result || !dptr ? 0 : *dptr); \
	}
#include "preload/hooks/hooks.def"
