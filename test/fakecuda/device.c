/*
 * device.c - devices: finding and naming them, and their primary contexts' life.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/context.h"

#include <stdio.h>
#include <string.h>

CUresult fc_device_get(CUdevice dev, struct fc_device **ret_dev)
{
	if (dev < 0 || dev >= fc.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_dev = &fc.devices[dev];
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (ordinal < 0 || ordinal >= fc.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetCount(int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = fc.n_devices;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "Fake CUDA device");
	return CUDA_SUCCESS;
}

/* The same in every process, as a device's is. */
CUresult fc_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid->bytes, "FakeCUDA-device", 16);
	uuid->bytes[15] = (char)device->ordinal;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return fc_cuDeviceGetUuid_v2(uuid, dev);
}

CUresult fc_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = device->capacity;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!pciBusId || len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", 0x10 + device->ordinal);
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned int domain, bus, slot, function = 0;

	if (!dev || !pciBusId)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = 0;
		if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2)
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (domain || slot || function || bus < 0x10 || bus >= 0x10u + (unsigned int)fc.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (CUdevice)bus - 0x10;
	return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

CUresult fc_primary_get(struct fc_device *dev, struct fc_ctx **ret_ctx)
{
	if (dev->faulted && !(dev->primary && dev->primary->active))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;	/* until the process ends, as seen */
	if (!dev->primary) {
		dev->primary = fc_ctx_new(dev, dev->primary_flags, NULL);
		if (!dev->primary)
			return CUDA_ERROR_OUT_OF_MEMORY;
		dev->primary->primary = true;
	}
	dev->primary->flags = dev->primary_flags;
	dev->primary->active = true;
	*ret_ctx = dev->primary;
	return CUDA_SUCCESS;
}

CUresult fc_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	struct fc_device *device;
	struct fc_ctx *ctx;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_primary_get(device, &ctx);
	if (r)
		return r;
	device->primary_refs++;
	*pctx = ctx->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!device->primary_refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--device->primary_refs)
		return CUDA_SUCCESS;
	return fc_ctx_end(device->primary, "cuDevicePrimaryCtxRelease");
}

CUresult fc_cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return fc_cuDevicePrimaryCtxRelease_v2(dev);
}

/* References stay: whoever retained it must still release it. */
CUresult fc_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r || !device->primary)
		return r;
	return fc_ctx_end(device->primary, "cuDevicePrimaryCtxReset");
}

CUresult fc_cuDevicePrimaryCtxReset(CUdevice dev)
{
	return fc_cuDevicePrimaryCtxReset_v2(dev);
}

CUresult fc_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = device->primary_flags;
	*active = device->primary && device->primary->active;
	return CUDA_SUCCESS;
}

void fc_device_reset(void)
{
	for (int i = 0; i < fc.n_devices; i++)
		memset(&fc.devices[i], 0, sizeof(fc.devices[i]));
}
