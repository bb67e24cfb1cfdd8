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

cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t count, struct cudaMemLocation location,
				 unsigned int flags, cudaStream_t stream)
{
	CUmemLocation where = { .type = (CUmemLocationType)location.type, .id = location.id };

	return CUDART_CALL(CUDART_STREAM_DRV(cuMemPrefetchAsync, 12020, 12020)(
		(CUdeviceptr)ptr, count, where, flags, stream));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *ptr, size_t length,
				     unsigned int flags)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamAttachMemAsync, 6000, 7000)(
		stream, (CUdeviceptr)ptr, length, flags));
}
