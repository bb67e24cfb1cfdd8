/*
 * capture_event.c - events recorded in captures: how a capture forks into other streams and how
 * they are joined again.
 *
 * An event recorded in a capture stands for the nodes its stream had come to; a stream that waits
 * for it takes part in the capture and goes on after them. Such an event has no completion that
 * anybody could ask for: 907. All under fc.lock.
 */
#include "test/fakecuda/graph/capture.h"

#include <stdlib.h>

void fc_capture_event_ended(struct fc_event *e)
{
	struct cap_event *ce = e->capture;

	if (!ce)
		return;
	e->capture = NULL;
	*ce->prevp = ce->next;
	if (ce->next)
		ce->next->prevp = ce->prevp;
	cap_put(ce->cap);
	cap_set_clear(&ce->nodes);
	free(ce);
}

CUresult fc_capture_event_check(struct fc_event *e)
{
	const struct cap_event *ce = e->capture;

	if (!ce)
		return CUDA_SUCCESS;
	cap_invalidate(ce->cap);
	return CUDA_ERROR_CAPTURED_EVENT;
}

/* ---- record ---- */

static CUresult set_event(struct fc_event *e, const struct cap_stream *cs)
{
	struct cap_event *ce = calloc(1, sizeof(*ce));

	if (!ce)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (cap_set_union(&ce->nodes, &cs->deps)) {
		cap_set_clear(&ce->nodes);
		free(ce);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_capture_event_ended(e);
	ce->cap = cs->cap;
	ce->cap->refs++;
	ce->next = ce->cap->events;
	ce->prevp = &ce->cap->events;
	if (ce->next)
		ce->next->prevp = &ce->next;
	ce->cap->events = ce;
	e->capture = ce;
	return CUDA_SUCCESS;
}

static CUresult event_node(struct cap_stream *cs, struct fc_event *e, bool record)
{
	struct fc_node *n;
	CUresult r = fc_node_of_event(cs->cap->graph, e, record, cs->deps.e, cs->deps.n, &n);

	if (r)
		return r;
	cap_set_clear(&cs->deps);
	return cap_set_add(&cs->deps, n, NULL);
}

bool fc_capture_record(struct fc_stream *s, struct fc_event *e, unsigned int flags,
		       CUresult *ret_result)
{
	struct cap_stream *cs = cap_of(s);

	if (!cs && !(flags & CU_EVENT_RECORD_EXTERNAL))
		return false;
	if (!cs)
		*ret_result = CUDA_ERROR_INVALID_VALUE;
	else if (cs->cap->invalid)
		*ret_result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (flags & CU_EVENT_RECORD_EXTERNAL)
		*ret_result = event_node(cs, e, true);
	else
		*ret_result = set_event(e, cs);
	return true;
}

/* ---- wait ---- */

/* An event from outside, or from a capture that is over, cannot be waited for in this one. */
static CUresult wait_inside(struct cap_stream *cs, const struct cap_event *ce)
{
	if (!ce || ce->cap->over) {
		cap_invalidate(cs->cap);
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (ce->cap != cs->cap) {
		cap_invalidate(cs->cap);
		cap_invalidate(ce->cap);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	return cap_set_union(&cs->deps, &ce->nodes);
}

static CUresult wait_outside(struct fc_stream *s, const struct cap_event *ce)
{
	CUresult r;

	if (ce->cap->over)
		return CUDA_ERROR_INVALID_VALUE;
	if (ce->cap->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s->legacy) {
		cap_invalidate(ce->cap);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	r = cap_join(ce->cap, s);
	return r ? r : cap_set_union(&cap_of(s)->deps, &ce->nodes);
}

bool fc_capture_wait(struct fc_stream *s, struct fc_event *e, unsigned int flags,
		     CUresult *ret_result)
{
	struct cap_stream *cs = cap_of(s);

	if (!cs && !e->capture && !(flags & CU_EVENT_WAIT_EXTERNAL))
		return false;
	if (!cs)
		*ret_result = flags & CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE :
							       wait_outside(s, e->capture);
	else if (cs->cap->invalid)
		*ret_result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (flags & CU_EVENT_WAIT_EXTERNAL)
		*ret_result = event_node(cs, e, false);
	else
		*ret_result = wait_inside(cs, e->capture);
	return true;
}
