/*
 * hook_order.c - the program's own waits, and its streams and events.
 *
 * After the program has waited for a context, the context has passed every free before the wait
 * (timeline.h). A wait for a stream or an event completes only a part of the work whose progress the host
 * can see (host.h). A query that answers "done" counts as a wait.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/cache/cache.h"
#include "preload/order/order.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"

struct wait {
	uint64_t host_now;		/* gm_host_now() before the real call */
	uint64_t begun;			/* result of gm_reuse_sync_begin, if @begins */
	bool begins;
};

/* Begin a wait. @covers: the wait may cover the whole context. Such a wait is noted in single-stream mode, while
 * gm_order_hot.attention is set, or while blocks are in limbo; otherwise nothing depends on it. */
static struct wait wait_begin(bool covers)
{
	struct wait wait = { .host_now = gm_host_now() };

	wait.begins = covers && (!gm_order_hot.many || gm_order_hot.attention ||
				 gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX) > 0);
	if (wait.begins)
		wait.begun = gm_reuse_sync_begin(gm_order_reuse());
	return wait;
}

static CUresult failed(CUresult result)
{
	if (result != CUDA_ERROR_NOT_READY)
		gm_cache_fault(result);
	return gm_leave(result);
}

static void synchronised(void)
{
	gm_cache_synchronised();
	gm_pools_synchronised();
}

/* ---- streams ---- */

static bool is_only_stream(uint64_t key)
{
	return !gm_order_hot.many && gm_order_hot.stream == key && !gm_unseen();
}

typedef __typeof__(cuStreamSynchronize) stream_fn;

/* Wait for a stream, or query it (@polls). A program may query very often, so a query only notes the answer. */
static CUresult wait_stream(stream_fn *real, CUstream stream, bool per_thread, bool polls)
{
	struct wait wait;
	CUresult result;
	uint64_t key;

	if (!gm_order_on)
		return gm_leave(real(stream));
	key = gm_stream_key(stream, per_thread);
	wait = wait_begin(is_only_stream(key));
	result = real(stream);
	if (result)
		return failed(result);
	if (wait.begins && is_only_stream(key))
		gm_reuse_sync_done(gm_order_reuse(), 0, wait.begun);
	gm_host_stream_done(key, wait.host_now);
	if (!polls)
		synchronised();
	return gm_leave(result);
}

/* Note the end of a stream before the real call, because a new stream may get the same handle as soon as the
 * driver returns. */
static void stream_ends(CUstream stream)
{
	if (!gm_order_on || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return;
	gm_order_stream_ends(stream);
}

static CUresult stream_ended(CUstream stream, CUresult result)
{
	gm_order_stream_ended(stream, result);
	return gm_leave(result);
}

#define STREAM_DESTROY(name) \
	CUresult name(CUstream hStream) \
	{ \
		GM_ENTER(name, hStream); \
		stream_ends(hStream); \
		return stream_ended(hStream, GM_REAL(name)(hStream)); \
	}
STREAM_DESTROY(cuStreamDestroy_v2)
STREAM_DESTROY(cuStreamDestroy)

/* ---- contexts ---- */

/* Wait for a context; @context NULL: the current one. */
static CUresult wait_context(CUcontext context, bool named)
{
	struct wait wait;
	CUresult result;
	uint32_t id;
	bool covers;

	if (!gm_order_on)
		return gm_leave(named ? GM_REAL(cuCtxSynchronize_v2)(context) :
				GM_REAL(cuCtxSynchronize)());
	wait = wait_begin(true);
	result = named ? GM_REAL(cuCtxSynchronize_v2)(context) : GM_REAL(cuCtxSynchronize)();
	if (result)
		return failed(result);
	if (!context)
		GM_REAL(cuCtxGetCurrent)(&context);
	covers = gm_order_covers(context);
	if (covers)
		gm_host_all_done(wait.host_now);
	else
		gm_host_context_done(context, wait.host_now);
	/* A green context is only a part of its context, so a wait for it does not cover the whole context. */
	id = covers ? 0 : gm_ticket_context_of(context);
	if (wait.begins && (covers || id))
		gm_reuse_sync_done(gm_order_reuse(), id, wait.begun);
	synchronised();
	return gm_leave(result);
}

CUresult cuCtxSynchronize(void)
{
	GM_ENTER(cuCtxSynchronize);
	return wait_context(NULL, false);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	GM_ENTER(cuCtxSynchronize_v2, ctx);
	return wait_context(ctx, true);
}

/* ---- events ---- */

typedef __typeof__(cuEventSynchronize) event_fn;

static CUresult wait_event(event_fn *real, CUevent event, bool polls)
{
	struct gm_host_mark mark;
	CUresult result;

	if (!gm_order_on)
		return gm_leave(real(event));
	mark = gm_host_event_mark(event);
	result = real(event);
	if (result)
		return failed(result);
	gm_host_event_done(event, &mark);
	if (!polls)
		synchronised();
	return gm_leave(result);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	GM_ENTER(cuEventSynchronize, hEvent);
	return wait_event(GM_REAL(cuEventSynchronize), hEvent, false);
}

CUresult cuEventQuery(CUevent hEvent)
{
	GM_ENTER(cuEventQuery, hEvent);
	return wait_event(GM_REAL(cuEventQuery), hEvent, true);
}

static struct gm_host_mark recording(CUevent event, CUstream stream, bool per_thread)
{
	if (!gm_order_on)
		return (struct gm_host_mark){ 0 };
	return gm_host_event_recording(event, gm_stream_key(stream, per_thread), NULL);
}

/* Note a recorded event. While the stream captures, the call records no event; the graph records it at each
 * launch. */
static CUresult recorded(CUresult result, CUevent event, const struct gm_host_mark *mark,
			 CUstream stream, bool per_thread)
{
	if (!result && mark->key && !gm_stream_captures(stream, per_thread))
		gm_host_event_recorded(event, mark);
	return gm_leave(result);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_STREAM_WAIT(class, name, type, params, args, per_thread, polls) \
	CUresult name params \
	{ \
		GM_ENTER_WITH(name, args); \
		return wait_stream(GM_REAL(name), hStream, per_thread, polls); \
	}
#define GM_EVENT(class, name, type, params, args, per_thread) \
	CUresult name params \
	{ \
		struct gm_host_mark mark; \
		\
		GM_ENTER_WITH(name, args); \
		mark = recording(hEvent, hStream, per_thread); \
		return recorded(GM_REAL(name) args, hEvent, &mark, hStream, per_thread); \
	}
#include "preload/hooks/hooks.def"

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	struct gm_host_mark mark;
	CUresult result;

	GM_ENTER(cuCtxRecordEvent, hCtx, hEvent);
	mark = gm_host_event_recording(hEvent, 0, hCtx);
	result = GM_REAL(cuCtxRecordEvent)(hCtx, hEvent);
	if (!result && gm_order_on)
		gm_host_event_recorded(hEvent, &mark);
	return gm_leave(result);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	GM_ENTER(cuEventCreate, phEvent, Flags);
	if (Flags & CU_EVENT_INTERPROCESS)
		gm_host_events_shared();
	return gm_leave(GM_TRY(cuEventCreate, phEvent, Flags));
}
