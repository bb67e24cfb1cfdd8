/* app_graph.c - graphs that own memory: explicit nodes, child graphs, captures; launched, freed
 * outside, trimmed; on two devices.
 *
 * Thread context: one thread.
 */
#include "test/apps/drv.h"

#define MIB ((size_t)1 << 20)

static CUdeviceptr add_alloc(CUgraph graph, int device, size_t bytes, CUgraphNode *ret_node)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } },
		.bytesize = bytes,
	};

	CHECK(cuGraphAddMemAllocNode(ret_node, graph, NULL, 0, &params));
	return params.dptr;
}

/* The memory stays live after the launch and is freed by hand. */
static void freed_outside(CUstream stream, bool in_stream_order)
{
	CUgraphNode node;
	CUgraphExec exec;
	CUdeviceptr ptr;
	CUgraph graph;

	CHECK(cuGraphCreate(&graph, 0));
	ptr = add_alloc(graph, 0, 5 * MIB, &node);
	checkpoint(2, "a node, not instantiated");
	CHECK(cuGraphInstantiate(&exec, graph, 0));
	checkpoint(2, "instantiated");
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "launched");
	CHECK(in_stream_order ? cuMemFreeAsync(ptr, stream) : cuMemFree(ptr));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "freed outside the graph");
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuMemFreeAsync(ptr, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "launched and freed again");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	checkpoint(2, "the graph destroyed");
	CHECK(cuDeviceGraphMemTrim(0));
	checkpoint(2, "trimmed");
}

/* Allocated and freed inside; as a child of another graph; by cuGraphAddNode. */
static void freed_inside(CUstream stream)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUgraphNode alloc, free_node, child;
	CUgraph inner, outer;
	CUgraphExec exec;
	CUdeviceptr ptr;

	CHECK(cuGraphCreate(&inner, 0));
	ptr = add_alloc(inner, 1, 7 * MIB, &alloc);
	CHECK(cuGraphAddMemFreeNode(&free_node, inner, &alloc, 1, ptr));
	CHECK(cuGraphInstantiate(&exec, inner, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "the other device's memory, freed inside");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(inner));
	CHECK(cuGraphCreate(&outer, 0));
	params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	params.alloc.poolProps.location.id = 0;
	params.alloc.bytesize = 3 * MIB;
	CHECK(cuGraphAddNode(&child, outer, NULL, NULL, 0, &params));
	CHECK(cuGraphAddMemFreeNode(&free_node, outer, &child, 1, params.alloc.dptr));
	CHECK(cuGraphInstantiate(&exec, outer, 0));
	CHECK(cuGraphUpload(exec, stream));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "memory on both devices");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(outer));
	CHECK(cuDeviceGraphMemTrim(1));
	checkpoint(2, "one device trimmed");
	CHECK(cuDeviceGraphMemTrim(0));
	checkpoint(2, "both trimmed");
}

/* Captured: the free inside, or left to the program; memory of the program's own beside it. */
static void captured(CUstream stream)
{
	CUdeviceptr inside, left, mine;
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuMemAllocAsync(&mine, 2 * MIB, stream));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuMemAllocAsync(&inside, 4 * MIB, stream));
	CHECK(cuMemAllocAsync(&left, 6 * MIB, stream));
	CHECK(cuMemsetD8Async(inside, 1, 4 * MIB, stream));
	CHECK(cuMemFreeAsync(inside, stream));
	CHECK(cuStreamEndCapture(stream, &graph));
	checkpoint(2, "captured");
	CHECK(cuGraphInstantiate(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "a captured graph launched");
	CHECK(cuMemFreeAsync(left, stream));
	CHECK(cuMemFreeAsync(mine, stream));
	CHECK(cuStreamSynchronize(stream));
	checkpoint(2, "what was left is freed");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuDeviceGraphMemTrim(0));
	checkpoint(2, "and trimmed");
}

int main(void)
{
	CUstream stream;

	CHECK(cuInit(0));
	need_devices(2);
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRetain(&drv_context[i], i));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	freed_outside(stream, false);
	freed_outside(stream, true);
	freed_inside(stream);
	captured(stream);
	CHECK(cuStreamDestroy(stream));
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRelease(i));
	say("app_graph: done");
	return 0;
}
