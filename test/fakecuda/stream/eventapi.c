/*
 * eventapi.c - the entries for events. Lock: fc.lock.
 */
#include "test/fakecuda/stream/event.h"
#include "test/fakecuda/memory/ipc.h"

CUresult fc_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
				   CU_EVENT_INTERPROCESS;
	struct fc_ctx *ctx;
	struct fc_event *e;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!phEvent || (Flags & ~known) ||
	    ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_event_make(ctx, Flags, &e);
	if (!r)
		*phEvent = e->handle;
	return r;
}

CUresult fc_cuEventDestroy_v2(CUevent hEvent)
{
	struct fc_event *e;
	CUresult r = fc_event_get(hEvent, &e);

	if (r)
		return r;
	fc_capture_event_ended(e);
	e->handle = NULL;
	fc_handle_drop(hEvent);
	fc_event_put(e);
	return CUDA_SUCCESS;
}

CUresult fc_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	struct fc_event *e;
	struct fc_stream *s;
	CUresult r = fc_event_get(hEvent, &e);

	r = r ? r : fc_stream_get(hStream, &s);
	if (r)
		return r;
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return fc_event_record(e, s, flags);
}

CUresult fc_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return fc_cuEventRecordWithFlags(hEvent, hStream, 0);
}

CUresult fc_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct fc_event *e;
	struct fc_stream *s;
	CUresult r = fc_event_get(hEvent, &e);

	r = r ? r : fc_stream_get(hStream, &s);
	if (r)
		return r;
	if (Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return fc_event_wait(e, s, Flags);
}

CUresult fc_cuEventQuery(CUevent hEvent)
{
	struct fc_event *e;
	CUresult r = fc_event_get(hEvent, &e);

	if (r)
		return r;
	if (e->ctx->sticky)
		return e->ctx->sticky;
	r = fc_capture_event_check(e);
	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, e->ctx, NULL);
	if (r)
		return r;
	fc_event_ref(e);
	if (!fc_tls.in_host_function)	/* which is a part of what is going on */
		fc_clock_step();
	r = e->ctx->sticky;
	if (!r && !fc_event_done(e))
		r = CUDA_ERROR_NOT_READY;
	if (!r && e->op)
		fc_race_host_saw(e->op);
	fc_event_put(e);
	return r;
}

/* An event of another process too is waited for by an operation, as everything is. */
static CUresult wait_shared(struct fc_event *e)
{
	struct fc_work *w;
	struct fc_op *op;
	CUresult r = fc_ipc_event_marker(e, e->ctx, &w);

	if (r)
		return r;
	op = fc_op_new(e->ctx, NULL, w);
	fc_work_put(w);
	if (!op || fc_op_after(op, e->op, FC_AFTER_END)) {
		fc_op_put(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_op_commit(op);
	r = fc_wait_op(op, "cuEventSynchronize");
	fc_op_put(op);
	return r;
}

CUresult fc_cuEventSynchronize(CUevent hEvent)
{
	struct fc_event *e;
	CUresult r = fc_event_get(hEvent, &e);

	if (r)
		return r;
	if (e->ctx->sticky)
		return e->ctx->sticky;
	r = fc_capture_event_check(e);
	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, e->ctx, NULL);
	if (r)
		return r;
	fc_event_ref(e);
	r = e->ipc ? wait_shared(e) : fc_wait_op(e->op, "cuEventSynchronize");
	r = r ? r : e->ctx->sticky;
	fc_event_put(e);
	return r;
}

CUresult fc_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	struct fc_event *a, *b;
	CUresult r = fc_event_get(hStart, &a);

	r = r ? r : fc_event_get(hEnd, &b);
	if (r)
		return r;
	if (!pMilliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_capture_event_check(a);
	r = r ? r : fc_capture_event_check(b);
	if (r)
		return r;
	if (!a->op || !b->op || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) ||
	    a->ctx != b->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!fc_event_done(a) || !fc_event_done(b))
		return CUDA_ERROR_NOT_READY;
	*pMilliseconds = (float)((double)b->op->end_ns / 1e6 - (double)a->op->end_ns / 1e6);
	return CUDA_SUCCESS;
}

CUresult fc_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_get(hCtx, &ctx);

	return r ? r : fc_event_record_ctx(ctx, ctx->green, hEvent);
}

CUresult fc_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_get(hCtx, &ctx);

	return r ? r : fc_event_wait_ctx(ctx, ctx->green, hEvent);
}
