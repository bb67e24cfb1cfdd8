/* graph_node.c - the nodes of graphs: kernels, copies, fills, host functions, memory, events.
 *
 * Each runtime structure becomes the driver's; those that agree field for field are passed
 * through, held to it by assertions. Thread context: as graph.c.
 */
#include <string.h>

#include "cudart.h"

_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS_v1) &&
		       sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS_v1) &&
		       sizeof(struct cudaMemAllocNodeParams) ==
			       sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v1) &&
		       sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams),
	       "these are passed through");

/* The context that a copy or fill node runs in: the one its author has. */
static cudaError_t node_context(CUcontext *ret_context)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);

	if (!error)
		error = (cudaError_t)CUDART_DRV(cuCtxGetCurrent, 4000)(ret_context);
	return error;
}

static cudaError_t kernel_params(const struct cudaKernelNodeParams *params,
				 CUDA_KERNEL_NODE_PARAMS_v2 *ret_params)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUkernel kernel;

	if (!error)
		error = params ? cudart_kernel(params->func, &kernel) : cudaErrorInvalidValue;
	if (error)
		return error;
	*ret_params = (CUDA_KERNEL_NODE_PARAMS_v2){
		.gridDimX = params->gridDim.x,
		.gridDimY = params->gridDim.y,
		.gridDimZ = params->gridDim.z,
		.blockDimX = params->blockDim.x,
		.blockDimY = params->blockDim.y,
		.blockDimZ = params->blockDim.z,
		.sharedMemBytes = params->sharedMemBytes,
		.kernelParams = params->kernelParams,
		.extra = params->extra,
		.kern = kernel,
	};
	return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
				   const cudaGraphNode_t *dependencies, size_t count,
				   const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS_v2 driver_params;
	cudaError_t error = kernel_params(params, &driver_params);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuGraphAddKernelNode, 12000)(node, graph, dependencies, count,
								   &driver_params));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
				   const cudaGraphNode_t *dependencies, size_t count,
				   const struct cudaMemcpy3DParms *params)
{
	CUcontext context = NULL;
	CUDA_MEMCPY3D copy;
	cudaError_t error = node_context(&context);

	if (!error)
		error = cudart_copy3d(params, &copy);
	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuGraphAddMemcpyNode, 10000)(node, graph, dependencies, count,
								   &copy, context));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
				     const cudaGraphNode_t *dependencies, size_t count, void *dst,
				     const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	struct cudaMemcpy3DParms params = {
		.srcPtr = { (void *)(uintptr_t)src, bytes, bytes, 1 },
		.dstPtr = { dst, bytes, bytes, 1 },
		.extent = { bytes, 1, 1 },
		.kind = kind,
	};

	return cudaGraphAddMemcpyNode(node, graph, dependencies, count, &params);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
				   const cudaGraphNode_t *dependencies, size_t count,
				   const struct cudaMemsetParams *params)
{
	CUcontext context = NULL;
	cudaError_t error = node_context(&context);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuGraphAddMemsetNode, 10000)(
		node, graph, dependencies, count, (const CUDA_MEMSET_NODE_PARAMS_v1 *)params,
		context));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
				 const cudaGraphNode_t *dependencies, size_t count,
				 const struct cudaHostNodeParams *params)
{
	return CUDART_CALL(CUDART_DRV(cuGraphAddHostNode, 10000)(
		node, graph, dependencies, count, (const CUDA_HOST_NODE_PARAMS_v1 *)params));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
				  const cudaGraphNode_t *dependencies, size_t count)
{
	return CUDART_CALL(CUDART_DRV(cuGraphAddEmptyNode, 10000)(node, graph, dependencies,
								  count));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
				       const cudaGraphNode_t *dependencies, size_t count,
				       cudaGraph_t child)
{
	return CUDART_CALL(CUDART_DRV(cuGraphAddChildGraphNode, 10000)(node, graph, dependencies,
								       count, child));
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph,
				     const cudaGraphNode_t *dependencies, size_t count,
				     struct cudaMemAllocNodeParams *params)
{
	return CUDART_CALL(CUDART_DRV(cuGraphAddMemAllocNode, 11040)(
		node, graph, dependencies, count, (CUDA_MEM_ALLOC_NODE_PARAMS_v1 *)params));
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node,
					   struct cudaMemAllocNodeParams *params)
{
	return CUDART_CALL(CUDART_DRV(cuGraphMemAllocNodeGetParams, 11040)(
		node, (CUDA_MEM_ALLOC_NODE_PARAMS_v1 *)params));
}
