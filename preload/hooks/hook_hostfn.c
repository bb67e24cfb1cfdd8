/*
 * hook_hostfn.c - functions of the program's that the driver calls: host functions, callbacks,
 * host nodes of graphs, destructors of user objects.
 *
 * In such a function the driver refuses every call with CUDA_ERROR_NOT_PERMITTED, cuCtxGetCurrent
 * too (seen on a GPU): so once one was given, that call tells whether this thread is in one.
 * Nothing is wrapped, and getters give the program's own back by themselves.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/order/order.h"
#include "preload/hooks/retry.h"

static _Atomic(bool) given;

void gm_host_function_added(void)
{
	if (!given)
		given = true;
	if (gm_cache_unusual & GM_CACHE_HOST_FUNCTIONS)
		return;
	gm_cache_unusual |= GM_CACHE_HOST_FUNCTIONS;
	gm_context_handles_changed();
}

bool gm_in_host_function(void)
{
	CUcontext context;

	return given && GM_REAL(cuCtxGetCurrent)(&context) == CUDA_ERROR_NOT_PERMITTED;
}

/* ---- on streams: work that the host sees ---- */

static uint32_t before(CUstream stream, bool per_thread)
{
	gm_host_function_added();
	return gm_work(stream, per_thread, GM_WORK_HOST);
}

static CUresult after(CUresult result, CUstream stream, bool per_thread, uint32_t seen)
{
	gm_work_over(stream, per_thread, seen);
	if (!result && gm_order_on)
		gm_host_submitted(stream, per_thread, GM_WORK_HOST);
	return gm_leave(result);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuLaunchHostFunc, hStream, fn, userData);
	seen = before(hStream, false);
	result = GM_TRY(cuLaunchHostFunc, hStream, fn, userData);
	return after(result, hStream, false, seen);
}

CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuLaunchHostFunc_ptsz, hStream, fn, userData);
	seen = before(hStream, true);
	result = GM_TRY(cuLaunchHostFunc_ptsz, hStream, fn, userData);
	return after(result, hStream, true, seen);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
			     unsigned int flags)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuStreamAddCallback, hStream, callback, userData, flags);
	seen = before(hStream, false);
	result = GM_TRY(cuStreamAddCallback, hStream, callback, userData, flags);
	return after(result, hStream, false, seen);
}

CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
				  unsigned int flags)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuStreamAddCallback_ptsz, hStream, callback, userData, flags);
	seen = before(hStream, true);
	result = GM_TRY(cuStreamAddCallback_ptsz, hStream, callback, userData, flags);
	return after(result, hStream, true, seen);
}

/* ---- in graphs (cuGraphAddNode is hook_graph.c's) ---- */

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			    const CUgraphNode *dependencies, size_t numDependencies,
			    const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	GM_ENTER(cuGraphAddHostNode, phGraphNode, hGraph, dependencies, numDependencies,
		 nodeParams);
	gm_host_function_added();
	return gm_leave(GM_REAL(cuGraphAddHostNode)(phGraphNode, hGraph, dependencies,
						    numDependencies, nodeParams));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	GM_ENTER(cuGraphHostNodeSetParams, hNode, nodeParams);
	gm_host_function_added();
	return gm_leave(GM_REAL(cuGraphHostNodeSetParams)(hNode, nodeParams));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	GM_ENTER(cuGraphExecHostNodeSetParams, hGraphExec, hNode, nodeParams);
	gm_host_function_added();
	return gm_leave(GM_REAL(cuGraphExecHostNodeSetParams)(hGraphExec, hNode, nodeParams));
}

static void look_at_node(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_HOST)
		gm_host_function_added();
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	GM_ENTER(cuGraphNodeSetParams, hNode, nodeParams);
	look_at_node(nodeParams);
	return gm_leave(GM_REAL(cuGraphNodeSetParams)(hNode, nodeParams));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				  CUgraphNodeParams *nodeParams)
{
	GM_ENTER(cuGraphExecNodeSetParams, hGraphExec, hNode, nodeParams);
	look_at_node(nodeParams);
	return gm_leave(GM_REAL(cuGraphExecNodeSetParams)(hGraphExec, hNode, nodeParams));
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
			    unsigned int initialRefcount, unsigned int flags)
{
	GM_ENTER(cuUserObjectCreate, object_out, ptr, destroy, initialRefcount, flags);
	gm_host_function_added();
	return gm_leave(GM_REAL(cuUserObjectCreate)(object_out, ptr, destroy, initialRefcount,
						    flags));
}
