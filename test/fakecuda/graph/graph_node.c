/*
 * graph_node.c - nodes of every type: the cuGraphAdd entries, and the makers that captures share.
 *
 * Memory nodes are graph_mem.c's. Conditional nodes are not supported (801). All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>

/* ---- what parameters stand for ---- */

static CUresult context(CUcontext h, struct fc_ctx **ret_ctx)
{
	CUresult r = h ? fc_ctx_get(h, ret_ctx) : fc_ctx_current(ret_ctx);

	if (!r)
		*ret_ctx = (*ret_ctx)->base;
	return r;
}

CUresult fc_graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2 *p, const CUlaunchAttribute *attrs,
			      unsigned int n_attrs, struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? context(p->ctx, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : fc_work_kernel(ctx, p, attrs, n_attrs, ret_work);
}

CUresult fc_graph_copy_work(const CUDA_MEMCPY3D *p, CUcontext ctx_h, struct fc_work **ret_work)
{
	CUDA_MEMCPY3D_PEER_v1 peer;
	struct fc_ctx *ctx;
	CUresult r = p ? context(ctx_h, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (r)
		return r;
	peer = (CUDA_MEMCPY3D_PEER_v1){
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcZ = p->srcZ,
		.srcLOD = p->srcLOD, .srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost,
		.srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcContext = ctx->handle,
		.srcPitch = p->srcPitch, .srcHeight = p->srcHeight,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstZ = p->dstZ,
		.dstLOD = p->dstLOD, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost,
		.dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstContext = ctx->handle,
		.dstPitch = p->dstPitch, .dstHeight = p->dstHeight,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = p->Depth,
	};
	return fc_work_copy(ctx, "graph copy", &peer, ret_work);
}

CUresult fc_graph_fill_work(const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx_h,
			    struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? context(ctx_h, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : fc_work_fill(ctx, "graph fill", p, ret_work);
}

CUresult fc_graph_host_work(const CUDA_HOST_NODE_PARAMS_v1 *p, struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? context(NULL, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : fc_work_host(ctx, p->fn, p->userData, ret_work);
}

CUresult fc_graph_memop_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct fc_work **ret_work)
{
	struct fc_ctx *ctx;
	CUresult r = p ? context(p->ctx, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return r ? r : fc_work_memop(ctx, "graph memory operations", p->count, p->paramArray,
				     p->flags, ret_work);
}

CUDA_KERNEL_NODE_PARAMS_v2 fc_kernel_params_v2(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS_v2){
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY,
		.gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX, .blockDimY = p->blockDimY,
		.blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra };
}

/* ---- makers ---- */

static bool type_of(const struct fc_work *w, CUgraphNodeType *ret_type)
{
	switch (w->kind) {
	case FC_WORK_KERNEL:
		*ret_type = CU_GRAPH_NODE_TYPE_KERNEL;
		return true;
	case FC_WORK_COPY:
		*ret_type = CU_GRAPH_NODE_TYPE_MEMCPY;
		return true;
	case FC_WORK_FILL:
		*ret_type = CU_GRAPH_NODE_TYPE_MEMSET;
		return true;
	case FC_WORK_HOST:
		*ret_type = CU_GRAPH_NODE_TYPE_HOST;
		return true;
	case FC_WORK_MEMOP:
		*ret_type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
		return true;
	case FC_WORK_SEMAPHORE:
		*ret_type = fc_semaphore_waits(w) ? CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT :
						    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
		return true;
	default:
		return false;
	}
}

CUresult fc_node_of_work(struct fc_graph *g, struct fc_work *w, const struct fc_edge *deps,
			 size_t n_deps, struct fc_node **ret_node)
{
	CUgraphNodeType type;
	CUresult r;

	if (w->one_shot || !type_of(w, &type))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	r = fc_node_new(g, type, deps, n_deps, ret_node);
	if (!r)
		(*ret_node)->work = fc_work_get(w);
	return r;
}

CUresult fc_node_of_event(struct fc_graph *g, struct fc_event *e, bool record,
			  const struct fc_edge *deps, size_t n_deps, struct fc_node **ret_node)
{
	CUresult r = fc_node_new(g, record ? CU_GRAPH_NODE_TYPE_EVENT_RECORD :
					     CU_GRAPH_NODE_TYPE_WAIT_EVENT,
				 deps, n_deps, ret_node);

	if (!r)
		(*ret_node)->event = fc_event_ref(e);
	return r;
}

/* A copy of @child goes in. */
CUresult fc_node_of_graph(struct fc_graph *g, struct fc_graph *child, const struct fc_edge *deps,
			  size_t n_deps, struct fc_node **ret_node)
{
	struct fc_graph *copy;
	CUresult r = fc_graph_copy(child, true, &copy);

	if (r)
		return r;
	r = fc_node_new(g, CU_GRAPH_NODE_TYPE_GRAPH, deps, n_deps, ret_node);
	if (r) {
		fc_graph_drop(copy);
		return r;
	}
	(*ret_node)->child = copy;
	copy->parent = *ret_node;
	return CUDA_SUCCESS;
}

/* ---- entries: what all have in common ---- */

struct add {			/* one call: where the node goes */
	struct fc_graph *g;
	struct fc_edge *deps;	/* malloc'ed */
	size_t n;
};

static CUresult check_edge(const struct add *a, size_t i)
{
	const CUgraphEdgeData *data = &a->deps[i].data;

	if (a->deps[i].node->graph != a->g)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t j = 0; j < i; j++)
		if (a->deps[j].node == a->deps[i].node)
			return CUDA_ERROR_INVALID_VALUE;
	if (data->to_port || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
	    data->from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)
		return CUDA_ERROR_INVALID_VALUE;
	if (data->from_port && a->deps[i].node->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult begin(struct add *a, const CUgraphNode *ret_node, CUgraph h,
		      const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n)
{
	CUresult r = fc_graph_get(h, &a->g);

	a->deps = NULL;
	a->n = n;
	if (r)
		return r;
	if (!ret_node || (n && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	a->deps = calloc(n ? n : 1, sizeof(*a->deps));
	if (!a->deps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n && !r; i++) {
		a->deps[i].data = data ? data[i] : (CUgraphEdgeData){ 0 };
		r = fc_node_get(deps[i], &a->deps[i].node);
		r = r ? r : check_edge(a, i);
	}
	if (r) {
		free(a->deps);
		a->deps = NULL;
	}
	return r;
}

static CUresult end(struct add *a, CUresult r, struct fc_node *node, CUgraphNode *ret_node)
{
	free(a->deps);
	if (!r)
		*ret_node = node->handle;
	return r;
}

static CUresult add_work(struct add *a, CUresult made, struct fc_work *w, CUgraphNode *ret_node)
{
	struct fc_node *n = NULL;
	CUresult r = made;

	if (!r) {
		r = fc_node_of_work(a->g, w, a->deps, a->n, &n);
		fc_work_put(w);
	}
	return end(a, r, n, ret_node);
}

#define BEGIN(data) \
	struct add a; \
	CUresult r = begin(&a, phGraphNode, hGraph, dependencies, data, numDependencies); \
	if (r) \
		return r

/* ---- the old entries ---- */

CUresult fc_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				    const CUgraphNode *dependencies, size_t numDependencies,
				    const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct fc_work *w = NULL;

	BEGIN(NULL);
	r = fc_graph_kernel_work(nodeParams, NULL, 0, &w);
	return add_work(&a, r, w, phGraphNode);
}

CUresult fc_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct fc_work *w = NULL;

	BEGIN(NULL);
	r = fc_graph_copy_work(copyParams, ctx, &w);
	return add_work(&a, r, w, phGraphNode);
}

CUresult fc_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct fc_work *w = NULL;

	BEGIN(NULL);
	r = fc_graph_fill_work(memsetParams, ctx, &w);
	return add_work(&a, r, w, phGraphNode);
}

CUresult fc_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			       const CUgraphNode *dependencies, size_t numDependencies,
			       const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct fc_work *w = NULL;

	BEGIN(NULL);
	r = fc_graph_host_work(nodeParams, &w);
	return add_work(&a, r, w, phGraphNode);
}

CUresult fc_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies)
{
	struct fc_node *n = NULL;

	BEGIN(NULL);
	r = fc_node_new(a.g, CU_GRAPH_NODE_TYPE_EMPTY, a.deps, a.n, &n);
	return end(&a, r, n, phGraphNode);
}

static CUresult add_event(struct add *a, CUevent h, bool record, CUgraphNode *ret_node)
{
	struct fc_node *n = NULL;
	struct fc_event *e;
	CUresult r = fc_event_get(h, &e);

	r = r ? r : fc_node_of_event(a->g, e, record, a->deps, a->n, &n);
	return end(a, r, n, ret_node);
}

/* By copy, or for good: then it is destroyed with its node, its handle good until then. */
static CUresult add_child(struct add *a, CUgraph h, CUgraphChildGraphNodeOwnership ownership,
			  CUgraphNode *ret_node)
{
	struct fc_node *n = NULL;
	struct fc_graph *child;
	CUresult r = fc_graph_get(h, &child);

	if (!r && (child == a->g || child->capturing || child->moved))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
		if (child->parent || child->execs)
			r = CUDA_ERROR_INVALID_VALUE;
		r = r ? r : fc_node_new(a->g, CU_GRAPH_NODE_TYPE_GRAPH, a->deps, a->n, &n);
		if (!r) {
			n->child = child;
			child->parent = n;
			child->moved = true;
		}
	} else if (!r) {
		r = fc_graph_has_memory(child) ? CUDA_ERROR_NOT_SUPPORTED :
		    fc_node_of_graph(a->g, child, a->deps, a->n, &n);
	}
	return end(a, r, n, ret_node);
}

CUresult fc_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				     const CUgraphNode *dependencies, size_t numDependencies,
				     CUgraph childGraph)
{
	BEGIN(NULL);
	return add_child(&a, childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, phGraphNode);
}

static CUresult add_alloc(struct add *a, CUDA_MEM_ALLOC_NODE_PARAMS *p, CUgraphNode *ret_node)
{
	struct fc_device *dev = NULL;
	struct fc_node *n = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!p || !p->bytesize || p->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
	    p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || a->g->moved)
		r = CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_device_get(p->poolProps.location.id, &dev);
	r = r ? r : fc_node_of_alloc(a->g, dev, p->bytesize, p, a->deps, a->n, &n, &p->dptr);
	return end(a, r, n, ret_node);
}

CUresult fc_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				   const CUgraphNode *dependencies, size_t numDependencies,
				   CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	BEGIN(NULL);
	return add_alloc(&a, nodeParams, phGraphNode);
}

static CUresult add_free(struct add *a, CUdeviceptr ptr, CUgraphNode *ret_node)
{
	struct fc_node *n = NULL;
	CUresult r = a->g->moved ? CUDA_ERROR_INVALID_VALUE :
				   fc_node_of_free(a->g, ptr, a->deps, a->n, &n);

	return end(a, r, n, ret_node);
}

CUresult fc_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies, size_t numDependencies,
				  CUdeviceptr dptr)
{
	BEGIN(NULL);
	return add_free(&a, dptr, phGraphNode);
}

/* ---- the one entry for all types ---- */

CUresult fc_graph_any_work(const CUgraphNodeParams *p, struct fc_work **ret_work)
{
	CUDA_KERNEL_NODE_PARAMS_v2 kernel;

	*ret_work = NULL;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel = fc_kernel_params_v2((const CUDA_KERNEL_NODE_PARAMS_v1 *)&p->kernel);
		kernel.kern = p->kernel.kern;
		kernel.ctx = p->kernel.ctx;
		return fc_graph_kernel_work(&kernel, NULL, 0, ret_work);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return fc_graph_copy_work(&p->memcpy.copyParams, p->memcpy.copyCtx, ret_work);
	case CU_GRAPH_NODE_TYPE_MEMSET:		/* the context comes last in the newer layout */
		return fc_graph_fill_work((const CUDA_MEMSET_NODE_PARAMS_v1 *)&p->memset,
					  p->memset.ctx, ret_work);
	case CU_GRAPH_NODE_TYPE_HOST:
		return fc_graph_host_work((const CUDA_HOST_NODE_PARAMS_v1 *)&p->host, ret_work);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return fc_graph_memop_work((const CUDA_BATCH_MEM_OP_NODE_PARAMS *)&p->memOp,
					   ret_work);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
		return fc_graph_signal_work((const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *)
					    &p->extSemSignal, ret_work);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return fc_graph_wait_work((const CUDA_EXT_SEM_WAIT_NODE_PARAMS *)&p->extSemWait,
					  ret_work);
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult add_any(struct add *a, CUgraphNodeParams *p, CUgraphNode *ret_node)
{
	struct fc_node *n = NULL;
	struct fc_work *w;
	CUresult r = fc_graph_any_work(p, &w);

	if (r || w)
		return add_work(a, r, w, ret_node);
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return add_child(a, p->graph.graph, p->graph.ownership, ret_node);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		r = fc_node_new(a->g, p->type, a->deps, a->n, &n);
		return end(a, r, n, ret_node);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return add_event(a, p->eventWait.event, false, ret_node);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return add_event(a, p->eventRecord.event, true, ret_node);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_alloc(a, (CUDA_MEM_ALLOC_NODE_PARAMS *)&p->alloc, ret_node);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return add_free(a, p->free.dptr, ret_node);
	default:
		return end(a, CUDA_ERROR_NOT_SUPPORTED, NULL, ret_node);
	}
}

CUresult fc_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies,
			      const CUgraphEdgeData *dependencyData, size_t numDependencies,
			      CUgraphNodeParams *nodeParams)
{
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	BEGIN(dependencyData);
	return add_any(&a, nodeParams, phGraphNode);
}

CUresult fc_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, size_t numDependencies,
			   CUgraphNodeParams *nodeParams)
{
	return fc_cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies,
				    nodeParams);
}
