/*
 * graph_exec.c - executable graphs: made from graphs, destroyed.
 *
 * One holds a copy of its graph, whose nodes have no handles. It lives until its handle is
 * destroyed and its last launch is complete. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>

CUresult fc_exec_get(CUgraphExec h, struct fc_exec **ret_x)
{
	struct fc_exec *x = fc_handle_get(h, FC_H_EXEC);

	if (!x)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_x = x;
	return CUDA_SUCCESS;
}

static void hold(struct fc_graph *g, bool on)
{
	for (struct fc_node *n = g->nodes; n; n = n->next) {
		if (n->child)
			hold(n->child, on);
		else if (n->mem && on)
			fc_gmem_hold(n->mem);
		else if (n->mem)
			fc_gmem_unhold(n->mem);
	}
}

static void drop_handle(struct fc_exec *x)
{
	if (!x->handle)
		return;
	fc_handle_drop(x->handle);
	x->handle = NULL;
	if (x->of)
		x->of->execs--;
}

void fc_exec_put(struct fc_exec *x)
{
	struct fc_op *last;

	if (--x->refs)
		return;
	drop_handle(x);
	*x->prevp = x->next;
	if (x->next)
		x->next->prevp = x->prevp;
	last = x->last;
	hold(x->graph, false);
	fc_graph_drop(x->graph);
	free(x->order);
	free(x);
	fc_op_put(last);
}

static CUresult make(struct fc_graph *g, uint64_t flags, struct fc_exec **ret_x)
{
	struct fc_exec *x = calloc(1, sizeof(*x));
	CUresult r = x ? fc_graph_copy(g, false, &x->graph) : CUDA_ERROR_OUT_OF_MEMORY;

	r = r ? r : fc_graph_order(x->graph, &x->order);
	if (!r) {
		x->handle = fc_handle_new(FC_H_EXEC, x);
		r = x->handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		if (x) {
			fc_graph_drop(x->graph);
			free(x->order);
		}
		free(x);
		return r;
	}
	x->refs = 1;
	x->flags = flags;
	x->of = g;
	g->execs++;
	hold(x->graph, true);
	fc_exec_link(x);
	*ret_x = x;
	return CUDA_SUCCESS;
}

/* Memory nodes: one executable graph at a time. Launches from the device: not on this one. */
static CUresult instantiate(CUgraph h, uint64_t flags, struct fc_exec **ret_x)
{
	const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
			       CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
			       CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
			       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	struct fc_graph *g;
	CUresult r = fc_graph_get(h, &g);

	if (r)
		return r;
	if ((flags & ~known) || g->capturing || g->moved)
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) ||
	    (g->execs && fc_graph_has_memory(g)))
		return CUDA_ERROR_NOT_SUPPORTED;
	return make(g, flags, ret_x);
}

/* ---- entries ---- */

CUresult fc_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
					unsigned long long flags)
{
	struct fc_exec *x;
	CUresult r;

	if (!phGraphExec || (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
		return CUDA_ERROR_INVALID_VALUE;
	r = instantiate(hGraph, flags, &x);
	if (!r)
		*phGraphExec = x->handle;
	return r;
}

CUresult fc_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
				  CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	if (phErrorNode)
		*phErrorNode = NULL;
	if (logBuffer && bufferSize)
		*logBuffer = '\0';
	return fc_cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult fc_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	return fc_cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult fc_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
					 CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	struct fc_stream *s = NULL;
	struct fc_exec *x;
	CUresult r;

	if (!phGraphExec || !p)
		return CUDA_ERROR_INVALID_VALUE;
	p->hErrNode_out = NULL;
	p->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		r = fc_stream_get(p->hUploadStream, &s);
		if (r)
			return r;
	}
	r = instantiate(hGraph, p->flags, &x);
	if (r == CUDA_ERROR_INVALID_VALUE)
		p->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	if (!r && s) {
		r = fc_exec_upload(x, s);
		if (r)
			fc_exec_put(x);
	}
	if (r)
		return r;
	p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*phGraphExec = x->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	struct fc_exec *x;
	CUresult r = fc_exec_get(hGraphExec, &x);

	if (r)
		return r;
	drop_handle(x);
	fc_exec_put(x);
	return CUDA_SUCCESS;
}

/* ---- updating as a whole ---- */

/* Here no executable graph can be changed, as on a driver that always finds a reason. */
CUresult fc_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
				 CUgraphExecUpdateResultInfo *resultInfo)
{
	struct fc_exec *x;
	struct fc_graph *g;
	CUresult r = fc_exec_get(hGraphExec, &x);

	r = r ? r : fc_graph_get(hGraph, &g);
	if (r || !resultInfo || g->moved) {
		if (resultInfo)
			*resultInfo = (CUgraphExecUpdateResultInfo){
				.result = CU_GRAPH_EXEC_UPDATE_ERROR };
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	}
	*resultInfo = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED };
	return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult fc_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			      CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r;

	if (!updateResult_out)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
	*updateResult_out = info.result;
	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	return r;
}
