/*
 * hook_capture.c - the beginning and end of stream captures (see order.h).
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/hook.h"
#include "preload/order/order.h"

/* Note the result of a call that begins a capture. No event of ours may be recorded in the stream's context from
 * gm_capture_beginning until the capture ends. */
static CUresult begun(CUstream stream, bool per_thread, uint32_t context, CUresult result)
{
	gm_capture_begun(stream, per_thread, context, result);
	return gm_leave(result);
}

/* May the stream join a capture? If only one context is in use, that context is already known to capture, and
 * there is nothing to note. */
static bool may_join(CUstream stream, bool per_thread)
{
	return gm_capturing() && !gm_context_only_used() && !gm_stream_captures(stream, per_thread);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_CAPTURE(class, name, type, params, args, per_thread) \
	CUresult name params \
	{ \
		uint32_t context; \
		\
		GM_ENTER_WITH(name, args); \
		context = gm_capture_beginning(hStream, per_thread); \
		return begun(hStream, per_thread, context, GM_REAL(name) args); \
	}
#define GM_JOIN(class, name, type, params, args, per_thread) \
	CUresult name params \
	{ \
		uint32_t context; \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		gm_order_waits(hStream, per_thread); \
		if (!may_join(hStream, per_thread)) \
			return gm_leave(GM_REAL(name) args); \
		context = gm_capture_beginning(hStream, per_thread); \
		result = GM_REAL(name) args; \
		gm_capture_joined(hStream, per_thread, context); \
		return gm_leave(result); \
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
