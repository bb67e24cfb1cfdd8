/* copy_array.c - 3D copies and copies to and from arrays, synchronous and on a stream.
 *
 * All of them become one driver call, cuMemcpy3D or its Async form, after asking the driver what
 * the array holds. Thread context: any thread. Compiled a second time by per_thread.c.
 */
#include "cudart.h"

/* @stream is used only when @async. */
static cudaError_t run_copy3d(const struct cudaMemcpy3DParms *params, bool async,
			      cudaStream_t stream)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUDA_MEMCPY3D copy;

	if (!error)
		error = cudart_copy3d(params, &copy);
	if (error)
		return cudart_record(error);
	if (async)
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpy3DAsync, 3020, 7000)(&copy, stream));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpy3D, 3020, 7000)(&copy));
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *params)
{
	return run_copy3d(params, false, NULL);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *params, cudaStream_t stream)
{
	return run_copy3d(params, true, stream);
}

/* A 2D copy to (@to_array) or from an array. @width and @offset are in bytes here. */
static cudaError_t array2d(cudaArray_const_t array, size_t offset, size_t row, void *ptr,
			   size_t pitch, size_t width, size_t height, enum cudaMemcpyKind kind,
			   bool to_array, bool async, cudaStream_t stream)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	struct cudaPitchedPtr pitched = { ptr, pitch, width, height };
	struct cudaMemcpy3DParms params = { .kind = kind };
	size_t element = 1;

	if (!error && (!array || !ptr))
		error = cudaErrorInvalidValue;
	if (!error)
		error = cudart_array_element(array, &element);
	if (!error && (width % element || offset % element))
		error = cudaErrorInvalidValue;
	if (error)
		return cudart_record(error);
	params.extent = (struct cudaExtent){ width / element, height, 1 };
	if (to_array) {
		params.srcPtr = pitched;
		params.dstArray = (cudaArray_t)(uintptr_t)array;
		params.dstPos = (struct cudaPos){ offset / element, row, 0 };
	} else {
		params.dstPtr = pitched;
		params.srcArray = (cudaArray_t)(uintptr_t)array;
		params.srcPos = (struct cudaPos){ offset / element, row, 0 };
	}
	return run_copy3d(&params, async, stream);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t dst, size_t offset, size_t row, const void *src,
				size_t pitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
	return array2d(dst, offset, row, (void *)(uintptr_t)src, pitch, width, height, kind, true,
		       false, NULL);
}

cudaError_t cudaMemcpy2DFromArray(void *dst, size_t pitch, cudaArray_const_t src, size_t offset,
				  size_t row, size_t width, size_t height, enum cudaMemcpyKind kind)
{
	return array2d(src, offset, row, dst, pitch, width, height, kind, false, false, NULL);
}
