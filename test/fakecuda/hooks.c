/*
 * hooks.c - what the hook points of internal.h do where no other file takes them over: nothing.
 *
 * Weak definitions: capture.c, graph.c, race.c and waiting.c define strong ones. Context: as each
 * hook's declaration says.
 */
#include "test/fakecuda/internal.h"

FC_WEAK CUresult fc_capture_check(enum fc_unsafe what, struct fc_ctx *ctx, struct fc_stream *s)
{
	(void)what;
	(void)ctx;
	(void)s;
	return CUDA_SUCCESS;
}

FC_WEAK bool fc_capture_on(struct fc_stream *s)
{
	(void)s;
	return false;
}

FC_WEAK CUresult fc_capture_add(struct fc_stream *s, struct fc_work *w)
{
	(void)s;
	(void)w;
	return CUDA_ERROR_NOT_SUPPORTED;
}

FC_WEAK CUresult fc_capture_legacy(struct fc_stream *s)
{
	(void)s;
	return CUDA_SUCCESS;
}

FC_WEAK bool fc_capture_record(struct fc_stream *s, struct fc_event *e, unsigned int flags,
			       CUresult *ret_result)
{
	(void)s;
	(void)e;
	(void)flags;
	(void)ret_result;
	return false;
}

FC_WEAK bool fc_capture_wait(struct fc_stream *s, struct fc_event *e, unsigned int flags,
			     CUresult *ret_result)
{
	(void)s;
	(void)e;
	(void)flags;
	(void)ret_result;
	return false;
}

FC_WEAK CUresult fc_capture_alloc(struct fc_stream *s, size_t size, struct fc_pool *pool,
				  CUdeviceptr *ret_ptr)
{
	(void)s;
	(void)size;
	(void)pool;
	(void)ret_ptr;
	return CUDA_ERROR_NOT_SUPPORTED;
}

FC_WEAK CUresult fc_capture_free(struct fc_stream *s, CUdeviceptr ptr)
{
	(void)s;
	(void)ptr;
	return CUDA_ERROR_NOT_SUPPORTED;
}

FC_WEAK CUresult fc_capture_event_check(struct fc_event *e)
{
	(void)e;
	return CUDA_SUCCESS;
}

FC_WEAK void fc_waiting_kernel(struct fc_work *w, const struct fc_kernel *k, void *const *args)
{
	(void)w;
	(void)k;
	(void)args;
}

FC_WEAK CUresult fc_graph_free(struct fc_alloc *a, struct fc_stream *s)
{
	(void)a;
	(void)s;
	return CUDA_ERROR_INVALID_VALUE;
}

FC_WEAK bool fc_waiting_order(struct fc_op *op, struct fc_stream *s)
{
	(void)op;
	(void)s;
	return false;
}

FC_WEAK CUresult fc_waiting_stuck(struct fc_wait *w)
{
	(void)w;
	return CUDA_SUCCESS;
}

#define NOTHING(name, type) FC_WEAK void name(type x) { (void)x; }
NOTHING(fc_capture_stream_ended, struct fc_stream *)
NOTHING(fc_capture_event_ended, struct fc_event *)
NOTHING(fc_graph_ctx_ended, struct fc_ctx *)
NOTHING(fc_race_submit, struct fc_op *)
NOTHING(fc_race_op_ended, struct fc_op *)
NOTHING(fc_race_wait_over, struct fc_op *)
NOTHING(fc_race_stream_ended, struct fc_stream *)
NOTHING(fc_race_host_saw, struct fc_op *)
NOTHING(fc_capture_dump, int)
NOTHING(fc_graph_dump, int)
NOTHING(fc_race_dump, int)
NOTHING(fc_waiting_dump, int)

#define NOTHING_2(name, type_1, type_2) \
	FC_WEAK void name(type_1 x, type_2 y) { (void)x; (void)y; }
NOTHING_2(fc_race_host_saw_ctx, struct fc_ctx *, uint64_t)
NOTHING_2(fc_race_alloc, struct fc_alloc *, struct fc_op *)
NOTHING_2(fc_race_free, struct fc_alloc *, struct fc_op *)
NOTHING_2(fc_race_unmap, uint64_t, size_t)
NOTHING_2(fc_race_word_seen, struct fc_op *, uint64_t)
NOTHING_2(fc_race_word_written, struct fc_op *, uint64_t)
NOTHING_2(fc_race_object_signalled, struct fc_op *, const void *)
NOTHING_2(fc_race_object_seen, struct fc_op *, const void *)

FC_WEAK void fc_capture_reset(void) {}
FC_WEAK void fc_graph_reset(void) {}
FC_WEAK void fc_race_reset(void) {}
FC_WEAK void fc_waiting_reset(void) {}
