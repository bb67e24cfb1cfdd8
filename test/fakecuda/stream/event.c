/*
 * event.c - events: a mark in a stream, or behind all streams of a context.
 *
 * An event stands for the marker operation of its last record. A handle dropped by cuEventDestroy
 * is given out again; whatever waits for the marker goes on waiting for it. Lock: fc.lock.
 */
#include "test/fakecuda/stream/event.h"

#include <stdlib.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/ipc.h"

static struct fc_event *events;		/* live ones, for fc_event_ctx_ended */

CUresult fc_event_make(struct fc_ctx *ctx, unsigned int flags, struct fc_event **ret_e)
{
	struct fc_event *e = calloc(1, sizeof(*e));

	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->handle = fc_handle_new(FC_H_EVENT, e);
	if (!e->handle) {
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e->refs = 1;
	e->ctx = fc_ctx_ref(ctx->base);
	e->flags = flags;
	e->id = ++fc.next_id;
	e->next = events;
	e->prevp = &events;
	if (events)
		events->prevp = &e->next;
	events = e;
	*ret_e = e;
	return CUDA_SUCCESS;
}

struct fc_event *fc_event_ref(struct fc_event *e)
{
	e->refs++;
	return e;
}

void fc_event_put(struct fc_event *e)
{
	if (!e || --e->refs)
		return;
	*e->prevp = e->next;
	if (e->next)
		e->next->prevp = e->prevp;
	fc_ipc_event_drop(e);
	fc_op_put(e->op);
	fc_ctx_put(e->ctx);
	free(e);
}

static void destroy(struct fc_event *e)
{
	if (!e->handle)
		return;
	fc_capture_event_ended(e);
	fc_handle_drop(e->handle);
	e->handle = NULL;
	fc_event_put(e);
}

static void destroy_all(struct fc_ctx *ctx)
{
	struct fc_event *next;

	for (struct fc_event *e = events; e; e = next) {
		next = e->next;
		if (!ctx || e->ctx == ctx)
			destroy(e);
	}
}

void fc_event_ctx_ended(struct fc_ctx *ctx)
{
	destroy_all(ctx);
}

void fc_event_reset(void)
{
	destroy_all(NULL);
}

CUresult fc_event_get(CUevent h, struct fc_event **ret_e)
{
	struct fc_event *e = fc_handle_get(h, FC_H_EVENT);

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_e = e;
	return CUDA_SUCCESS;
}

bool fc_event_done(const struct fc_event *e)
{
	return e->ipc ? fc_ipc_event_done(e) : fc_op_done(e->op);
}

void fc_event_set_op(struct fc_event *e, struct fc_op *op)
{
	struct fc_op *old = e->op;

	fc_capture_event_ended(e);
	e->op = op ? fc_op_get(op) : NULL;
	fc_op_put(old);
}

/* ---- in a stream ---- */

static CUresult submit(struct fc_stream *s, struct fc_work *w, struct fc_op *after,
		       struct fc_event *shared, struct fc_op **ret_op)
{
	struct fc_op *op = fc_op_new(s->ctx, s, w);
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (op && !fc_op_order(op, s) && !fc_op_after(op, after, FC_AFTER_END)) {
		if (shared)
			fc_ipc_event_record(shared, op);
		fc_stream_push(s, op);
		fc_op_commit(op);
		if (ret_op)
			*ret_op = fc_op_get(op);
		r = CUDA_SUCCESS;
	}
	fc_op_put(op);
	return r;
}

static CUresult submit_marker(struct fc_stream *s, const char *name, struct fc_op *after,
			      struct fc_event *shared, struct fc_op **ret_op)
{
	struct fc_work *w = fc_work_new(sizeof(*w), FC_WORK_MARKER, name, s->ctx, 0);
	CUresult r = w ? submit(s, w, after, shared, ret_op) : CUDA_ERROR_OUT_OF_MEMORY;

	fc_work_put(w);
	return r;
}

CUresult fc_event_record(struct fc_event *e, struct fc_stream *s, unsigned int flags)
{
	struct fc_op *op;
	CUresult r;

	if (e->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fc_capture_record(s, e, flags, &r))
		return r;
	r = fc_capture_legacy(s);
	r = r ? r : submit_marker(s, "cuEventRecord", NULL, e->ipc ? e : NULL, &op);
	if (r)
		return r;
	fc_event_set_op(e, op);
	if (e->ipc)
		fc_ipc_event_resolve(op);
	fc_op_put(op);
	return CUDA_SUCCESS;
}

CUresult fc_event_wait(struct fc_event *e, struct fc_stream *s, unsigned int flags)
{
	struct fc_work *w;
	CUresult r;

	if (fc_capture_wait(s, e, flags, &r))
		return r;
	r = fc_capture_legacy(s);
	if (r || (!e->op && !e->ipc))
		return r;
	if (!e->ipc)
		return submit_marker(s, "cuStreamWaitEvent", e->op, NULL, NULL);
	r = fc_ipc_event_marker(e, s->ctx, &w);
	r = r ? r : submit(s, w, e->op, NULL, NULL);
	fc_work_put(w);
	return r;
}

/* ---- of a whole context ---- */

/* A marker without a stream: nothing in any stream comes after it by itself. */
static CUresult ctx_marker(struct fc_ctx *ctx, struct fc_green *green, const char *name,
			   struct fc_op *after, struct fc_op **ret_op)
{
	struct fc_work *w = fc_work_new(sizeof(*w), FC_WORK_MARKER, name, ctx, 0);
	struct fc_op *op = w ? fc_op_new(ctx, NULL, w) : NULL;
	CUresult r = op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!r && fc_op_after(op, after, FC_AFTER_END))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	for (struct fc_stream *s = ctx->streams; s && !r && !after; s = s->next)
		if ((!green || s->green == green) && fc_op_after(op, s->tail, FC_AFTER_END))
			r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r && after && fc_op_after(op, ctx->barrier, FC_AFTER_END))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r) {
		fc_op_commit(op);
		*ret_op = fc_op_get(op);
	}
	fc_op_put(op);
	fc_work_put(w);
	return r;
}

CUresult fc_event_record_ctx(struct fc_ctx *ctx, struct fc_green *green, CUevent h)
{
	struct fc_event *e;
	struct fc_op *op;
	CUresult r = fc_event_get(h, &e);

	if (r)
		return r;
	if (e->ctx != ctx->base)
		return CUDA_ERROR_INVALID_HANDLE;
	r = fc_capture_check(FC_UNSAFE_CTX, ctx->base, NULL);
	r = r ? r : ctx_marker(ctx->base, green, "cuCtxRecordEvent", NULL, &op);
	if (r)
		return r;
	fc_event_set_op(e, op);
	fc_op_put(op);
	return CUDA_SUCCESS;
}

CUresult fc_event_wait_ctx(struct fc_ctx *ctx, struct fc_green *green, CUevent h)
{
	struct fc_event *e;
	struct fc_op *op;
	CUresult r = fc_event_get(h, &e);

	if (r)
		return r;
	r = fc_capture_check(FC_UNSAFE_CTX, ctx->base, NULL);
	if (r || !e->op)
		return r;
	for (struct fc_stream *s = ctx->base->streams; green && s && !r; s = s->next)
		if (s->green == green && !s->destroyed)
			r = submit_marker(s, "cuGreenCtxWaitEvent", e->op, NULL, NULL);
	if (r || green)
		return r;
	r = ctx_marker(ctx->base, NULL, "cuCtxWaitEvent", e->op, &op);
	if (r)
		return r;
	fc_op_put(ctx->base->barrier);
	ctx->base->barrier = op;
	return CUDA_SUCCESS;
}
