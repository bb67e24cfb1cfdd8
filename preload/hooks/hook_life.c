/*
 * hook_life.c - the beginning and end of contexts, and of memory that ends with them.
 *
 * The end of a context ends its cuMemAlloc, managed, array, pinned and imported memory. Memory of driver
 * pools and of VMM handles stays (seen on the GPU for cudaDeviceReset). A record ends only when the driver
 * has said that the context is gone. When a process exits, the exit snapshot is taken before the first call
 * that ends a context.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/order/order.h"
#include "preload/order/context.h"
#include "preload/order/host.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"
#include "preload/triggers/trigger.h"

/* Prepare for the end, before the real call: sample the free bytes and take the exit snapshot while all memory
 * still exists. */
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

/* Has the primary context of @device ended? A release ends it when nobody else holds it. A reset may end it and
 * still return an earlier error. */
static bool is_inactive(CUdevice device)
{
	unsigned int flags;
	int active = 1;

	return !GM_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && !active;
}

/* Is @context still current? The last cuCtxDetach destroys a context, which then is no longer current. */
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

/* A green context holds the primary context of its device, and may be its last holder. */
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
