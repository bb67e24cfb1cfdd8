/* launch.c - kernel launches: what <<<>>> becomes, cudaLaunchKernel and its relatives.
 *
 * nvcc turns k<<<grid, block, shared, stream>>>(...) into a push of the configuration, a call of
 * the host stub, and in the stub a look-up of the kernel (once), a pop and __cudaLaunchKernel.
 *
 * Thread context: any thread; the configuration stack is per thread. Compiled a second time by
 * per_thread.c for the _ptsz names.
 */
#include "cudart.h"

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute),
	       "launch attributes are passed through as they are");

static cudaError_t launch_kernel(CUkernel kernel, dim3 grid, dim3 block, void **args,
				 size_t shared_bytes, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuLaunchKernel, 4000, 7000)(
		(CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
		(unsigned int)shared_bytes, stream, args, NULL));
}

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
				    size_t shared_bytes, cudaStream_t stream)
#else
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
			       size_t shared_bytes, cudaStream_t stream)
#endif
{
	/* The look-up before it failed and its error is already recorded. */
	if (!kernel)
		return cudart_record(cudaErrorInvalidDeviceFunction);
	return launch_kernel(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
			     size_t shared_bytes, cudaStream_t stream)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUkernel kernel;

	if (!error)
		error = cudart_kernel(func, &kernel);
	if (error)
		return cudart_record(error);
	return launch_kernel(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block, void **args,
					size_t shared_bytes, cudaStream_t stream)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUkernel kernel;

	if (!error)
		error = cudart_kernel(func, &kernel);
	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_STREAM_DRV(cuLaunchCooperativeKernel, 9000, 9000)(
		(CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
		(unsigned int)shared_bytes, stream, args));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUlaunchConfig driver_config;
	CUkernel kernel;

	if (!error && !config)
		error = cudaErrorInvalidConfiguration;
	if (!error)
		error = cudart_kernel(func, &kernel);
	if (error)
		return cudart_record(error);
	driver_config = (CUlaunchConfig){
		.gridDimX = config->gridDim.x,
		.gridDimY = config->gridDim.y,
		.gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x,
		.blockDimY = config->blockDim.y,
		.blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned int)config->dynamicSmemBytes,
		.hStream = config->stream,
		.attrs = (CUlaunchAttribute *)config->attrs,
		.numAttrs = config->numAttrs,
	};
	return CUDART_CALL(CUDART_STREAM_DRV(cuLaunchKernelEx, 11060, 11060)(
		&driver_config, (CUfunction)kernel, args, NULL));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuLaunchHostFunc, 10000, 10000)(stream, fn, arg));
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM

#define CALL_DEPTH 16	/* launches whose arguments contain launches */

static __thread struct {
	dim3 grid;
	dim3 block;
	size_t shared_bytes;
	struct CUstream_st *stream;
} calls[CALL_DEPTH];
static __thread int call_depth;

/* Returns nonzero to make the caller skip the launch, as an error would. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
				     struct CUstream_st *stream)
{
	if (call_depth == CALL_DEPTH) {
		cudart_record(cudaErrorMissingConfiguration);
		return 1;
	}
	calls[call_depth].grid = grid;
	calls[call_depth].block = block;
	calls[call_depth].shared_bytes = shared_bytes;
	calls[call_depth].stream = stream;
	call_depth++;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
	if (call_depth == 0)
		return cudart_record(cudaErrorMissingConfiguration);
	call_depth--;
	*grid = calls[call_depth].grid;
	*block = calls[call_depth].block;
	*shared_bytes = calls[call_depth].shared_bytes;
	*(struct CUstream_st **)stream = calls[call_depth].stream;
	return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *ret_kernel, const void *host_fun)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);

	if (!error)
		error = cudart_kernel(host_fun, ret_kernel);
	return cudart_record(error);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *func)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	struct cudaFuncAttributes got = { 0 };
	CUdevice device = 0;
	CUkernel kernel;
	const struct {
		CUfunction_attribute which;
		size_t *wide;
		int *narrow;
	} wanted[] = {
		{ CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &got.sharedSizeBytes, NULL },
		{ CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &got.constSizeBytes, NULL },
		{ CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &got.localSizeBytes, NULL },
		{ CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, NULL, &got.maxThreadsPerBlock },
		{ CU_FUNC_ATTRIBUTE_NUM_REGS, NULL, &got.numRegs },
		{ CU_FUNC_ATTRIBUTE_PTX_VERSION, NULL, &got.ptxVersion },
		{ CU_FUNC_ATTRIBUTE_BINARY_VERSION, NULL, &got.binaryVersion },
	};

	if (!error)
		error = cudart_kernel(func, &kernel);
	if (!error)
		error = cudart_current_device(&device);
	for (size_t i = 0; !error && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		int value = 0;

		error = (cudaError_t)CUDART_DRV(cuKernelGetAttribute, 12000)(
			&value, wanted[i].which, kernel, device);
		if (wanted[i].wide)
			*wanted[i].wide = (size_t)value;
		else
			*wanted[i].narrow = value;
	}
	if (!error)
		*attributes = got;
	return cudart_record(error);
}

#endif
