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

CUresult cuStreamBeginCapture(CUstream hStream)
{
	GM_ENTER(cuStreamBeginCapture, hStream);
	begins();
	return begun(hStream, false, GM_REAL(cuStreamBeginCapture)(hStream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream)
{
	GM_ENTER(cuStreamBeginCapture_ptsz, hStream);
	begins();
	return begun(hStream, true, GM_REAL(cuStreamBeginCapture_ptsz)(hStream));
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	GM_ENTER(cuStreamBeginCapture_v2, hStream, mode);
	begins();
	return begun(hStream, false, GM_REAL(cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	GM_ENTER(cuStreamBeginCapture_v2_ptsz, hStream, mode);
	begins();
	return begun(hStream, true, GM_REAL(cuStreamBeginCapture_v2_ptsz)(hStream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
				     const CUgraphNode *dependencies,
				     const CUgraphEdgeData *dependencyData, size_t numDependencies,
				     CUstreamCaptureMode mode)
{
	GM_ENTER(cuStreamBeginCaptureToGraph, hStream, hGraph, dependencies, dependencyData,
		 numDependencies, mode);
	begins();
	return begun(hStream, false,
		     GM_REAL(cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies,
							  dependencyData, numDependencies, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
					  const CUgraphNode *dependencies,
					  const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, CUstreamCaptureMode mode)
{
	GM_ENTER(cuStreamBeginCaptureToGraph_ptsz, hStream, hGraph, dependencies, dependencyData,
		 numDependencies, mode);
	begins();
	return begun(hStream, true,
		     GM_REAL(cuStreamBeginCaptureToGraph_ptsz)(hStream, hGraph, dependencies,
							  dependencyData, numDependencies, mode));
}

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
