/*
 * hook_capture.c - stream capture begins and ends (see order.h).
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/hook.h"
#include "preload/cache/cache_pages.h"
#include "preload/order/order.h"

/* No context-wide event of ours may be under way when a capture begins, and none until it ends. */
static CUresult begun(CUstream stream, bool per_thread, CUresult result)
{
	gm_capture_begun(stream, per_thread, result);
	return gm_leave(result);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_CAPTURE(class, name, type, params, args, per_thread) \
	CUresult name params \
	{ \
		GM_ENTER_WITH(name, args); \
		gm_cache_pages_capture_begins(); \
		gm_capture_beginning(); \
		return begun(hStream, per_thread, GM_REAL(name) args); \
	}
#include "preload/hooks/hooks.def"

static CUresult ended(CUstream stream, bool per_thread, CUresult result)
{
	gm_capture_over(stream, per_thread);
	return gm_leave(result);
}

#define END_CAPTURE(name, per_thread) \
	CUresult name(CUstream hStream, CUgraph *phGraph) \
	{ \
		GM_ENTER(name, hStream, phGraph); \
		return ended(hStream, per_thread, GM_REAL(name)(hStream, phGraph)); \
	}
END_CAPTURE(cuStreamEndCapture, false)
END_CAPTURE(cuStreamEndCapture_ptsz, true)
