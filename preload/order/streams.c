/*
 * streams.c - report the streams that memory is freed on, and their frees, to the timeline (timeline_streams.c).
 *
 * A stream is added when it is served from a segment of its own, needs more pages, or memory is freed on it. Every free
 * is reported once there is so much stream-ordered memory that another request could lack it. Before that, an event for
 * each free would cost more than it is worth.
 *
 * Thread context: any, inside a hook. Lock: none; those of reuse.h are taken. Signal context: none.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/order/order.h"

#define THREADS 8u			/* added threads' streams between two searches for ended threads, at least */

_Atomic(bool) gm_order_frees_reported;

static _Atomic(uint32_t) threads_met, threads_next = THREADS;	/* added so far; number at the next search */

static struct gm_timeline *timeline(void)
{
	return gm_reuse_time(gm_order_reuse());
}

static bool is_default(CUstream stream)
{
	return stream <= CU_STREAM_PER_THREAD;
}

/* Only a thread itself can name its default stream, so no name is kept for that. */
void gm_order_stream_meet(uint64_t key, CUstream stream, bool fresh)
{
	struct gm_stream_track like = { .key = key, .stream = (uintptr_t)stream };
	struct gm_stream_track known;
	CUcontext handle = NULL;

	if (gm_timeline_stream_copy(timeline(), key, &known) ||
	    (is_default(stream) ? GM_REAL(cuCtxGetCurrent)(&handle) : GM_REAL(cuStreamGetCtx)(stream, &handle)))
		return;
	like.context = gm_context_find(handle);
	if (like.context)
		gm_context_owner(like.context);		/* makes its handle known */
	if (stream == CU_STREAM_PER_THREAD) {
		like.stream = 0;
		like.thread = (int32_t)syscall(SYS_gettid);
		threads_met++;
	} else if (is_default(stream)) {
		like.stream = (uintptr_t)CU_STREAM_LEGACY;
	}
	gm_timeline_stream_add(timeline(), &like, fresh);
}

/* While a stream captures, no event is recorded on a default stream, because it could end the capture. A context that
 * was never given work is past every free, so its frees are not reported. */
void gm_order_stream_freed(uint64_t key, CUstream stream, bool meets)
{
	struct gm_relaxed relaxed = gm_relax();
	struct gm_stream_track copy;

	if (meets)
		gm_order_stream_meet(key, stream, false);
	gm_order_meet_unseen();
	if (gm_timeline_stream_copy(timeline(), key, &copy) &&
	    (!copy.context || gm_timeline_has(timeline(), copy.context)))
		gm_timeline_stream_freed(timeline(), key, (uintptr_t)stream, !(is_default(stream) && gm_capturing()));
	gm_unrelax(&relaxed);
}

static int wait_on(void *arg, uint64_t event)
{
	return GM_REAL(cuStreamWaitEvent)(arg, (CUevent)(uintptr_t)event, 0) ? -EIO : 0;
}

bool gm_order_behind_stream(uint64_t key, CUstream own, bool may_record)
{
	struct gm_stream_track copy;

	if (!gm_timeline_stream_copy(timeline(), key, &copy))
		return false;
	may_record &= copy.stream > (uintptr_t)CU_STREAM_PER_THREAD &&
		      !gm_stream_captures((CUstream)(uintptr_t)copy.stream, false);
	return gm_reuse_stream_wait(gm_order_reuse(), key, may_record, wait_on, own);
}

void gm_order_report_frees(void)
{
	if (gm_order_frees_reported ||
	    __atomic_exchange_n((bool *)&gm_order_frees_reported, true, __ATOMIC_ACQ_REL))
		return;
	gm_reuse_mark_streams(gm_order_reuse());
}

/* If the event of the stream does not cover its frees, record it now, behind all work of the stream. (Not while the
 * stream captures, because the event would belong to the graph.) */
void gm_order_stream_over(uint64_t key, CUstream stream)
{
	struct gm_stream_track copy;

	if (!gm_timeline_stream_copy(timeline(), key, &copy))
		return;
	if (gm_timeline_stream_asks(&copy) && !gm_stream_captures(stream, false))
		gm_order_stream_freed(key, stream, false);
	gm_order_meet_unseen();
	gm_timeline_stream_ended(timeline(), key);
	gm_reuse_pass(gm_order_reuse());
}

void gm_order_streams_lost(uint32_t context)
{
	struct gm_stream_track copy;

	for (uint32_t at = 0; gm_timeline_stream_next(timeline(), &at, &copy);)
		if (copy.context == context && copy.stream > (uintptr_t)CU_STREAM_PER_THREAD)
			gm_order_stream_destroyed((CUstream)(uintptr_t)copy.stream);
}

static bool has_ended(int32_t thread)
{
	return syscall(SYS_tgkill, getpid(), thread, 0) && errno == ESRCH;
}

/* Find the threads that have ended, because no hook sees that. Their default streams have ended with them. */
static void find_ended_threads(void)
{
	int saved_errno = errno;
	struct gm_stream_track copy;
	uint32_t alive = 0;

	if (threads_met < threads_next)
		return;
	for (uint32_t at = 0; gm_timeline_stream_next(timeline(), &at, &copy);) {
		if (!copy.thread || copy.ended)
			continue;
		if (has_ended(copy.thread))
			gm_timeline_stream_ended(timeline(), copy.key);
		else
			alive++;
	}
	threads_next = threads_met + (alive > THREADS ? alive : THREADS);
	errno = saved_errno;
}

uint32_t gm_order_streams_over(void)
{
	find_ended_threads();
	if (timeline()->streams_ended)
		gm_reuse_look_streams(gm_order_reuse(), true);
	return timeline()->streams_over;
}
