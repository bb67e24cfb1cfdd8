/*
 * capture_info.c - asking whether and what a stream captures. All under fc.lock.
 */
#include "test/fakecuda/graph/capture.h"

#include <stdio.h>
#include <stdlib.h>

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

/* The arrays stay good until the next call on the stream. */
static CUresult give_deps(struct cap_stream *cs, bool *ret_plain)
{
	size_t n = cs->deps.n ? cs->deps.n : 1;
	CUgraphNode *handles = realloc(cs->handles, n * sizeof(*handles));
	CUgraphEdgeData *data;

	if (!handles)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cs->handles = handles;
	data = realloc(cs->data, n * sizeof(*data));
	if (!data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cs->data = data;
	*ret_plain = true;
	for (size_t i = 0; i < cs->deps.n; i++) {
		handles[i] = cs->deps.e[i].node->handle;
		data[i] = cs->deps.e[i].data;
		*ret_plain = *ret_plain && fc_edge_plain(&data[i]);
	}
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out,
				      const CUgraphNode **dependencies_out,
				      const CUgraphEdgeData **edgeData_out,
				      size_t *numDependencies_out)
{
	struct cap_stream *cs;
	struct fc_stream *s;
	bool plain = true;
	CUresult r = stream(hStream, &s);

	if (r)
		return r;
	if (!captureStatus_out)
		return CUDA_ERROR_INVALID_VALUE;
	*captureStatus_out = status_of(s);
	if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	cs = cap_of(s);
	r = give_deps(cs, &plain);
	if (r)
		return r;
	if (dependencies_out && !edgeData_out && !plain)
		return CUDA_ERROR_LOSSY_QUERY;
	if (id_out)
		*id_out = cs->cap->id;
	if (graph_out)
		*graph_out = cs->cap->graph->handle;
	if (dependencies_out)
		*dependencies_out = cs->handles;
	if (edgeData_out)
		*edgeData_out = cs->data;
	if (numDependencies_out)
		*numDependencies_out = cs->deps.n;
	return CUDA_SUCCESS;
}

CUresult fc_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out,
				      const CUgraphNode **dependencies_out,
				      size_t *numDependencies_out)
{
	return fc_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
					    dependencies_out, NULL, numDependencies_out);
}

void fc_capture_dump(int fd)
{
	for (const struct capture *c = cap_first(); c; c = c->next)
		dprintf(fd, "capture %llu mode %d%s: %zu nodes\n", (unsigned long long)c->id,
			(int)c->mode, c->invalid ? ", invalidated" : "", c->graph->n_nodes);
}
