/* stream.c - streams and capture.
 *
 * Thread context: any thread. Compiled a second time by per_thread.c for the _ptsz names; what
 * takes no stream is in the first compilation alone.
 */
#include "cudart.h"

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamSynchronize, 2000, 7000)(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamQuery, 2000, 7000)(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamWaitEvent, 3020, 7000)(stream, event, flags));
}

/* A callback carries the runtime's error type, which has the driver's values. */
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *arg,
				  unsigned int flags)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamAddCallback, 5000, 7000)(
		stream, (CUstreamCallback)(void *)callback, arg, flags));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamGetPriority, 5050, 7000)(stream, priority));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamGetFlags, 5050, 7000)(stream, flags));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamGetDevice, 12080, 12080)(stream, device));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamBeginCapture, 10010, 10010)(
		stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamEndCapture, 10000, 10000)(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	return CUDART_CALL(CUDART_STREAM_DRV(cuStreamIsCapturing, 10000, 10000)(
		stream, (CUstreamCaptureStatus *)status));
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return CUDART_CALL(CUDART_DRV(cuStreamCreate, 2000)(stream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	return CUDART_CALL(CUDART_DRV(cuStreamCreate, 2000)(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	return CUDART_CALL(CUDART_DRV(cuStreamCreateWithPriority, 5050)(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return CUDART_CALL(CUDART_DRV(cuStreamDestroy, 4000)(stream));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	return CUDART_CALL(CUDART_DRV(cuThreadExchangeStreamCaptureMode, 10010)(
		(CUstreamCaptureMode *)mode));
}

#endif
