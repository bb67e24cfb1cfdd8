/*
 * capture_rule.c - what is refused while something captures. Each refusal also invalidates the
 * captures that are the reason for it (seen on an H200).
 *
 *   capture in mode   refuses calls that may interfere
 *   GLOBAL            from every thread (but those in THREAD_LOCAL or RELAXED mode, if not its own)
 *   THREAD_LOCAL      from the thread that began it
 *   RELAXED           none
 *
 * A thread in RELAXED mode is refused none of them. Synchronising with a context that captures, or
 * recording an event in it, is refused in all modes and to all; so is synchronising with a stream
 * that captures, and giving the legacy stream work while a blocking stream of its context captures.
 * All under fc.lock.
 */
#include "test/fakecuda/graph/capture.h"

static bool refuses(const struct capture *c)
{
	bool own = c->thread == fc_thread_id();

	if (fc_tls.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
	    c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return own || (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		       fc_tls.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult check_call(void)
{
	CUresult r = CUDA_SUCCESS;

	for (struct capture *c = cap_first(); c; c = c->next)
		if (refuses(c)) {
			cap_invalidate(c);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return r;
}

static CUresult check_ctx(const struct fc_ctx *ctx)
{
	CUresult r = CUDA_SUCCESS;

	for (struct fc_stream *s = ctx->captures ? ctx->streams : NULL; s; s = s->next)
		if (s->capture) {
			cap_invalidate(cap_of(s)->cap);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return r;
}

CUresult fc_capture_check(enum fc_unsafe what, struct fc_ctx *ctx, struct fc_stream *s)
{
	switch (what) {
	case FC_UNSAFE_CTX:
		return check_ctx(ctx->base);
	case FC_UNSAFE_STREAM:
		if (s->capture) {
			cap_invalidate(cap_of(s)->cap);
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
		return check_call();
	default:
		return check_call();
	}
}

static bool blocking(const struct fc_stream *s)
{
	return !(s->flags & CU_STREAM_NON_BLOCKING);
}

CUresult fc_capture_legacy(struct fc_stream *s)
{
	CUresult r = CUDA_SUCCESS;

	if (!s->legacy || !s->ctx->captures)
		return CUDA_SUCCESS;
	for (struct fc_stream *o = s->ctx->streams; o; o = o->next)
		if (o->capture && blocking(o)) {
			cap_invalidate(cap_of(o)->cap);
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

CUresult fc_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = fc_tls.capture_mode;

	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	fc_tls.capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
