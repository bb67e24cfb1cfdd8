/*
 * cache_stream_frees.c - whether the streams have got to the frees of stream-ordered memory in
 * their order.
 *
 * What was freed in the order of a stream may be used by that stream again at once, but may go back
 * to the driver only when the host has seen the work before that free complete. Given back in the
 * stream's order, it would come after everything submitted since, for example a kernel that waits
 * for a flag; and the driver may have another stream's allocation wait for it, although that stream
 * was to set the flag.
 *
 * So once there is enough of such memory that another request could lack it, each free on a block's
 * own stream records an event there: one for each stream, recorded anew each time. Without an event
 * the stream as a whole is queried, which may say "not ready" because of later work. The event of a
 * destroyed stream is kept.
 *
 * A query may find the event complete while another thread records it anew for a free. So a free says that it has
 * done so before anybody can see the memory free, and an answer that does not know of it counts for nothing. Of
 * pages, whose frees have points (cache_points.c), an answer is about the points before the query began.
 *
 * Thread context: any, inside a hook. Lock: none; no call of the driver is made under that of
 * cache_stream.c. Signal context: none.
 */
#include <errno.h>

#include "preload/cache/cache_stream.h"
#include "preload/cache/cache_pages.h"
#include "preload/order/order.h"

/* ---- events ---- */

/* One for the frees on @stream; NULL: there can be none. */
static CUevent new_event(const struct gm_cache_stream *stream)
{
	CUevent event = gm_cache_stream_spare_event(stream);
	bool pushed;

	if (event)
		return event;
	pushed = gm_cache_push_context(stream->handle);
	if (GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING))
		event = NULL;
	gm_cache_pop_context(pushed);
	return event;
}

/* After everything that @on was given so far. */
static bool record_freed(const struct gm_cache_stream *stream, CUstream on)
{
	CUevent event = stream->freed ? stream->freed : new_event(stream);
	CUevent stands;

	if (!event || GM_REAL(cuEventRecord)(event, on))
		return false;
	stands = stream->freed ? event : gm_cache_stream_set_event(stream, event);
	if (stands != event && GM_REAL(cuEventRecord)(stands, on))
		return false;
	gm_cache_stream_event_recorded(stream);
	return true;
}

/* A default stream's event could end a capture of another stream: then there is none. */
void gm_cache_stream_freed_slow(uint64_t key, CUstream stream, bool meets)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct gm_relaxed relaxed = gm_relax();
	struct gm_cache_stream copy;
	bool known = gm_cache_stream_copy(key, &copy);

	if (!known && meets) {
		gm_cache_stream_meet(key, stream);
		known = gm_cache_stream_copy(key, &copy);
	}
	if (known && (copy.ending || (pseudo && gm_capturing()) || !record_freed(&copy, stream)))
		gm_cache_stream_event_stale(key);
	gm_unrelax(&relaxed);
}

/* What a stream was given before frees were marked. */
static int record(void *arg)
{
	const struct gm_cache_stream *stream = arg;
	bool of_context = stream->stream == CU_STREAM_LEGACY;
	CUevent event;

	if (of_context && !GM_REAL(cuStreamQuery)(CU_STREAM_LEGACY)) {
		gm_cache_stream_is_idle(stream->key);
		return 0;
	}
	event = new_event(stream);
	/* An event of ours on the default stream would have streams wait for one another that do not. */
	if (!event || (of_context ? GM_REAL(cuCtxRecordEvent)(stream->handle, event)
				  : GM_REAL(cuEventRecord)(event, stream->stream)))
		return -EIO;
	/* A free may have set its own meanwhile, on the stream itself: that one is later than all that this is for,
	 * and stays as it is. */
	gm_cache_stream_set_event(stream, event);
	return 0;
}

/* What was freed before that: complete at the latest when its stream is here. */
static void mark(struct gm_cache_stream *stream)
{
	bool pushed;

	if (stream->ending || stream->freed || !stream->stream)
		return;
	pushed = stream->stream == CU_STREAM_LEGACY && gm_cache_push_context(stream->handle);
	if (gm_reuse_in_order(gm_order_reuse(), record, stream))
		gm_cache_stream_event_stale(stream->key);
	gm_cache_pop_context(pushed);
}

void gm_cache_mark_frees(void)
{
	struct gm_relaxed relaxed;
	struct gm_cache_stream copy;

	if (gm_cache_frees_marked || __atomic_exchange_n((bool *)&gm_cache_frees_marked, true, __ATOMIC_ACQ_REL))
		return;
	relaxed = gm_relax();
	for (uint32_t at = 0; gm_cache_stream_use_next(&at, &copy);) {
		mark(&copy);
		gm_cache_stream_done(&copy);
	}
	gm_unrelax(&relaxed);
}

/* Whatever it was given so far is what it leaves to be waited for, unless its frees had an event,
 * or would have had. (Where it captures, an event would be the graph's.) */
void gm_cache_stream_ends(uint64_t key, CUstream stream)
{
	struct gm_relaxed relaxed;
	struct gm_cache_stream copy;

	if (!gm_cache_on() || !gm_cache_stream_copy(key, &copy))
		return;
	if (((!copy.freed && !copy.marked) || copy.stale) && !copy.ending &&
	    !gm_stream_captures(stream, false)) {
		relaxed = gm_relax();
		if (!record_freed(&copy, stream))
			gm_cache_stream_event_stale(key);
		gm_unrelax(&relaxed);
	}
	gm_cache_stream_ended(key);
}

/* ---- how far they have come ---- */

struct asking { const struct gm_cache_stream *stream; CUresult result; };

static int ask_stream(void *arg)
{
	struct asking *asking = arg;
	bool pushed = asking->stream->stream == CU_STREAM_LEGACY && gm_cache_push_context(asking->stream->handle);

	asking->result = GM_REAL(cuStreamQuery)(asking->stream->stream);
	gm_cache_pop_context(pushed);
	return 0;
}

/* A stream must not be asked while it captures. */
static enum gm_cache_freed ask(const struct gm_cache_stream *stream)
{
	struct asking asking = { .stream = stream, .result = CUDA_ERROR_NOT_READY };

	if (stream->complete)
		return GM_FREED_COMPLETE;
	if (stream->ending)
		return GM_FREED_UNKNOWN;
	if (stream->marked && !stream->freed && !stream->stale)
		return GM_FREED_COMPLETE;
	if (stream->freed && !stream->stale)
		asking.result = GM_REAL(cuEventQuery)(stream->freed);
	else if (stream->stream)
		gm_reuse_in_order(gm_order_reuse(), ask_stream, &asking);
	else
		return GM_FREED_UNKNOWN;
	return !asking.result ? GM_FREED_COMPLETE :
	       asking.result == CUDA_ERROR_NOT_READY ? GM_FREED_PENDING : GM_FREED_UNKNOWN;
}

enum gm_cache_freed gm_cache_stream_ask(uint64_t key)
{
	enum gm_cache_freed answer;
	struct gm_cache_stream copy;

	if (!gm_cache_stream_use(key, &copy))
		return GM_FREED_UNKNOWN;
	answer = ask(&copy);
	gm_cache_stream_done(&copy);
	return answer;
}

uint64_t gm_cache_stream_look(uint64_t key)
{
	uint64_t point = gm_reuse_before(gm_order_reuse());
	struct gm_relaxed relaxed;
	struct gm_cache_stream copy;

	if (!gm_cache_stream_use(key, &copy))
		return 0;
	if (copy.freed && !copy.stale && !copy.ending && !copy.complete) {
		relaxed = gm_relax();
		gm_cache_stream_answered(&copy, ask(&copy), point);
		gm_unrelax(&relaxed);
	}
	gm_cache_stream_done(&copy);
	return gm_cache_stream_passed(key);
}

static void poll(bool ended_only)
{
	struct gm_relaxed relaxed = gm_relax();
	uint64_t moment = gm_reuse_before(gm_order_reuse());
	uint64_t passed = gm_timeline_passed(gm_reuse_time(gm_order_reuse()), 0);
	struct gm_cache_stream copy;

	for (uint32_t at = 0; gm_cache_stream_use_next(&at, &copy);) {
		if (copy.complete)
			gm_cache_stream_forget_pages(&copy, passed);
		else if (!ended_only || copy.ended)
			gm_cache_stream_answered(&copy, ask(&copy), moment);
		gm_cache_stream_done(&copy);
	}
	gm_unrelax(&relaxed);
}

void gm_cache_streams_poll(void)
{
	poll(false);
}

uint32_t gm_cache_streams_poll_ended(void)
{
	if (gm_cache_streams_any_ended())
		poll(true);
	return gm_cache_streams_releases();
}

bool gm_cache_stream_behind(uint64_t key, uint64_t address, CUstream own)
{
	struct gm_cache_stream copy;
	bool done = false;

	if (!gm_cache_stream_use(key, &copy))
		return false;
	if (copy.freed && !copy.stale && !copy.ending)
		done = !GM_REAL(cuStreamWaitEvent)(own, copy.freed, 0) &&
		       !GM_REAL(cuMemFreeAsync)(address, own);
	else if (copy.stream > CU_STREAM_PER_THREAD && !copy.ending)
		done = !GM_REAL(cuMemFreeAsync)(address, copy.stream);
	gm_cache_stream_done(&copy);
	return done;
}

/* From now on @own is behind all that was freed on @stream so far. */
static bool waits_for(CUstream own, const struct gm_cache_stream *stream)
{
	return stream->of_pages && stream->freed && !stream->complete && !stream->stale && !stream->ending &&
	       !GM_REAL(cuStreamWaitEvent)(own, stream->freed, 0);
}

uint64_t gm_cache_streams_take_over(struct gm_cache_heap *heap, uint64_t key, CUstream own,
				    uint64_t least, uint32_t *at)
{
	struct gm_relaxed relaxed = gm_relax();
	struct gm_cache_stream copy;
	uint64_t moment, bytes = 0;

	/* A default stream could join a capture. */
	while (!bytes && (own > CU_STREAM_PER_THREAD || !gm_capturing())) {
		/* Before the stream is copied: a free that comes later may not have recorded the event that is waited
		 * for. */
		moment = gm_reuse_turn(gm_order_reuse());
		if (!gm_cache_stream_use_next(at, &copy))
			break;
		if (copy.key != key && gm_cache_heap_freed_on(heap, copy.key, least) && waits_for(own, &copy)) {
			/* An event before the wait would say that the GPU is past it. */
			gm_cache_stream_freed_slow(key, own, true);
			bytes = gm_cache_heap_take_over(heap, copy.key, key, moment);
		}
		gm_cache_stream_done(&copy);
	}
	gm_unrelax(&relaxed);
	return bytes;
}
