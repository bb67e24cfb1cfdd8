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
#include "preload/order/order.h"
#include "preload/order/context.h"
#include "preload/order/host.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"
#include "preload/triggers/trigger.h"

/* Before the real call: what is free, and the exit snapshot, while everything is still there. */
static void before_end(struct gm_ending *ending)
{
	uint64_t free_bytes, total_bytes;
	uint16_t module;

	gm_sample_now(gm_where_now(), &free_bytes, &total_bytes);
	gm_exit_context_end();
	*ending = (struct gm_ending){ .host_now = gm_host_now(),
				      .stack = gm_stack_of_free(&module) };
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

/* The last detach of a context destroys it: then it is not current any more. */
static bool is_current(CUcontext context)
{
	CUcontext current = NULL;

	GM_REAL(cuCtxGetCurrent)(&current);
	return current == context;
}

#define GM_HOOK(class, name, type, params, args)
#define GM_CONTEXT(class, name, type, params, args, role) \
	CUresult name params \
	{ \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		result = GM_TRY_WITH(name, args); \
		if (!result) \
			gm_context_seen(*pctx, dev, role); \
		return gm_leave(result); \
	}
#define GM_CONTEXT_END(class, name, type, params, args, begin, ended) \
	CUresult name params \
	{ \
		struct gm_ending ending; \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		before_end(&ending); \
		begin; \
		result = GM_REAL(name) args; \
		return after_end(&ending, result, ended); \
	}
#include "preload/hooks/hooks.def"

/* A green context holds the primary context of its device, and may be the last that does. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct gm_ending ending;
	CUresult result;

	GM_ENTER(cuGreenCtxDestroy, hCtx);
	before_end(&ending);
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
