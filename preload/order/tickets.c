/*
 * tickets.c - the events behind the timeline's marks, and tickets: events of one stream or context (see order.h).
 *
 * A ticket is the address of a mark of the timeline that is on no context's list. Events are created with
 * CU_EVENT_DISABLE_TIMING, and recorded again. When a context has ended, its work is complete. A destroyed stream goes
 * on with its work, and the event of its context covers that work, too (test/conformance, "destroyed streams").
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>

#include "allocator/map.h"
#include "preload/order/host.h"
#include "preload/order/order.h"

static struct gm_timeline *timeline;

/* The context to which this thread last gave work. Valid while no context has ended since. */
static __thread struct { uint32_t id, ends; } last;
static __thread struct gm_relaxed around_relaxed;

static struct gm_mark *mark_of(uint64_t ticket)
{
	return (struct gm_mark *)(uintptr_t)ticket;
}

static CUevent event_of(uint64_t event)
{
	return (CUevent)(uintptr_t)event;
}

/* ---- contexts ---------------------------------------------------------------------------------- */

/* Called after we released a primary context. If the program released it meanwhile, the hook found the context alive,
 * and our release was the one that ended it. Then do here what the hook would have done. */
static void tell_end(CUdevice device)
{
	struct gm_ending ending = { .host_now = gm_host_now() };
	unsigned int flags;
	int active = 1;

	if (GM_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) || active)
		return;
	gm_primary_ending(&ending, device);
	gm_context_ended(&ending, true);
}

/* Return the handle of context @id. A context that no hook saw created was taken for its device's primary context, but
 * it may be a green one, whose events would cover only a part of the work. So ask the driver for the primary
 * context. */
static CUcontext true_handle(uint32_t id)
{
	enum gm_context_role role = GM_CONTEXT_OWN;
	CUcontext primary = NULL, handle;
	CUdevice device = 0;
	unsigned int flags;
	int active = 0;

	handle = gm_context_handle(id, &role, &device);
	if (role != GM_CONTEXT_PRIMARY ||
	    GM_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) || !active ||
	    GM_REAL(cuDevicePrimaryCtxRetain)(&primary, device))
		return handle;
	if (GM_REAL(cuDevicePrimaryCtxRelease_v2)(device))
		GM_REAL(cuDevicePrimaryCtxRelease)(device);
	tell_end(device);
	if (primary != handle)
		gm_context_seen(primary, device, GM_CONTEXT_PRIMARY);
	return primary;
}

/* A context that has ended meanwhile has no handle and no work: it is not added. */
bool gm_ticket_context(uint32_t id)
{
	uint32_t ends = gm_timeline_ends(timeline);
	int r = 0;

	if (last.id == id && last.ends == ends)
		return true;
	while (!gm_timeline_has(timeline, id)) {
		CUcontext handle;

		ends = gm_timeline_ends(timeline);
		handle = true_handle(id);
		gm_reuse_turn(gm_order_reuse());	/* so that the context has passed all earlier frees */
		r = gm_timeline_add(timeline, id, (uintptr_t)handle, ends);
		if (r == -ENOSPC)
			return false;
		if (!r)
			break;
	}
	last.id = id;
	last.ends = ends;
	return true;
}

void gm_ticket_all_contexts(void)
{
	for (uint32_t id = 0; (id = gm_context_next(id)) != 0;)
		gm_ticket_context(id);
}

bool gm_ticket_covered_by(CUcontext handle, uint32_t id)
{
	return !gm_unseen() && gm_timeline_alone(timeline, id, (uintptr_t)handle);
}

uint32_t gm_ticket_context_of(CUcontext handle)
{
	return gm_timeline_of_handle(timeline, (uintptr_t)handle);
}

void gm_ticket_context_ending(uint32_t id, bool ending)
{
	gm_timeline_ending(timeline, id, ending);
}

void gm_ticket_context_ended(uint32_t id)
{
	gm_timeline_ended(timeline, id);
}

void gm_ticket_touches(uint32_t who, uint32_t whose)
{
	if (timeline)
		gm_timeline_touches(timeline, who, whose);
}

/* ---- the timeline's backend -------------------------------------------------------------------- */

/* Return the result of recording as struct gm_timeline_ops has it. */
static int record_error(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
	case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
	case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
		return -EAGAIN;
	default:
		return -EIO;
	}
}

/* Did the call fail because the context has ended? */
static bool is_of_ended(CUresult result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_DEINITIALIZED ||
	       result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
}

static uint64_t new_event(void *arg, uint32_t context, uint64_t handle)
{
	bool entered = gm_context_enter(context);
	CUevent event = NULL;

	(void)arg;
	(void)handle;
	if (GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING))
		event = NULL;
	gm_context_leave(entered);
	return (uintptr_t)event;
}

static int record_context(void *arg, uint64_t handle, uint64_t event)
{
	(void)arg;
	return record_error(GM_REAL(cuCtxRecordEvent)((CUcontext)(uintptr_t)handle, event_of(event)));
}

static int query_event(void *arg, uint64_t event)
{
	CUresult result = GM_REAL(cuEventQuery)(event_of(event));

	(void)arg;
	if (!result || is_of_ended(result))
		return 1;
	return result == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

static int wait_event(void *arg, uint64_t event)
{
	struct gm_relaxed relaxed;
	CUresult result;

	(void)arg;
	if (gm_in_host_function())
		return -EBUSY;
	relaxed = gm_relax();
	result = GM_REAL(cuEventSynchronize)(event_of(event));
	gm_unrelax(&relaxed);
	return !result || is_of_ended(result) ? 0 : -EIO;
}

static int record_stream(void *arg, uint32_t context, uint64_t stream, uint64_t event)
{
	struct gm_relaxed relaxed = gm_relax();
	enum gm_context_role role;
	CUresult result;
	CUdevice device;

	(void)arg;
	/* An event of ours on the default stream would make streams wait for one another. */
	result = context && stream <= (uintptr_t)CU_STREAM_PER_THREAD
		       ? GM_REAL(cuCtxRecordEvent)(gm_context_handle(context, &role, &device), event_of(event))
		       : GM_REAL(cuEventRecord)(event_of(event), (CUstream)(uintptr_t)stream);
	gm_unrelax(&relaxed);
	return record_error(result);
}

static int is_idle(void *arg, uint32_t context, uint64_t stream)
{
	bool whole = stream <= (uintptr_t)CU_STREAM_PER_THREAD, entered = whole && gm_context_enter(context);
	struct gm_relaxed relaxed = gm_relax();
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;
	enum gm_context_role role;
	CUcontext current = NULL;
	CUdevice device;

	(void)arg;
	/* The default stream is that of the current context, which must be @context. */
	if (!whole || (!GM_REAL(cuCtxGetCurrent)(&current) && current &&
		       current == gm_context_handle(context, &role, &device)))
		result = GM_REAL(cuStreamQuery)((CUstream)(uintptr_t)stream);
	gm_unrelax(&relaxed);
	gm_context_leave(entered);
	return !result ? 1 : result == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

static void around(void *arg, bool begin)
{
	(void)arg;
	if (begin)
		around_relaxed = gm_relax();
	else
		gm_unrelax(&around_relaxed);
}

static void *memory(void *arg, size_t bytes)
{
	(void)arg;
	return gm_map_pages(bytes);
}

const struct gm_timeline_ops gm_ticket_ops = {
	.event = new_event, .record = record_context, .query = query_event, .wait = wait_event, .around = around,
	.record_on = record_stream, .idle = is_idle, .memory = memory,
};

void gm_ticket_start(struct gm_timeline *time)
{
	timeline = time;
}

/* ---- tickets ----------------------------------------------------------------------------------- */

CUevent gm_ticket_event(uint32_t id)
{
	struct gm_mark *mark = gm_ticket_context(id) ? gm_timeline_take(timeline, id) : NULL;
	CUevent event = mark ? event_of(mark->event) : NULL;

	gm_timeline_put(timeline, mark);	/* others may use the event, too, and record it */
	return event;
}

int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket)
{
	struct gm_mark *mark = *ticket ? mark_of(*ticket) : gm_timeline_take(timeline, id);
	struct gm_relaxed relaxed;
	int r;

	if (!mark)
		return -ENOMEM;
	relaxed = gm_relax();
	/* A green context's stream cannot record an event of the primary context. */
	r = stream ? record_error(GM_REAL(cuEventRecord)(event_of(mark->event), stream)) : -EIO;
	if (r == -EIO && whole)
		r = record_context(NULL, mark->track->handle, mark->event);
	gm_unrelax(&relaxed);
	if (r && !*ticket)
		gm_timeline_put(timeline, mark);
	if (!r)
		*ticket = (uint64_t)(uintptr_t)mark;
	return r;
}

static CUresult stream_wait(CUstream stream, bool per_thread, CUevent event)
{
	return per_thread ? GM_REAL(cuStreamWaitEvent_ptsz)(stream, event, 0)
			  : GM_REAL(cuStreamWaitEvent)(stream, event, 0);
}

int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket)
{
	const struct gm_mark *mark = mark_of(ticket);
	struct gm_relaxed relaxed;
	CUresult result;

	if (!mark || gm_mark_has_ended(mark))
		return 0;
	relaxed = gm_relax();
	result = stream_wait(stream, per_thread, event_of(mark->event));
	gm_unrelax(&relaxed);
	return result ? -EIO : 0;
}

int gm_ticket_query(void *arg, uint64_t ticket)
{
	const struct gm_mark *mark = mark_of(ticket);
	struct gm_relaxed relaxed;
	int r;

	if (!mark || gm_mark_has_ended(mark))
		return 1;
	if (mark->track->life == GM_TRACK_ENDING)
		return -EAGAIN;
	relaxed = gm_relax();
	r = query_event(arg, mark->event);
	gm_unrelax(&relaxed);
	return r;
}

CUresult gm_ticket_synchronise(uint64_t ticket)
{
	const struct gm_mark *mark = mark_of(ticket);
	struct gm_relaxed relaxed;
	CUresult result;

	if (!mark || mark->track->life != GM_TRACK_LIVE)
		return CUDA_SUCCESS;
	relaxed = gm_relax();
	result = GM_REAL(cuEventSynchronize)(event_of(mark->event));
	gm_unrelax(&relaxed);
	return is_of_ended(result) ? CUDA_SUCCESS : result;
}

void gm_ticket_drop(void *arg, uint64_t ticket)
{
	(void)arg;
	gm_timeline_put(timeline, mark_of(ticket));
}
