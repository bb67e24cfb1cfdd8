/* graphs.h - conformance of graphs that own memory, and of the device's account of it. */
#ifndef TEST_CONFORMANCE_GRAPHS_H
#define TEST_CONFORMANCE_GRAPHS_H

#include "test/conformance/conf.h"

static void graph_counters(const char *what)
{
	uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;

	cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used);
	cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &used_high);
	cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved);
	cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &reserved_high);
	conf_print(what, "used %llu, high %llu; reserved %llu, high %llu",
		   (unsigned long long)used, (unsigned long long)used_high,
		   (unsigned long long)reserved, (unsigned long long)reserved_high);
	cudaGetLastError();
}

static void graph_marks_reset(void)
{
	uint64_t zero = 0;

	CODE(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
	CODE(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
}

static void graph_memory_nodes(cudaGraph_t graph, void *p)
{
	cudaMemAllocNodeParams params = {};
	cudaGraphNode_t nodes[8];
	size_t count = 8;

	NEED(cudaGraphGetNodes(graph, nodes, &count));
	VALUE("nodes", count);
	for (size_t i = 0; i < count; i++) {
		cudaGraphNodeType type;

		NEED(cudaGraphNodeGetType(nodes[i], &type));
		if (type != cudaGraphNodeTypeMemAlloc)
			continue;
		CODE(cudaGraphMemAllocNodeGetParams(nodes[i], &params));
		TRUTH("the node has the address", params.dptr == p);
		VALUE("and the size", params.bytesize);
	}
}

/* A captured graph that allocates and frees inside. */
static void graph_captured(void)
{
	cudaStream_t stream = NULL;
	cudaGraphExec_t exec = NULL, second = NULL;
	cudaGraph_t graph = NULL, clone = NULL;
	long long before;
	void *p = NULL;

	conf_section = "a captured graph with memory";
	NEED(cudaStreamCreate(&stream));
	NEED(cudaDeviceGraphMemTrim(0));
	before = used_bytes();
	graph_counters("before");
	NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	CODE_OF("cudaMallocAsync of 5 MiB", cudaMallocAsync(&p, 5 << 20, stream));
	TRUTH("it has an address", p != NULL);
	CODE(cudaMemsetAsync(p, 1, 5 << 20, stream));
	CODE(cudaFreeAsync(p, stream));
	CODE(cudaStreamEndCapture(stream, &graph));
	graph_memory_nodes(graph, p);
	CODE_OF("a clone of it", cudaGraphClone(&clone, graph));
	if (clone)
		cudaGraphDestroy(clone);
	CODE(cudaGraphInstantiate(&exec, graph, 0));
	CODE_OF("a second instance", cudaGraphInstantiate(&second, graph, 0));
	if (second)
		CODE(cudaGraphExecDestroy(second));
	graph_counters("instantiated");
	VALUE("KiB taken", (used_bytes() - before) / 1024);
	for (int i = 0; i < 2; i++) {
		CODE(cudaGraphLaunch(exec, stream));
		CODE(cudaStreamSynchronize(stream));
		graph_counters("launched");
	}
	VALUE("KiB taken", (used_bytes() - before) / 1024);
	CODE_OF("cudaFree of what the graph freed", cudaFree(p));
	CODE(cudaDeviceGraphMemTrim(0));
	graph_counters("trimmed");
	CODE(cudaGraphLaunch(exec, stream));
	CODE(cudaStreamSynchronize(stream));
	graph_counters("launched again");
	CODE(cudaGraphExecDestroy(exec));
	CODE(cudaGraphDestroy(graph));
	graph_counters("destroyed");
	CODE(cudaDeviceGraphMemTrim(0));
	graph_counters("trimmed");
	VALUE("KiB left", (used_bytes() - before) / 1024);
	graph_marks_reset();
	graph_counters("marks reset");
	NEED(cudaStreamDestroy(stream));
}

/* A graph of nodes whose memory outlives the launch. */
static void graph_of_nodes(void)
{
	cudaMemAllocNodeParams params = {};
	struct cudaPointerAttributes attributes = {};
	cudaGraphNode_t alloc, alloc2;
	cudaStream_t stream = NULL;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;
	CUdeviceptr base = 0;
	size_t size = 0;

	conf_section = "a graph of memory nodes";
	NEED(cudaStreamCreate(&stream));
	NEED(cudaGraphCreate(&graph, 0));
	params.poolProps.allocType = cudaMemAllocationTypePinned;
	params.poolProps.location.type = cudaMemLocationTypeDevice;
	params.bytesize = 0;
	CODE_OF("a node of 0 bytes", cudaGraphAddMemAllocNode(&alloc2, graph, NULL, 0, &params));
	params.bytesize = 3000000;
	NEED(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	CODE_OF("cudaFree before any launch", cudaFree(params.dptr));
	CODE_OF("attributes before any launch", cudaPointerGetAttributes(&attributes, params.dptr));
	VALUE("their type", attributes.type);
	NEED(cudaGraphInstantiate(&exec, graph, 0));
	CODE(cudaGraphLaunch(exec, stream));
	CODE(cudaStreamSynchronize(stream));
	graph_counters("launched, memory live");
	CODE(cudaPointerGetAttributes(&attributes, params.dptr));
	VALUE("its type", attributes.type);
	CODE_OF("its address range", DRIVER(cuMemGetAddressRange, 3020)(
		&base, &size, (CUdeviceptr)params.dptr + 5));
	VALUE("its size", size);
	CODE_OF("launched again while live", cudaGraphLaunch(exec, stream));
	CODE(cudaStreamSynchronize(stream));
	CODE_OF("cudaFreeAsync", cudaFreeAsync(params.dptr, stream));
	CODE(cudaStreamSynchronize(stream));
	graph_counters("freed");
	CODE_OF("cudaFreeAsync again", cudaFreeAsync(params.dptr, stream));
	CODE_OF("launched after the free", cudaGraphLaunch(exec, stream));
	CODE_OF("cudaFree", cudaFree(params.dptr));
	CODE(cudaGraphLaunch(exec, stream));
	CODE(cudaStreamSynchronize(stream));
	CODE_OF("destroyed while its memory is live", cudaGraphExecDestroy(exec));
	graph_counters("destroyed, memory live");
	CODE_OF("cudaMemset of it", cudaMemset(params.dptr, 1, 3000000));
	CODE_OF("freed after that", cudaFree(params.dptr));
	CODE(cudaGraphDestroy(graph));
	CODE(cudaDeviceGraphMemTrim(0));
	graph_counters("trimmed");
	graph_marks_reset();
	NEED(cudaStreamDestroy(stream));
}

/* cudaGraphInstantiateFlagAutoFreeOnLaunch: what is still live is freed by the next launch. */
static void graph_auto_free(void)
{
	cudaStream_t stream = NULL;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;
	void *p = NULL, *q = NULL;

	conf_section = "a graph that frees by itself";
	NEED(cudaStreamCreate(&stream));
	NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	NEED(cudaMallocAsync(&p, 1 << 20, stream));
	NEED(cudaMallocAsync(&q, 4 << 20, stream));
	NEED(cudaFreeAsync(p, stream));
	NEED(cudaStreamEndCapture(stream, &graph));
	NEED(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
	for (int i = 0; i < 3; i++) {
		CODE(cudaGraphLaunch(exec, stream));
		CODE(cudaStreamSynchronize(stream));
		graph_counters("launched");
	}
	CODE_OF("cudaFree of what is live", cudaFree(q));
	graph_counters("freed");
	CODE(cudaGraphExecDestroy(exec));
	CODE(cudaGraphDestroy(graph));
	CODE(cudaDeviceGraphMemTrim(0));
	graph_marks_reset();
	NEED(cudaStreamDestroy(stream));
}

/* A graph may free memory that the program allocated. */
static void graph_frees_ours(void)
{
	cudaStream_t stream = NULL;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph = NULL;
	void *ours = NULL, *plain = NULL;

	conf_section = "a graph and the program's memory";
	NEED(cudaStreamCreate(&stream));
	NEED(cudaMallocAsync(&ours, 1 << 20, stream));
	NEED(cudaMalloc(&plain, 1 << 20));
	NEED(cudaStreamSynchronize(stream));
	NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CODE_OF("cudaFreeAsync of cudaMallocAsync memory, captured", cudaFreeAsync(ours, stream));
	CODE(cudaStreamEndCapture(stream, &graph));
	if (graph) {
		CODE(cudaGraphInstantiate(&exec, graph, 0));
		if (exec)
			CODE(cudaGraphExecDestroy(exec));
		CODE(cudaGraphDestroy(graph));
	}
	graph = NULL;
	NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	CODE_OF("cudaFreeAsync of cudaMalloc memory, captured", cudaFreeAsync(plain, stream));
	CODE(cudaStreamEndCapture(stream, &graph));
	if (graph)
		CODE(cudaGraphDestroy(graph));
	CODE_OF("cudaFree of the one", cudaFree(ours));
	CODE_OF("cudaFree of the other", cudaFree(plain));
	NEED(cudaStreamDestroy(stream));
}

#endif
