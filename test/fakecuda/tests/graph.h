/*
 * graph.h - what the tests of graphs share: a graph to build, kernel nodes, a launch.
 */
#ifndef TEST_GRAPH_H
#define TEST_GRAPH_H

#include "work.h"

static CUstream a, b;
static CUdeviceptr p;
static CUgraph g;

UNUSED static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
	OK(cuGraphCreate(&g, 0));
}

UNUSED static CUDA_KERNEL_NODE_PARAMS params(const char *name, void **args)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = kernel(name), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = args };
}

UNUSED static CUgraphNode kernel_node(const char *name, CUdeviceptr q, uint32_t value,
				      CUgraphNode after)
{
	uint32_t n = 1;
	void *args[] = { &q, &value, &n };
	CUDA_KERNEL_NODE_PARAMS kp = params(name, args);
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, &after, after ? 1 : 0, &kp));
	return node;
}

UNUSED static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec x;

	OK(cuGraphInstantiate(&x, graph, 0));
	return x;
}

UNUSED static void run(CUgraphExec x)
{
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
}

#endif
