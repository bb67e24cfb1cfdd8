/* device.c - devices: counting, properties, limits, synchronising, peer access.
 *
 * Thread context: any thread. Properties were read at start-up and cost no driver call.
 */
#include <stdio.h>
#include <string.h>

#include "cudart.h"

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (count)
		*count = error ? 0 : cudart_device_count;
	return cudart_record(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (!error)
		error = cudart_check_device(device);
	if (!error)
		*prop = cudart_devices[device].prop;
	return cudart_record(error);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (!error)
		error = cudart_check_device(device);
	if (!error && (attribute < 1 || (int)attribute >= CU_DEVICE_ATTRIBUTE_MAX))
		error = cudaErrorInvalidValue;
	if (!error)
		*value = cudart_devices[device].attribute[attribute];
	return cudart_record(error);
}

cudaError_t cudaDeviceGetPCIBusId(char *bus_id, int length, int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (!error)
		error = cudart_check_device(device);
	if (error)
		return cudart_record(error);
	return CUDART_RUN(CUDART_NEED_DRIVER, CUDART_DRV(cuDeviceGetPCIBusId, 4010)(
		bus_id, length, cudart_devices[device].handle));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus_id)
{
	return CUDART_RUN(CUDART_NEED_DRIVER,
			  CUDART_DRV(cuDeviceGetByPCIBusId, 4010)(device, bus_id));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return cudart_record(cudaErrorInvalidValue);
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	if (!version)
		return cudart_record(cudaErrorInvalidValue);
	/* 0 where there is no driver: the one question that works without one. */
	*version = 0;
	if (cudart_driver_load() == cudaSuccess)
		CUDART_DRV(cuDriverGetVersion, 2020)(version);
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUcontext context = NULL;

	if (error)
		return cudart_record(error);
	CUDART_DRV(cuCtxGetCurrent, 4000)(&context);
	return CUDART_CALL(CUDART_DRV(cuCtxSynchronize, 13000)(context));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
	return CUDART_CALL(CUDART_DRV(cuCtxGetLimit, 3010)(value, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	return CUDART_CALL(CUDART_DRV(cuCtxSetLimit, 3010)((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	return CUDART_CALL(CUDART_DRV(cuCtxGetStreamPriorityRange, 5050)(least, greatest));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (!error)
		error = cudart_check_device(device);
	if (!error)
		error = cudart_check_device(peer);
	if (error)
		return cudart_record(error);
	return CUDART_RUN(CUDART_NEED_DRIVER, CUDART_DRV(cuDeviceCanAccessPeer, 4000)(
		can, cudart_devices[device].handle, cudart_devices[peer].handle));
}

cudaError_t cudart_primary(int device, CUcontext *ret_context)
{
	int before = cudart_chosen_device();
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUcontext current = NULL;

	if (!error)
		error = cudart_check_device(device);
	if (error)
		return error;
	if (!cudart_devices[device].retained) {
		CUDART_DRV(cuCtxGetCurrent, 4000)(&current);
		error = cudaSetDevice(device);
		cudaSetDevice(before);
		CUDART_DRV(cuCtxSetCurrent, 4000)(current);
	}
	*ret_context = cudart_devices[device].primary;
	return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	CUcontext context = NULL;
	cudaError_t error = cudart_primary(peer, &context);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuCtxEnablePeerAccess, 4000)(context, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
	CUcontext context = NULL;
	cudaError_t error = cudart_primary(peer, &context);

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuCtxDisablePeerAccess, 4000)(context));
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count)
{
	CUcontext to = NULL, from = NULL;
	cudaError_t error = cudart_primary(dst_device, &to);

	if (!error)
		error = cudart_primary(src_device, &from);
	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuMemcpyPeer, 4000)((CUdeviceptr)dst, to, (CUdeviceptr)src,
							  from, count));
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				size_t count, cudaStream_t stream)
{
	CUcontext to = NULL, from = NULL;
	cudaError_t error = cudart_primary(dst_device, &to);

	if (!error)
		error = cudart_primary(src_device, &from);
	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuMemcpyPeerAsync, 4000)(
		(CUdeviceptr)dst, to, (CUdeviceptr)src, from, count, stream));
}
