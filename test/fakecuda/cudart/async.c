/* async.c - memory in stream order: cudaMallocAsync and its like, and migration of managed memory.
 *
 * Thread context: any thread. Compiled a second time by per_thread.c for the _ptsz names.
 */
#include "cudart.h"

/* A size of zero goes to the driver too: it answers with a pointer. */
cudaError_t cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr)
		return cudart_record(cudaErrorInvalidValue);
	error = CUDART_CALL(CUDART_STREAM_DRV(cuMemAllocAsync, 11020, 11020)(&address, size,
									     stream));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool,
				    cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr)
		return cudart_record(cudaErrorInvalidValue);
	error = CUDART_CALL(CUDART_STREAM_DRV(cuMemAllocFromPoolAsync, 11020, 11020)(
		&address, size, pool, stream));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemFreeAsync, 11020, 11020)((CUdeviceptr)ptr,
									   stream));
}
