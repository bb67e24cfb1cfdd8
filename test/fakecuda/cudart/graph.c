/* graph.c - graphs: making, walking, instantiating, launching, and the memory they reserve.
 *
 * Thread context: any thread, though one graph must not be used by two at once. What takes a
 * stream is compiled a second time by per_thread.c.
 */
#include "cudart.h"

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuGraphLaunch, 10000, 10000)(exec, stream));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuGraphUpload, 11010, 11010)(exec, stream));
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
	return CUDART_CALL(CUDART_DRV(cuGraphCreate, 10000)(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	return CUDART_CALL(CUDART_DRV(cuGraphDestroy, 10000)(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original)
{
	return CUDART_CALL(CUDART_DRV(cuGraphClone, 10000)(clone, original));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	return CUDART_CALL(CUDART_DRV(cuGraphGetNodes, 10000)(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	return CUDART_CALL(CUDART_DRV(cuGraphGetRootNodes, 10000)(graph, nodes, count));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
			      cudaGraphEdgeData *edges, size_t *count)
{
	return CUDART_CALL(CUDART_DRV(cuGraphGetEdges, 12030)(graph, from, to,
							      (CUgraphEdgeData *)edges, count));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
				     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
				     size_t count)
{
	return CUDART_CALL(CUDART_DRV(cuGraphAddDependencies, 12030)(
		graph, from, to, (const CUgraphEdgeData *)edges, count));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
	/* The two enumerations agree on every value both have. */
	return CUDART_CALL(CUDART_DRV(cuGraphNodeGetType, 10000)(node, (CUgraphNodeType *)type));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
					  unsigned long long flags)
{
	return CUDART_CALL(CUDART_DRV(cuGraphInstantiateWithFlags, 11040)(exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	return CUDART_CALL(CUDART_DRV(cuGraphExecDestroy, 10000)(exec));
}

static cudaError_t enter_device(int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);

	return error ? error : cudart_check_device(device);
}

cudaError_t cudaDeviceGraphMemTrim(int device)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceGraphMemTrim, 11040)(cudart_devices[device].handle));
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
					   void *value)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceGetGraphMemAttribute, 11040)(
		cudart_devices[device].handle, (CUgraphMem_attribute)attribute, value));
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
					   void *value)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceSetGraphMemAttribute, 11040)(
		cudart_devices[device].handle, (CUgraphMem_attribute)attribute, value));
}

#endif
