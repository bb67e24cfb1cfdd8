/* copy.c - copies and fills of linear memory, synchronous and on a stream, and of symbols.
 *
 * Thread context: any thread. Compiled a second time by per_thread.c for the _ptds and _ptsz
 * names. Which driver call serves which kind of copy is as recorded from NVIDIA's runtime.
 */
#include "cudart.h"

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;

	if (count == 0)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyHtoD, 3020, 7000)(to, src, count));
	case cudaMemcpyDeviceToHost:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyDtoH, 3020, 7000)(dst, from, count));
	case cudaMemcpyDeviceToDevice:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyDtoD, 3020, 7000)(to, from, count));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpy, 4000, 7000)(to, from, count));
	default:
		return cudart_record(cudaErrorInvalidMemcpyDirection);
	}
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	CUdeviceptr to = (CUdeviceptr)dst, from = (CUdeviceptr)src;

	if (count == 0)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyHtoDAsync, 3020, 7000)(to, src, count,
										   stream));
	case cudaMemcpyDeviceToHost:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyDtoHAsync, 3020, 7000)(dst, from,
										   count, stream));
	case cudaMemcpyDeviceToDevice:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyDtoDAsync, 3020, 7000)(to, from, count,
										   stream));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpyAsync, 4000, 7000)(to, from, count,
										stream));
	default:
		return cudart_record(cudaErrorInvalidMemcpyDirection);
	}
}

/* Fill the driver's 2D copy. Returns an error for a kind that there is not. */
static cudaError_t copy2d(CUDA_MEMCPY2D *copy, void *dst, size_t dpitch, const void *src,
			  size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
	if (width > dpitch || width > spitch)
		return cudaErrorInvalidPitchValue;
	*copy = (CUDA_MEMCPY2D){ .srcPitch = spitch,
				 .dstPitch = dpitch,
				 .WidthInBytes = width,
				 .Height = height,
				 .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
				 .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				 .srcDevice = (CUdeviceptr)src,
				 .dstDevice = (CUdeviceptr)dst };
	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice) {
		copy->srcMemoryType = CU_MEMORYTYPE_HOST;
		copy->srcHost = src;
	} else if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) {
		copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
	} else if (kind != cudaMemcpyDefault) {
		return cudaErrorInvalidMemcpyDirection;
	}
	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) {
		copy->dstMemoryType = CU_MEMORYTYPE_HOST;
		copy->dstHost = dst;
	} else if (kind != cudaMemcpyDefault) {
		copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
	}
	return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
			 size_t height, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY2D copy;
	cudaError_t error = copy2d(&copy, dst, dpitch, src, spitch, width, height, kind);

	if (error || width == 0 || height == 0)
		return cudart_record(error ? error : cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpy2DUnaligned, 3020, 7000)(&copy));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
			      size_t width, size_t height, enum cudaMemcpyKind kind,
			      cudaStream_t stream)
{
	CUDA_MEMCPY2D copy;
	cudaError_t error = copy2d(&copy, dst, dpitch, src, spitch, width, height, kind);

	if (error || width == 0 || height == 0)
		return cudart_record(error ? error : cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemcpy2DAsync, 3020, 7000)(&copy, stream));
}

/* Where @count bytes from @offset on of a registered variable lie. */
static cudaError_t symbol_range(const void *symbol, size_t offset, size_t count,
				CUdeviceptr *ret_address)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUdeviceptr address = 0;
	size_t size = 0;

	if (!error)
		error = cudart_symbol(symbol, &address, &size);
	if (!error && (offset > size || count > size - offset))
		error = cudaErrorInvalidValue;
	*ret_address = address + offset;
	return error;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
			       enum cudaMemcpyKind kind)
{
	CUdeviceptr address = 0;
	cudaError_t error = symbol_range(symbol, offset, count, &address);

	if (error)
		return cudart_record(error);
	return cudaMemcpy((void *)address, src, count, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset,
				 enum cudaMemcpyKind kind)
{
	CUdeviceptr address = 0;
	cudaError_t error = symbol_range(symbol, offset, count, &address);

	if (error)
		return cudart_record(error);
	return cudaMemcpy(dst, (void *)address, count, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count,
				    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error = symbol_range(symbol, offset, count, &address);

	if (error)
		return cudart_record(error);
	return cudaMemcpyAsync((void *)address, src, count, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count, size_t offset,
				      enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error = symbol_range(symbol, offset, count, &address);

	if (error)
		return cudart_record(error);
	return cudaMemcpyAsync(dst, (void *)address, count, kind, stream);
}

cudaError_t cudaMemset(void *ptr, int value, size_t count)
{
	if (count == 0)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemsetD8, 3020, 7000)(
		(CUdeviceptr)ptr, (unsigned char)value, count));
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream)
{
	if (count == 0)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemsetD8Async, 3020, 7000)(
		(CUdeviceptr)ptr, (unsigned char)value, count, stream));
}

cudaError_t cudaMemset2D(void *ptr, size_t pitch, int value, size_t width, size_t height)
{
	if (width == 0 || height == 0)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_STREAM_DRV(cuMemsetD2D8, 3020, 7000)(
		(CUdeviceptr)ptr, pitch, (unsigned char)value, width, height));
}

/* One 2D fill a slice: the rows between a box and the end of its slice are not ours to write. */
cudaError_t cudaMemset3D(struct cudaPitchedPtr ptr, int value, struct cudaExtent extent)
{
	cudaError_t error = cudaSuccess;

	for (size_t z = 0; z < extent.depth && !error; z++)
		error = cudaMemset2D((char *)ptr.ptr + z * ptr.pitch * ptr.ysize, ptr.pitch, value,
				     extent.width, extent.height);
	return error;
}
