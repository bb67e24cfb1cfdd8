/*
 * capture.h - stream capture, as far as recording must know of it.
 *
 * A capture refuses calls and is invalidated by them; ours must never be the reason. What we ask
 * the driver while some stream may be capturing is asked in RELAXED mode (which allows all but
 * cuCtxSynchronize and cuCtxRecordEvent), and the thread's own mode is put back.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_CAPTURE_H
#define GM_PRELOAD_CAPTURE_H

#include <stdbool.h>

#include "preload/hooks/hook.h"

/* Some capture has begun in this process. Sticky: ends are many (a stream destroyed, a capture
 * invalidated), and asking for nothing costs little. */
extern _Atomic(bool) gm_capture_seen GM_HIDDEN;

/* Does @stream capture? @per_thread: the call came by a _ptsz name. */
bool gm_stream_captures_asked(CUstream stream, bool per_thread);
static inline bool gm_stream_captures(CUstream stream, bool per_thread)
{
	return gm_capture_seen && gm_stream_captures_asked(stream, per_thread);
}

/* Around driver calls of our own. */
struct gm_relaxed { bool changed; CUstreamCaptureMode mode; };
struct gm_relaxed gm_relax(void);
void gm_unrelax(struct gm_relaxed *relaxed);

#endif
