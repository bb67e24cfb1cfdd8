/* memory.c - memory that is not ordered by a stream: linear, pitched, managed, host.
 *
 * Thread context: any thread.
 */
#include "cudart.h"

cudaError_t cudaMalloc(void **ptr, size_t size)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr)
		return cudart_record(cudaErrorInvalidValue);
	if (size == 0) {
		/* Nothing is asked of the driver, which would refuse; the context comes to be. */
		error = cudart_enter(CUDART_NEED_CONTEXT);
		if (!error)
			*ptr = NULL;
		return cudart_record(error);
	}
	error = CUDART_CALL(CUDART_DRV(cuMemAlloc, 3020)(&address, size));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaFree(void *ptr)
{
	return CUDART_CALL(CUDART_DRV(cuMemFree, 3020)((CUdeviceptr)ptr));
}

#define ELEMENT_BYTES 4	/* what the driver aligns rows for: 4, 8 or 16 give one pitch */

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr || !pitch)
		return cudart_record(cudaErrorInvalidValue);
	if (width == 0 || height == 0) {
		*ptr = NULL;
		*pitch = 0;
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	}
	error = CUDART_CALL(CUDART_DRV(cuMemAllocPitch, 3020)(&address, pitch, width, height,
							      ELEMENT_BYTES));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
	size_t rows;
	cudaError_t error;

	if (!pitched || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return cudart_record(cudaErrorInvalidValue);
	pitched->ptr = NULL;
	error = cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, rows);
	pitched->xsize = extent.width;
	pitched->ysize = extent.height;
	return error;
}

cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned int flags)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr)
		return cudart_record(cudaErrorInvalidValue);
	if (size == 0) {
		*ptr = NULL;
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	}
	error = CUDART_CALL(CUDART_DRV(cuMemAllocManaged, 6000)(&address, size, flags));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	cudaError_t error;

	if (!ptr)
		return cudart_record(cudaErrorInvalidValue);
	if (size == 0) {
		*ptr = NULL;
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	}
	error = CUDART_CALL(CUDART_DRV(cuMemHostAlloc, 2020)(ptr, size, flags));
	return error;
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
	return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *ptr)
{
	if (!ptr)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_DRV(cuMemFreeHost, 2000)(ptr));
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
	return CUDART_CALL(CUDART_DRV(cuMemHostRegister, 6050)(ptr, size, flags));
}

cudaError_t cudaHostUnregister(void *ptr)
{
	return CUDART_CALL(CUDART_DRV(cuMemHostUnregister, 4000)(ptr));
}

cudaError_t cudaHostGetDevicePointer(void **device_ptr, void *host_ptr, unsigned int flags)
{
	CUdeviceptr address = 0;
	cudaError_t error = CUDART_CALL(CUDART_DRV(cuMemHostGetDevicePointer, 3020)(
		&address, host_ptr, flags));

	if (!error)
		*device_ptr = (void *)address;
	return error;
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *host_ptr)
{
	return CUDART_CALL(CUDART_DRV(cuMemHostGetFlags, 2030)(flags, host_ptr));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	return CUDART_CALL(CUDART_DRV(cuMemGetInfo, 3020)(free_bytes, total_bytes));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	CUmemorytype type = (CUmemorytype)0;
	CUdeviceptr device_ptr = 0;
	unsigned int managed = 0;
	void *host_ptr = NULL;
	int ordinal = cudaInvalidDeviceId;
	CUpointer_attribute which[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,	CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,	CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	};
	void *values[] = { &type, &device_ptr, &host_ptr, &managed, &ordinal };
	cudaError_t error;

	if (!attributes)
		return cudart_record(cudaErrorInvalidValue);
	error = CUDART_CALL(CUDART_DRV(cuPointerGetAttributes, 7000)(
		sizeof(which) / sizeof(which[0]), which, values, (CUdeviceptr)ptr));
	if (error)
		return error;

	*attributes = (struct cudaPointerAttributes){ .type = cudaMemoryTypeUnregistered,
						      .device = cudaInvalidDeviceId };
	attributes->hostPointer = host_ptr;
	if (!type)
		return cudaSuccess;
	attributes->type = managed ? cudaMemoryTypeManaged :
			   type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost :
							cudaMemoryTypeDevice;
	attributes->device = ordinal;
	attributes->devicePointer = (void *)device_ptr;
	return cudaSuccess;
}
