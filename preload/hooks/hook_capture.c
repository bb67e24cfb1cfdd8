/*
 * hook_capture.c - stream capture begins and ends; what we may ask while it lasts (see capture.h).
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "allocator/rules.h"
#include "preload/cache/cache.h"
#include "preload/order/capture.h"
#include "preload/order/order.h"

_Atomic(bool) gm_capture_seen;

/* No context-wide event of ours may be under way when a capture begins, and none until it ends. */
static void begins(void)
{
	gm_capture_seen = true;		/* before it begins: another thread may look now */
	if (gm_order_on)
		gm_capture_beginning();
}

static CUresult begun(CUstream stream, bool per_thread, CUresult result)
{
	if (gm_order_on)
		gm_capture_begun(stream, per_thread, result);
	return gm_leave(result);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_CAPTURE(class, name, type, params, args, per_thread) \
	CUresult name params \
	{ \
		GM_ENTER_WITH(name, args); \
		begins(); \
		return begun(hStream, per_thread, GM_REAL(name) args); \
	}
#include "preload/hooks/hooks.def"

static CUresult ended(CUstream stream, bool per_thread, CUresult result)
{
	if (gm_order_on)
		gm_capture_over(stream, per_thread);
	return gm_leave(result);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	GM_ENTER(cuStreamEndCapture, hStream, phGraph);
	return ended(hStream, false, GM_REAL(cuStreamEndCapture)(hStream, phGraph));
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	GM_ENTER(cuStreamEndCapture_ptsz, hStream, phGraph);
	return ended(hStream, true, GM_REAL(cuStreamEndCapture_ptsz)(hStream, phGraph));
}

/* The legacy stream cannot capture (and asking about it while another one does is an error). */
bool gm_stream_captures_asked(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result;

	if (stream == CU_STREAM_LEGACY || (!stream && !per_thread))
		return false;
	result = per_thread ? GM_REAL(cuStreamIsCapturing_ptsz)(stream, &status)
			    : GM_REAL(cuStreamIsCapturing)(stream, &status);
	return !result && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Also before the first capture: another thread may begin it at any moment. */
struct gm_relaxed gm_relax(void)
{
	struct gm_relaxed relaxed = { .mode = CU_STREAM_CAPTURE_MODE_RELAXED };

	relaxed.changed = gm_rule(GM_RULE_CAPTURE_RELAXED) &&
			  !GM_REAL(cuThreadExchangeStreamCaptureMode)(&relaxed.mode);
	return relaxed;
}

void gm_unrelax(struct gm_relaxed *relaxed)
{
	if (relaxed->changed)
		GM_REAL(cuThreadExchangeStreamCaptureMode)(&relaxed->mode);
}
