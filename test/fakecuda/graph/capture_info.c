/*
 * capture_info.c - asking whether and what a stream captures. All under fc.lock.
 */
#include "test/fakecuda/graph/capture.h"

#include <stdio.h>

static CUstreamCaptureStatus status_of(const struct fc_stream *s)
{
	const struct cap_stream *cs = cap_of(s);

	return !cs ? CU_STREAM_CAPTURE_STATUS_NONE :
	       cs->cap->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
				  CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Asked of the legacy stream while a blocking one captures: refused, but nothing is invalidated. */
static CUresult stream(CUstream h, struct fc_stream **ret_s)
{
	CUresult r = fc_stream_get(h, ret_s);

	if (r || !(*ret_s)->legacy || !(*ret_s)->ctx->captures)
		return r;
	for (const struct fc_stream *o = (*ret_s)->ctx->streams; o; o = o->next)
		if (o->capture && !(o->flags & CU_STREAM_NON_BLOCKING))
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	struct fc_stream *s;
	CUresult r = stream(hStream, &s);

	if (r)
		return r;
	if (!captureStatus)
		return CUDA_ERROR_INVALID_VALUE;
	*captureStatus = status_of(s);
	return CUDA_SUCCESS;
}

void fc_capture_dump(int fd)
{
	for (const struct capture *c = cap_first(); c; c = c->next)
		dprintf(fd, "capture %llu mode %d%s: %zu nodes\n", (unsigned long long)c->id,
			(int)c->mode, c->invalid ? ", invalidated" : "", c->graph->n_nodes);
}
