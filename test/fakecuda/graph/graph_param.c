/*
 * graph_param.c - reading and changing what the nodes of graphs and executable graphs do. Kernels
 * are graph_kernel.c's, memory nodes graph_mem.c's.
 *
 * A node's work is immutable: changing it puts another in its place, and launches under way keep
 * theirs. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

/* ---- finding and replacing ---- */

CUresult fc_node_typed(CUgraphNode h, CUgraphNodeType type, struct fc_node **ret_n)
{
	CUresult r = fc_node_get(h, ret_n);

	return r ? r : (*ret_n)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The copy of @hn in the executable graph. */
CUresult fc_exec_typed(CUgraphExec hx, CUgraphNode hn, CUgraphNodeType type,
		       struct fc_node **ret_n)
{
	struct fc_exec *x;
	struct fc_node *n;
	CUresult r = fc_exec_get(hx, &x);

	r = r ? r : fc_node_typed(hn, type, &n);
	return r ? r : fc_exec_node(x, n, ret_n);
}

CUresult fc_node_replace(struct fc_node *n, CUresult r, struct fc_work *w)
{
	if (r)
		return r;
	fc_work_put(n->work);
	n->work = w;
	return CUDA_SUCCESS;
}

static CUresult replace_event(struct fc_node *n, CUevent h)
{
	struct fc_event *e, *old = n->event;
	CUresult r = fc_event_get(h, &e);

	if (r)
		return r;
	n->event = fc_event_ref(e);
	fc_event_put(old);
	return CUDA_SUCCESS;
}

/* ---- copies, fills ---- */

CUresult fc_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	CUDA_MEMCPY3D_PEER_v1 p;
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &n);

	if (r)
		return r;
	if (!nodeParams || !fc_work_copy_params(n->work, &p))
		return CUDA_ERROR_INVALID_VALUE;
	*nodeParams = (CUDA_MEMCPY3D){
		.srcXInBytes = p.srcXInBytes, .srcY = p.srcY, .srcZ = p.srcZ, .srcLOD = p.srcLOD,
		.srcMemoryType = p.srcMemoryType, .srcHost = p.srcHost, .srcDevice = p.srcDevice,
		.srcArray = p.srcArray, .srcPitch = p.srcPitch, .srcHeight = p.srcHeight,
		.dstXInBytes = p.dstXInBytes, .dstY = p.dstY, .dstZ = p.dstZ, .dstLOD = p.dstLOD,
		.dstMemoryType = p.dstMemoryType, .dstHost = p.dstHost, .dstDevice = p.dstDevice,
		.dstArray = p.dstArray, .dstPitch = p.dstPitch, .dstHeight = p.dstHeight,
		.WidthInBytes = p.WidthInBytes, .Height = p.Height, .Depth = p.Depth,
	};
	return CUDA_SUCCESS;
}

static CUresult set_copy(struct fc_node *n, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	struct fc_work *w = NULL;
	CUresult r = fc_graph_copy_work(p, ctx, &w);

	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &n);

	return r ? r : set_copy(n, nodeParams, n->work->ctx->handle);
}

CUresult fc_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &n);

	return r ? r : set_copy(n, copyParams, ctx);
}

CUresult fc_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &n);

	if (r)
		return r;
	return nodeParams && fc_work_fill_params(n->work, nodeParams) ? CUDA_SUCCESS :
									CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_fill(struct fc_node *n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	struct fc_work *w = NULL;
	CUresult r = fc_graph_fill_work(p, ctx, &w);

	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &n);

	return r ? r : set_fill(n, nodeParams, n->work->ctx->handle);
}

CUresult fc_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_MEMSET_NODE_PARAMS *memsetParams,
					   CUcontext ctx)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, &n);

	return r ? r : set_fill(n, memsetParams, ctx);
}

/* ---- host functions, stream memory operations ---- */

CUresult fc_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_HOST, &n);

	if (r)
		return r;
	return nodeParams && fc_work_host_params(n->work, nodeParams) ? CUDA_SUCCESS :
									CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_host(struct fc_node *n, const CUDA_HOST_NODE_PARAMS *p)
{
	struct fc_work *w = NULL;
	CUresult r = p ? fc_work_host(n->work->ctx, p->fn, p->userData, &w) :
			 CUDA_ERROR_INVALID_VALUE;

	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_HOST, &n);

	return r ? r : set_host(n, nodeParams);
}

CUresult fc_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					 const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_HOST, &n);

	return r ? r : set_host(n, nodeParams);
}

CUresult fc_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
					   CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &n);

	if (r)
		return r;
	if (!nodeParams_out)
		return CUDA_ERROR_INVALID_VALUE;
	*nodeParams_out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ .ctx = n->work->ctx->handle };
	nodeParams_out->paramArray = (CUstreamBatchMemOpParams *)(uintptr_t)
		fc_work_memop_params(n->work, &nodeParams_out->count);
	return CUDA_SUCCESS;
}

static CUresult set_memop(struct fc_node *n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct fc_work *w = NULL;
	CUresult r = fc_graph_memop_work(p, &w);

	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
					   const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &n);

	return r ? r : set_memop(n, nodeParams);
}

CUresult fc_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					       const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &n);

	return r ? r : set_memop(n, nodeParams);
}

/* ---- events, embedded graphs ---- */

static CUresult get_event(CUgraphNode h, CUgraphNodeType type, CUevent *event_out)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(h, type, &n);

	if (r)
		return r;
	if (!event_out)
		return CUDA_ERROR_INVALID_VALUE;
	*event_out = n->event->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return get_event(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult fc_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return get_event(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult fc_cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &n);

	return r ? r : replace_event(n, event);
}

CUresult fc_cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &n);

	return r ? r : replace_event(n, event);
}

CUresult fc_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
					       CUevent event)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &n);

	return r ? r : replace_event(n, event);
}

CUresult fc_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
					     CUevent event)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &n);

	return r ? r : replace_event(n, event);
}

CUresult fc_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_GRAPH, &n);

	if (r)
		return r;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = n->child->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					       CUgraph childGraph)
{
	CUgraphExecUpdateResultInfo info;
	struct fc_node *n;
	struct fc_graph *g;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_GRAPH, &n);

	r = r ? r : fc_graph_get(childGraph, &g);
	r = r ? r : fc_exec_update(n->child, g, &info);
	return r == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ? CUDA_ERROR_INVALID_VALUE : r;
}

/* ---- any type ---- */

static CUresult set_any(struct fc_node *n, const CUgraphNodeParams *p)
{
	struct fc_work *w;
	CUresult r;

	if (p->type != n->type)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return replace_event(n, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return replace_event(n, p->eventRecord.event);
	default:
		r = fc_graph_any_work(p, &w);
		return r || w ? fc_node_replace(n, r, w) : CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult fc_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_get(hNode, &n);

	if (r)
		return r;
	return nodeParams ? set_any(n, nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				     CUgraphNodeParams *nodeParams)
{
	struct fc_node *n;
	CUresult r;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return fc_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode,
							     nodeParams->graph.graph);
	r = fc_exec_typed(hGraphExec, hNode, nodeParams->type, &n);
	return r ? r : set_any(n, nodeParams);
}
