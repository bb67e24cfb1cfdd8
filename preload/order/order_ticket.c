/*
 * order_ticket.c - tickets of reuse.h: CUDA events, one for each context that was given work.
 *
 * A ticket is the number of its first part (order_part.c); 0: nothing was ever submitted.
 *
 * A stream that is destroyed goes on with its work, which the event of its context covers as any
 * other (test/conformance, "destroyed streams").
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one leaf, never held over a driver call.
 */
#include <errno.h>

#include "allocator/lock.h"
#include "allocator/rules.h"
#include "preload/order/order_internal.h"

/* ---- tickets ----------------------------------------------------------------------------------- */

/* A result of recording, as struct gm_reuse_ops wants it. */
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

/* Is it the context that is gone, rather than the call that failed? */
static bool is_gone(CUresult result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_DEINITIALIZED ||
	       result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
}

/* One more part for @ticket. 0; nothing to do where the context is gone or nobody's. */
static int record_part(uint32_t at, uint32_t *ticket)
{
	struct gm_part view;
	uint32_t part;
	uint8_t life;
	int r;

	gm_given_at(at, &life);
	if (life == GM_GIVEN_UNUSED || life == GM_GIVEN_ENDED)
		return 0;
	if (life == GM_GIVEN_ENDING)
		return -EAGAIN;
	part = gm_part_new(at);
	if (!part || !gm_part_look(part, &view))
		return -ENOMEM;
	r = record_error(GM_REAL(cuCtxRecordEvent)(view.handle, view.event));
	if (r) {
		gm_parts_drop(part);
		return r;
	}
	if (!gm_parts_link(part, *ticket))
		return -EBUSY;
	*ticket = part;
	return 0;
}

int gm_ticket_record_all(void *arg, uint64_t *ret_ticket)
{
	struct gm_relaxed relaxed;
	uint32_t ticket = 0;
	uint8_t life;
	int r = 0;

	(void)arg;
	/* Where work is not seen it may be in any context. */
	if (gm_order_unseen())
		for (uint32_t id = 0; (id = gm_context_next(id)) != 0;)
			gm_ticket_context(id);
	if (gm_given_count() == UINT32_MAX)
		return -ENOSPC;
	relaxed = gm_relax();
	for (uint32_t at = 0; !r && at < gm_given_count(); at++)
		if (gm_rule(GM_RULE_ALL_CONTEXTS) || gm_given_at(at, &life) == gm_given_last())
			r = record_part(at, &ticket);
	gm_unrelax(&relaxed);
	if (r) {
		gm_parts_drop(ticket);
		return r;
	}
	*ret_ticket = ticket;
	return 0;
}

int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket)
{
	uint32_t part = (uint32_t)*ticket, at;
	struct gm_relaxed relaxed;
	struct gm_part view;
	uint8_t life;
	int r;

	for (at = 0; !part && at < gm_given_count(); at++) {
		if (gm_given_at(at, &life) == id && life == GM_GIVEN_LIVE) {
			part = gm_part_new(at);
			break;
		}
	}
	if (!part || !gm_part_look(part, &view))
		return -ENOMEM;
	relaxed = gm_relax();
	/* A green context's stream may not take an event of the primary one. */
	r = stream ? record_error(GM_REAL(cuEventRecord)(view.event, stream)) : -EIO;
	if (r == -EIO && whole)
		r = record_error(GM_REAL(cuCtxRecordEvent)(view.handle, view.event));
	gm_unrelax(&relaxed);
	if (r && !*ticket)
		gm_parts_drop(part);
	if (!r)
		*ticket = part;
	return r;
}

int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	struct gm_part view;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t part = (uint32_t)ticket; part && !result; part = view.next) {
		if (!gm_part_look(part, &view)) {
			result = CUDA_ERROR_UNKNOWN;
			break;
		}
		if (view.life == GM_GIVEN_ENDED || view.life == GM_GIVEN_UNUSED)
			continue;
		result = per_thread ? GM_REAL(cuStreamWaitEvent_ptsz)(stream, view.event, 0)
				    : GM_REAL(cuStreamWaitEvent)(stream, view.event, 0);
	}
	gm_unrelax(&relaxed);
	return result ? -EIO : 0;
}

/* 1: complete; 0: not yet; -errno. */
static int query_part(const struct gm_part *view)
{
	CUresult result;

	if (view->life == GM_GIVEN_ENDED || view->life == GM_GIVEN_UNUSED)
		return 1;
	if (view->life == GM_GIVEN_ENDING)
		return -EAGAIN;
	result = GM_REAL(cuEventQuery)(view->event);
	if (!result || is_gone(result))
		return 1;
	return result == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

int gm_ticket_query(void *arg, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	struct gm_part view;
	int r = 1;

	(void)arg;
	for (uint32_t part = (uint32_t)ticket; part && r == 1; part = view.next)
		r = gm_part_look(part, &view) ? query_part(&view) : -EBUSY;
	gm_unrelax(&relaxed);
	return r;
}

uint32_t gm_ticket_progress(void *arg, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	struct gm_part view;
	uint32_t count = 0;

	(void)arg;
	for (uint32_t part = (uint32_t)ticket; part && gm_part_look(part, &view); part = view.next)
		count += query_part(&view) == 1;
	gm_unrelax(&relaxed);
	return count;
}

static bool is_among(uint32_t context, const uint32_t *contexts, size_t count)
{
	if (!contexts)
		return true;
	for (size_t i = 0; i < count; i++)
		if (contexts[i] == context)
			return true;
	return false;
}

static int wait_part(const struct gm_part *view)
{
	CUresult result;

	if (view->life != GM_GIVEN_LIVE)
		return view->life == GM_GIVEN_ENDING ? -EAGAIN : 0;
	result = GM_REAL(cuEventSynchronize)(view->event);
	return !result || is_gone(result) ? 0 : -EIO;
}

int gm_ticket_wait(void *arg, uint64_t ticket, const uint32_t *contexts, size_t count)
{
	struct gm_relaxed relaxed;
	struct gm_part view;
	int r = 0;

	(void)arg;
	if (gm_in_host_function())
		return -EBUSY;
	relaxed = gm_relax();
	for (uint32_t part = (uint32_t)ticket; part && !r; part = view.next) {
		if (!gm_part_look(part, &view))
			r = -EBUSY;
		else if (!is_among(view.context, contexts, count) && query_part(&view) != 1)
			r = -EBUSY;
	}
	for (uint32_t part = (uint32_t)ticket; part && !r; part = view.next) {
		if (!gm_part_look(part, &view))
			r = -EBUSY;
		else if (is_among(view.context, contexts, count))
			r = wait_part(&view);
	}
	gm_unrelax(&relaxed);
	return r;
}

CUresult gm_ticket_synchronise(uint64_t ticket)
{
	struct gm_relaxed relaxed;
	struct gm_part view;
	CUresult result;

	if (!gm_part_look((uint32_t)ticket, &view) || view.life != GM_GIVEN_LIVE)
		return CUDA_SUCCESS;
	relaxed = gm_relax();
	result = GM_REAL(cuEventSynchronize)(view.event);
	gm_unrelax(&relaxed);
	return is_gone(result) ? CUDA_SUCCESS : result;
}

void gm_ticket_drop(void *arg, uint64_t ticket)
{
	(void)arg;
	gm_parts_drop((uint32_t)ticket);
}

static int record_all(void *arg)
{
	return gm_ticket_record_all(NULL, arg);
}

bool gm_order_ticket(uint64_t *ret_ticket)
{
	return gm_order_on && !gm_reuse_in_order(gm_order_reuse(), record_all, ret_ticket);
}

bool gm_order_ticket_query(uint64_t ticket)
{
	return gm_ticket_query(NULL, ticket) == 1;
}

void gm_order_ticket_drop(uint64_t ticket)
{
	gm_ticket_drop(NULL, ticket);
}

bool gm_order_behind_all(CUstream own)
{
	uint64_t ticket = 0;
	bool done;

	if (!gm_order_ticket(&ticket))
		return false;
	done = !gm_ticket_stream_wait(own, false, ticket);
	gm_ticket_drop(NULL, ticket);
	return done;
}
