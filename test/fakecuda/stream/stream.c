/*
 * stream.c - streams and the order of work in them.
 *
 * Work follows its stream's tail. The legacy stream waits for the tails of all blocking streams of
 * its context, and they wait for the legacy stream's. A destroyed stream's handle is free at once;
 * the stream lives on until its last operation has ended. The default streams are made when first
 * used: one legacy stream a context, one per-thread stream a context and thread.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/stream/clock.h"
#include "test/fakecuda/stream/stream.h"
#include "test/fakecuda/stream/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fc_stream *fc_stream_new(struct fc_ctx *ctx, unsigned int flags, int priority)
{
	struct fc_stream *s = calloc(1, sizeof(*s));
	struct fc_stream **at = &ctx->streams;

	if (!s)
		return NULL;
	while (*at)
		at = &(*at)->next;
	s->refs = 1;
	s->ctx = fc_ctx_ref(ctx);
	s->id = ++fc.next_id;
	s->flags = flags;
	s->priority = priority;
	s->prevp = at;
	*at = s;
	return s;
}

struct fc_stream *fc_stream_ref(struct fc_stream *s)
{
	s->refs++;
	return s;
}

void fc_stream_put(struct fc_stream *s)
{
	if (!s || --s->refs)
		return;
	fc_race_stream_ended(s);
	fc_ctx_put(s->ctx);
	free(s);
}

/* Out of its context, references of both directions dropped. */
static void bury(struct fc_stream *s)
{
	struct fc_op *tail = s->tail, *kernel = s->last_kernel;

	if (!s->prevp)
		return;
	*s->prevp = s->next;
	if (s->next)
		s->next->prevp = s->prevp;
	s->prevp = NULL;
	s->tail = NULL;
	s->last_kernel = NULL;
	fc_op_put(kernel);
	fc_op_put(tail);
	fc_stream_put(s);
}

void fc_stream_op_done(struct fc_op *op)
{
	struct fc_stream *s = op->stream;

	if (s && s->destroyed && s->tail == op)
		bury(s);
}

void fc_stream_destroy(struct fc_stream *s)
{
	if (s->destroyed)
		return;
	fc_capture_stream_ended(s);
	fc_waiting_stream_ended(s);
	if (s->handle)
		fc_handle_drop(s->handle);
	s->handle = NULL;
	s->destroyed = true;
	if (fc_op_done(s->tail))
		bury(s);
}

void fc_stream_ctx_ended(struct fc_ctx *ctx)
{
	struct fc_stream *next;

	for (struct fc_stream *s = ctx->streams; s; s = next) {
		next = s->next;
		fc_stream_destroy(s);
	}
	ctx->legacy = NULL;
}

void fc_stream_thread_ended(uint64_t thread_id)
{
	for (struct fc_ctx *ctx = fc.ctxs; ctx; ctx = ctx->next) {
		struct fc_stream *next;

		for (struct fc_stream *s = ctx->streams; s; s = next) {
			next = s->next;
			if (s->per_thread && s->thread_id == thread_id)
				fc_stream_destroy(s);
		}
	}
}

/* ---- finding ---- */

static CUresult legacy_stream(struct fc_ctx *ctx, struct fc_stream **ret_s)
{
	ctx = ctx->base;
	if (!ctx->legacy) {
		ctx->legacy = fc_stream_new(ctx, 0, 0);
		if (!ctx->legacy)
			return CUDA_ERROR_OUT_OF_MEMORY;
		ctx->legacy->legacy = true;
	}
	*ret_s = ctx->legacy;
	return CUDA_SUCCESS;
}

static CUresult thread_stream(struct fc_ctx *ctx, struct fc_stream **ret_s)
{
	uint64_t me = fc_thread_id();
	struct fc_stream *s;

	ctx = ctx->base;
	for (s = ctx->streams; s; s = s->next)
		if (s->per_thread && s->thread_id == me && !s->destroyed)
			break;
	if (!s) {
		s = fc_stream_new(ctx, 0, 0);
		if (!s)
			return CUDA_ERROR_OUT_OF_MEMORY;
		s->per_thread = true;
		s->thread_id = me;
	}
	*ret_s = s;
	return CUDA_SUCCESS;
}

CUresult fc_stream_get(CUstream h, struct fc_stream **ret_s)
{
	struct fc_stream *s;
	struct fc_ctx *ctx;
	CUresult r;

	if (h && h != CU_STREAM_LEGACY && h != CU_STREAM_PER_THREAD) {
		s = fc_handle_get(h, FC_H_STREAM);
		if (!s)
			return CUDA_ERROR_INVALID_HANDLE;
		*ret_s = s;
		return s->ctx->sticky;
	}
	r = fc_ctx_current(&ctx);
	if (r)
		return r;
	if (h == CU_STREAM_PER_THREAD || (!h && fc_tls.ptds))
		return thread_stream(ctx, ret_s);
	return legacy_stream(ctx, ret_s);
}

/* ---- order ---- */

static bool blocking(const struct fc_stream *s)
{
	return !s->legacy && !(s->flags & CU_STREAM_NON_BLOCKING);
}

int fc_op_order(struct fc_op *op, struct fc_stream *s)
{
	if (!fc_waiting_order(op, s) && fc_op_after(op, s->tail, FC_AFTER_END))
		return -ENOMEM;
	if (fc_op_after(op, s->ctx->barrier, FC_AFTER_END))
		return -ENOMEM;
	if (s->legacy) {
		for (struct fc_stream *o = s->ctx->streams; o; o = o->next)
			if (blocking(o) && fc_op_after(op, o->tail, FC_AFTER_END))
				return -ENOMEM;
	} else if (blocking(s) && s->ctx->legacy) {
		return fc_op_after(op, s->ctx->legacy->tail, FC_AFTER_END);
	}
	return 0;
}

void fc_stream_push(struct fc_stream *s, struct fc_op *op)
{
	struct fc_op *old = s->tail, *old_kernel = NULL;

	s->tail = fc_op_get(op);
	if (op->work->kind == FC_WORK_KERNEL) {
		old_kernel = s->last_kernel;
		s->last_kernel = fc_op_get(op);
	}
	fc_op_put(old);
	fc_op_put(old_kernel);
}

CUresult fc_submit(struct fc_stream *s, struct fc_work *w, struct fc_op **ret_op)
{
	struct fc_op *op;
	CUresult r;

	if (ret_op)
		*ret_op = NULL;
	if (s->ctx->sticky)
		return s->ctx->sticky;
	if (fc_capture_on(s))
		return fc_capture_add(s, w);
	r = fc_capture_legacy(s);
	if (r)
		return r;
	op = fc_op_new(s->ctx, s, w);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fc_op_order(op, s)) {
		fc_op_put(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_stream_push(s, op);
	fc_op_commit(op);
	if (ret_op)
		*ret_op = op;
	else
		fc_op_put(op);
	return CUDA_SUCCESS;
}

CUresult fc_stream_marker(struct fc_stream *s, const char *name, struct fc_op **ret_op)
{
	struct fc_work *w = fc_work_new(sizeof(*w), FC_WORK_MARKER, name, s->ctx, 0);
	CUresult r;

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fc_submit(s, w, ret_op);
	fc_work_put(w);
	return r;
}

/* Complete as the host sees it; the legacy stream stands for the blocking ones too. */
static bool idle(const struct fc_stream *s)
{
	if (!fc_op_done(s->tail))
		return false;
	if (s->legacy)
		for (const struct fc_stream *o = s->ctx->streams; o; o = o->next)
			if (blocking(o) && !fc_op_done(o->tail))
				return false;
	return true;
}

static void saw(const struct fc_stream *s)
{
	if (s->tail)
		fc_race_host_saw(s->tail);
	if (s->legacy)
		for (const struct fc_stream *o = s->ctx->streams; o; o = o->next)
			if (blocking(o) && o->tail)
				fc_race_host_saw(o->tail);
}

CUresult fc_stream_sync(struct fc_stream *s, const char *why)
{
	struct fc_op *op;
	CUresult r;

	if (s->legacy && !idle(s)) {
		r = fc_stream_marker(s, why, &op);
		if (r)
			return r;
		r = fc_wait_op(op, why);
		fc_op_put(op);
	} else {
		fc_stream_ref(s);
		r = fc_wait_stream(s, why);
		if (!r)
			saw(s);
		r = r ? r : s->ctx->sticky;
		fc_stream_put(s);
		return r;
	}
	return r ? r : s->ctx->sticky;
}

CUresult fc_cuStreamSynchronize(CUstream hStream)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	r = fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s);
	return r ? r : fc_stream_sync(s, "cuStreamSynchronize");
}

CUresult fc_cuStreamQuery(CUstream hStream)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	r = fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s);
	if (r)
		return r;
	fc_stream_ref(s);
	fc_clock_step();
	r = s->ctx->sticky;
	if (!r && idle(s))
		saw(s);
	else if (!r)
		r = CUDA_ERROR_NOT_READY;
	fc_stream_put(s);
	return r;
}
