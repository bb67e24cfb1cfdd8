/* batch.c - many copies, prefetches or discards in one call, and semaphores of other APIs.
 *
 * Structures agree with the driver's and are passed through. Thread context: any thread. Compiled
 * a second time by per_thread.c for the _ptsz names.
 */
#include "cudart.h"

_Static_assert(sizeof(struct cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes) &&
		       sizeof(struct cudaExternalSemaphoreSignalParams) ==
			       sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) &&
		       sizeof(struct cudaExternalSemaphoreWaitParams) ==
			       sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS),
	       "these are passed through");

cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes,
				 size_t count, struct cudaMemcpyAttributes *attributes,
				 size_t *attribute_of, size_t attribute_count, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyBatchAsync, 13000, 13000)(
		(CUdeviceptr *)(uintptr_t)dsts, (CUdeviceptr *)(uintptr_t)srcs,
		(size_t *)(uintptr_t)sizes, count, (CUmemcpyAttributes *)attributes, attribute_of,
		attribute_count, stream));
}

cudaError_t cudaMemPrefetchBatchAsync(void **ptrs, size_t *sizes, size_t count,
				      struct cudaMemLocation *locations, size_t *location_of,
				      size_t location_count, unsigned long long flags,
				      cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemPrefetchBatchAsync, 13000, 13000)(
		(CUdeviceptr *)ptrs, sizes, count, (CUmemLocation *)locations, location_of,
		location_count, flags, stream));
}

cudaError_t cudaMemDiscardBatchAsync(void **ptrs, size_t *sizes, size_t count,
				     unsigned long long flags, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemDiscardBatchAsync, 13000, 13000)(
		(CUdeviceptr *)ptrs, sizes, count, flags, stream));
}

cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void **ptrs, size_t *sizes, size_t count,
						struct cudaMemLocation *locations,
						size_t *location_of, size_t location_count,
						unsigned long long flags, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemDiscardAndPrefetchBatchAsync, 13000, 13000)(
		(CUdeviceptr *)ptrs, sizes, count, (CUmemLocation *)locations, location_of,
		location_count, flags, stream));
}

cudaError_t
cudaSignalExternalSemaphoresAsync(const cudaExternalSemaphore_t *semaphores,
				  const struct cudaExternalSemaphoreSignalParams *params,
				  unsigned int count, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuSignalExternalSemaphoresAsync, 10000, 10000)(
		(const CUexternalSemaphore *)semaphores,
		(const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)params, count, stream));
}

cudaError_t cudaWaitExternalSemaphoresAsync(const cudaExternalSemaphore_t *semaphores,
					    const struct cudaExternalSemaphoreWaitParams *params,
					    unsigned int count, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuWaitExternalSemaphoresAsync, 10000, 10000)(
		(const CUexternalSemaphore *)semaphores,
		(const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)params, count, stream));
}
