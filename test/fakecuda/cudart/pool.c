/* pool.c - memory pools: which one a device uses, making, tuning and sharing them.
 *
 * The runtime's and the driver's structures agree field for field here; the assertions below hold
 * them to it and pointers are passed through. Thread context: any thread.
 */
#include "cudart.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps) &&
		       offsetof(struct cudaMemPoolProps, location) ==
			       offsetof(CUmemPoolProps, location) &&
		       offsetof(struct cudaMemPoolProps, maxSize) ==
			       offsetof(CUmemPoolProps, maxSize),
	       "pool properties are passed through");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc),
	       "access descriptions are passed through");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation),
	       "locations are passed through");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData),
	       "exported pointers are passed through");

static cudaError_t enter_device(int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);

	return error ? error : cudart_check_device(device);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceGetDefaultMemPool, 11020)(
		pool, cudart_devices[device].handle));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceGetMemPool, 11020)(pool,
								 cudart_devices[device].handle));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
	cudaError_t error = enter_device(device);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuDeviceSetMemPool, 11020)(cudart_devices[device].handle,
								 pool));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolCreate, 11020)(
		pool, (const CUmemPoolProps *)properties));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolDestroy, 11020)(pool));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolTrimTo, 11020)(pool, keep_bytes));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolSetAttribute, 11020)(
		pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolGetAttribute, 11020)(
		pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
				 struct cudaMemLocation *location)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolGetAccess, 11020)(
		(CUmemAccess_flags *)flags, pool, (CUmemLocation *)location));
}

cudaError_t cudaMemPoolExportToShareableHandle(void *handle, cudaMemPool_t pool,
					       enum cudaMemAllocationHandleType type,
					       unsigned int flags)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolExportToShareableHandle, 11020)(
		handle, pool, (CUmemAllocationHandleType)type, flags));
}

cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *ptr)
{
	return CUDART_CALL(CUDART_DRV(cuMemPoolExportPointer, 11020)(
		(CUmemPoolPtrExportData *)data, (CUdeviceptr)ptr));
}
