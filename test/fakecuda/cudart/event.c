/* event.c - events. Thread context: any thread. Recording is compiled twice (per_thread.c). */
#include "cudart.h"

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuEventRecord, 2000, 7000)(event, stream));
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return CUDART_CALL(CUDART_DRV(cuEventCreate, 2000)(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	return CUDART_CALL(CUDART_DRV(cuEventCreate, 2000)(event, flags));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	/* An event knows its context: also from inside a host function, where no other call is. */
	return CUDART_RUN(CUDART_NEED_DRIVER, CUDART_DRV(cuEventQuery, 2000)(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return CUDART_CALL(CUDART_DRV(cuEventSynchronize, 2000)(event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return CUDART_CALL(CUDART_DRV(cuEventDestroy, 4000)(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	return CUDART_CALL(CUDART_DRV(cuEventElapsedTime, 12080)(ms, start, end));
}

#endif
