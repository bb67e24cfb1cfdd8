/*
 * hook_identity.c - the context in which a thread works, and memory whose allocation no hook saw.
 *
 * The pseudo handles (legacy and per-thread stream) stand for a different stream in each context. While
 * only one context has ever been current, the context need not be checked each time.
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

/* No guard is needed, because gm_where_moved changes only thread-local data. */
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

/* The runtime makes a context current through its private table of functions, which no hook sees, and then calls
 * cuCtxGetCurrent. So compare the answer with the known context. */
CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = GM_REAL(cuCtxGetCurrent)(pctx);

	if (result || !pctx || *pctx != gm_where_known.handle)
		gm_where_moved();
	return result;
}

/* ---- variables of modules ---- */

/* Note a managed variable, because kernels and the host both access it. If the driver cannot be asked (no context,
 * inside a host function), the variable counts as managed. */
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
