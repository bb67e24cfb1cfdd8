/*
 * hook_graph.c - graphs with memory nodes: what they hold on a device (see graph.h).
 *
 * Owns the one record of that kind a device. Its lock is held across the question to the driver,
 * so that two answers are recorded in the order in which they were seen; nothing else takes it,
 * and the driver never waits for us.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "allocator/lock.h"
#include "preload/order/capture.h"
#include "preload/hooks/graph.h"
#include "preload/order/order.h"
#include "preload/hooks/retry.h"

static struct gm_lock lock = { .rank = GM_RANK_GRAPHS };
static _Atomic(uint64_t) devices;		/* a bit for each that a memory node was made on */
static uint32_t blocks[GM_MAX_DEVICES];		/* lock: lock; 0 none */
static uint64_t held_bytes[GM_MAX_DEVICES];	/* lock: lock */

void gm_graph_node_made(uint8_t domain)
{
	if (domain < GM_MAX_DEVICES)
		devices |= UINT64_C(1) << domain;
	else if (domain == GM_DOMAIN_UNKNOWN && gm_device_count() < (int)GM_MAX_DEVICES)
		devices |= (UINT64_C(1) << gm_device_count()) - 1;
}

bool gm_graph_nodes(void)
{
	return devices != 0;
}

static void record_locked(uint8_t domain, uint64_t bytes, struct gm_alloc alloc)
{
	uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_GRAPH, domain, 0, bytes);

	if (blocks[domain]) {
		gm_record_change(op, blocks[domain], 0, bytes, 0, gm_stack_of_change(&alloc));
	} else {
		alloc.size = alloc.requested = bytes;
		alloc.domain = domain;
		alloc.tsc = gm_stamp();
		gm_record_alloc(op, &alloc, &blocks[domain]);
	}
	held_bytes[domain] = bytes;
	gm_op_end(op);
}

/* Does the driver hold more or less for graphs than is recorded? With @alloc it is recorded. */
static bool changed_locked(uint8_t domain, const struct gm_alloc *alloc)
{
	cuuint64_t bytes = 0;

	if (gm_domain_of(domain) == GM_DOMAIN_UNKNOWN ||
	    GM_REAL(cuDeviceGetGraphMemAttribute)(domain, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
						  &bytes) ||
	    bytes == (blocks[domain] ? held_bytes[domain] : 0))
		return false;
	if (alloc)
		record_locked(domain, bytes, *alloc);
	return true;
}

static bool changed(const struct gm_alloc *alloc)
{
	struct gm_relaxed relaxed;
	bool any = false;

	if (!gm_lock(&lock))
		return false;
	relaxed = gm_relax();
	for (uint64_t left = devices; left; left &= left - 1)
		any |= changed_locked((uint8_t)__builtin_ctzll(left), alloc);
	gm_unrelax(&relaxed);
	gm_unlock(&lock);
	return any;
}

/* Most launches change nothing, and need no stack. */
void gm_graph_refresh(const void *caller)
{
	struct gm_alloc alloc = { .kind = GM_KIND_GRAPH };

	if (!changed(NULL))
		return;
	gm_alloc_caller(&alloc, caller);
	changed(&alloc);
}

/* A call on graphs ended: it may have changed what they hold, or there was no memory for it. */
static CUresult graph_end(const char *entry, CUresult result, const void *caller)
{
	struct gm_call call;

	if (gm_graph_nodes())
		gm_graph_refresh(caller);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return gm_leave(result);
	gm_alloc_begin(&call, entry, GM_KIND_GRAPH, 0, caller);
	return gm_alloc_pass(&call, result);
}

static void node_added(const CUmemPoolProps *props)
{
	gm_graph_node_made(props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ?
			   gm_domain_of(props->location.id) : GM_DOMAIN_UNKNOWN);
}

/* ---- nodes ---- */

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies,
				CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUresult result;

	GM_ENTER(cuGraphAddMemAllocNode, phGraphNode, hGraph, dependencies, numDependencies,
		 nodeParams);
	result = GM_TRY(cuGraphAddMemAllocNode, phGraphNode, hGraph, dependencies, numDependencies,
			nodeParams);
	if (!result)
		node_added(&nodeParams->poolProps);
	return graph_end("cuGraphAddMemAllocNode", result, GM_CALLER);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result;

	GM_ENTER(cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_HOST)
		gm_host_function_added();
	result = GM_TRY(cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies,
			nodeParams);
	if (!result && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node_added(&nodeParams->alloc.poolProps);
	return graph_end("cuGraphAddNode", result, GM_CALLER);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result;

	GM_ENTER(cuGraphAddNode_v2, phGraphNode, hGraph, dependencies, dependencyData,
		 numDependencies, nodeParams);
	if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_HOST)
		gm_host_function_added();
	result = GM_TRY(cuGraphAddNode_v2, phGraphNode, hGraph, dependencies, dependencyData,
			numDependencies, nodeParams);
	if (!result && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node_added(&nodeParams->alloc.poolProps);
	return graph_end("cuGraphAddNode_v2", result, GM_CALLER);
}

/* ---- executable graphs ---- */

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			    char *logBuffer, size_t bufferSize)
{
	CUresult result;

	GM_ENTER(cuGraphInstantiate, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
	result = GM_TRY(cuGraphInstantiate, phGraphExec, hGraph, phErrorNode, logBuffer,
			bufferSize);
	return graph_end("cuGraphInstantiate", result, GM_CALLER);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	CUresult result;

	GM_ENTER(cuGraphInstantiate_v2, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
	result = GM_TRY(cuGraphInstantiate_v2, phGraphExec, hGraph, phErrorNode, logBuffer,
			bufferSize);
	return graph_end("cuGraphInstantiate_v2", result, GM_CALLER);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
				     unsigned long long flags)
{
	CUresult result;

	GM_ENTER(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags);
	result = GM_TRY(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags);
	return graph_end("cuGraphInstantiateWithFlags", result, GM_CALLER);
}

/* With an upload at once. */
static uint32_t uploads(const CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread)
{
	if (params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		return gm_work(params->hUploadStream, per_thread, 0);
	return 0;
}

static void uploaded(const CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread, uint32_t seen)
{
	if (params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		gm_work_over(params->hUploadStream, per_thread, seen);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams);
	seen = uploads(instantiateParams, false);
	result = GM_TRY(cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams);
	uploaded(instantiateParams, false, seen);
	return graph_end("cuGraphInstantiateWithParams", result, GM_CALLER);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph, instantiateParams);
	seen = uploads(instantiateParams, true);
	result = GM_TRY(cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph, instantiateParams);
	uploaded(instantiateParams, true, seen);
	return graph_end("cuGraphInstantiateWithParams_ptsz", result, GM_CALLER);
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphUpload, hGraph, hStream);
	seen = gm_work(hStream, false, 0);
	result = GM_TRY(cuGraphUpload, hGraph, hStream);
	gm_work_over(hStream, false, seen);
	return graph_end("cuGraphUpload", result, GM_CALLER);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphUpload_ptsz, hGraphExec, hStream);
	seen = gm_work(hStream, true, 0);
	result = GM_TRY(cuGraphUpload_ptsz, hGraphExec, hStream);
	gm_work_over(hStream, true, seen);
	return graph_end("cuGraphUpload_ptsz", result, GM_CALLER);
}

/* A graph may copy to the host, call its functions, and record events. */
static uint32_t launches(CUstream stream, bool per_thread)
{
	uint32_t seen = gm_work(stream, per_thread, GM_WORK_LAUNCH | GM_WORK_HOST);

	gm_host_events_forget();
	return seen;
}

static void launched(CUresult result, CUstream stream, bool per_thread, uint32_t seen)
{
	gm_work_over(stream, per_thread, seen);
	if (result)
		gm_cache_fault(result);
	else if (gm_order_on)
		gm_host_submitted(stream, per_thread, GM_WORK_HOST);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphLaunch, hGraph, hStream);
	seen = launches(hStream, false);
	result = GM_TRY(cuGraphLaunch, hGraph, hStream);
	launched(result, hStream, false, seen);
	return graph_end("cuGraphLaunch", result, GM_CALLER);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	uint32_t seen;
	CUresult result;

	GM_ENTER(cuGraphLaunch_ptsz, hGraphExec, hStream);
	seen = launches(hStream, true);
	result = GM_TRY(cuGraphLaunch_ptsz, hGraphExec, hStream);
	launched(result, hStream, true, seen);
	return graph_end("cuGraphLaunch_ptsz", result, GM_CALLER);
}

/* ---- the end of them ---- */

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CUresult result;

	GM_ENTER(cuGraphExecDestroy, hGraphExec);
	result = GM_REAL(cuGraphExecDestroy)(hGraphExec);
	return graph_end("cuGraphExecDestroy", result, GM_CALLER);
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	CUresult result;

	GM_ENTER(cuGraphDestroy, hGraph);
	result = GM_REAL(cuGraphDestroy)(hGraph);
	return graph_end("cuGraphDestroy", result, GM_CALLER);
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result;

	GM_ENTER(cuDeviceGraphMemTrim, device);
	result = GM_REAL(cuDeviceGraphMemTrim)(device);
	return graph_end("cuDeviceGraphMemTrim", result, GM_CALLER);
}
