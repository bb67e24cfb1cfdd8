/*
 * capture.h - stream capture: which streams of the process capture, and what we may ask meanwhile.
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

#include "allocator/reuse.h"
#include "preload/driver/real.h"

/* A stream as the caller names it: never 0. */
static inline uint64_t gm_stream_name(CUstream stream, bool per_thread)
{
	uint64_t name = (uint64_t)(uintptr_t)stream;

	return name ? name : per_thread ? 2 : 1;	/* CU_STREAM_PER_THREAD, CU_STREAM_LEGACY */
}

/* Some capture has begun in this process. Sticky: a capture has many ends (its stream is destroyed,
 * it is invalidated), and asking for nothing costs little. */
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

/* ---- counted while @reuse counts on it; before gm_capture_start nothing is ---- */

void gm_capture_start(struct gm_reuse *reuse);

extern _Atomic(uint32_t) gm_captures GM_HIDDEN;

/* Does any stream of the process capture? */
static inline bool gm_capturing(void)
{
	return gm_captures != 0;
}

/* Before the real call that begins a capture, and after it; after the one that ends it, whatever
 * that returned. No context-wide event is recorded from the first to the last. */
void gm_capture_beginning(void);
void gm_capture_begun(CUstream stream, bool per_thread, CUresult result);
void gm_capture_over(CUstream stream, bool per_thread);

/* A stream, or a context with its streams, has ended: so have its captures. */
void gm_capture_stream_destroyed(CUstream stream);
void gm_capture_context_ended(uint32_t context);

/* Work is given while something captures: now and then the driver is asked whether it still does. */
void gm_capture_recheck(void);

#endif
