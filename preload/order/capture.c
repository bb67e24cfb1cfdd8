/*
 * capture.c - which streams of the process capture, and what we may ask meanwhile (see order.h).
 *
 * A capture is counted for the context of its stream, from before its real begin until its end was seen: by the hook of
 * the end, of the stream's destruction or of the context's end, or by asking the driver. A stream that joins a capture
 * of another context, by waiting for an event, is counted in the same way. Frees before the capture are marked first
 * (gm_reuse_capture_begins, under "order"). From then to the end of the capture, the context gets no mark.
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one leaf, never held over a driver call.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/order/context.h"
#include "preload/process/slots.h"

/* While a stream captures, one submission in RECHECK asks the driver which captures have ended. */
#define RECHECK 64u

struct capture {
	uint32_t unused;		/* link of gm_slots */
	uint32_t context;		/* 0: not known */
	uint32_t counted;		/* the context for which it is counted; 0: all contexts */
	uint64_t name;			/* of the stream; 0: the slot is unused */
	pid_t thread;			/* of a thread's default stream */
};

_Atomic(bool) gm_capture_seen;
_Atomic(uint32_t) gm_captures;

static struct gm_lock lock = { .rank = GM_RANK_LEAF };
static struct gm_slots captures = { .item_bytes = sizeof(struct capture) };	/* lock */
static _Atomic(uint32_t) passed;
static _Atomic(bool) joined;			/* a stream has joined a capture, and stops with that capture */
static struct gm_reuse *counted;		/* NULL: captures are not counted */

static struct capture *capture_at(uint32_t slot)
{
	return gm_slots_at(&captures, slot);
}

static pid_t this_thread(void)
{
	return (pid_t)syscall(SYS_gettid);
}

void gm_capture_start(struct gm_reuse *reuse)
{
	counted = reuse;
}

/* The context needs a track before its marks can be forbidden. If work may be unseen, a join may be unseen as well, so
 * the capture counts for all contexts. */
uint32_t gm_capture_beginning(CUstream stream, bool per_thread)
{
	uint32_t context;

	gm_capture_seen = true;		/* before the real begin, because another thread may ask now */
	if (!counted)
		return 0;
	context = gm_unseen() ? 0 : gm_stream_context(stream, per_thread);
	if (context)
		gm_ticket_context(context);
	gm_reuse_capture_begins(counted, context);
	gm_captures++;
	return context;
}

static void uncount(uint32_t context)
{
	gm_captures--;
	gm_reuse_capture_ended(counted, context);
}

/* Drop the slot of a capture that has ended. True: this call dropped it, so the caller subtracts it from the count. */
static bool drop_if(uint32_t slot, uint64_t name)
{
	bool dropped = false;

	if (!gm_lock(&lock))
		return false;
	if (slot < captures.used && capture_at(slot)->name == name) {
		capture_at(slot)->name = 0;
		gm_slots_drop(&captures, slot);
		dropped = true;
	}
	gm_unlock(&lock);
	return dropped;
}

void gm_capture_begun(CUstream stream, bool per_thread, uint32_t context, CUresult result)
{
	struct capture capture = { .name = gm_stream_name(stream, per_thread), .counted = context };
	uint32_t slot;

	if (!counted)
		return;
	if (result) {
		uncount(context);
		return;
	}
	capture.context = context ? context : gm_stream_context(stream, per_thread);
	capture.thread = this_thread();
	if (!gm_lock(&lock))
		return;			/* counted for ever: nothing is reused early any more, which is safe */
	slot = gm_slots_new(&captures);
	if (slot)
		*capture_at(slot) = capture;
	gm_unlock(&lock);
}

void gm_capture_joined(CUstream stream, bool per_thread, uint32_t context)
{
	bool does = gm_stream_captures_asked(stream, per_thread);

	joined |= does;
	gm_capture_begun(stream, per_thread, context, does ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* Copy the first capture from @slot on, and return its slot; 0: there is none. */
static uint32_t next_capture(uint32_t slot, struct capture *ret_copy)
{
	uint32_t found = 0;

	if (!gm_lock(&lock))
		return 0;
	for (; slot < captures.used && !found; slot++) {
		if (slot && capture_at(slot)->name) {
			*ret_copy = *capture_at(slot);
			found = slot;
		}
	}
	gm_unlock(&lock);
	return found;
}

/* Does the stream still capture? Only called for streams that were not destroyed, as far as we saw. */
static bool still_captures(const struct capture *capture)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUstream stream = (CUstream)(uintptr_t)capture->name;
	CUresult result;

	if (capture->name == 2 && capture->thread != this_thread())
		return !syscall(SYS_tgkill, getpid(), capture->thread, 0) || errno != ESRCH;
	result = GM_REAL(cuStreamIsCapturing)(stream, &status);
	return !result && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Drop the captures of stream @name (0: any) in @context (0: any). @ask: only those that the driver says have ended. */
static void drop_ended(uint64_t name, uint32_t context, bool ask)
{
	struct capture capture;

	for (uint32_t slot = 0; gm_captures && (slot = next_capture(slot, &capture)) != 0; slot++) {
		if ((name && capture.name != name) || (context && capture.context != context) ||
		    (ask && still_captures(&capture)))
			continue;
		if (drop_if(slot, capture.name))
			uncount(capture.counted);
	}
}

void gm_capture_over(CUstream stream, bool per_thread)
{
	drop_ended(joined ? 0 : gm_stream_name(stream, per_thread), 0, true);
}

void gm_capture_stream_destroyed(CUstream stream)
{
	if (stream)
		drop_ended((uint64_t)(uintptr_t)stream, 0, false);
}

void gm_capture_context_ended(uint32_t context)
{
	drop_ended(0, context, false);
}

void gm_capture_recheck(void)
{
	int saved_errno = errno;
	struct gm_relaxed relaxed;

	if (++passed % RECHECK)
		return;
	relaxed = gm_relax();
	drop_ended(0, 0, true);
	gm_unrelax(&relaxed);
	errno = saved_errno;
}

/* ---- queries of the driver ---------------------------------------------------------------------- */

/* The legacy stream cannot capture, and a query of it while another stream captures is an error. */
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

/* Needed even before the first capture, because another thread may begin one at any time. */
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
