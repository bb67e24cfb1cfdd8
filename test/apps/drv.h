/* drv.h - shared by the C programs that use only the driver API and link the driver (-lcuda).
 *
 * Thread context: any thread; during checkpoint() the other threads must stand still.
 */
#ifndef TEST_APPS_DRV_H
#define TEST_APPS_DRV_H

#include <cuda.h>

#include "test/apps/checkpoint.h"

#define CHECK(call)                                                                            \
	do {                                                                                   \
		CUresult check_result = (call);                                                \
		if (check_result != CUDA_SUCCESS)                                              \
			DIE("%s: CUresult %d", #call, (int)check_result);                      \
	} while (0)

#define DRV_MAX_DEVICES 16

/* The contexts for checkpoints: one for each device; NULL: the device is not used. */
static CUcontext drv_context[DRV_MAX_DEVICES];

static inline void drv_synchronize(int device)
{
	if (!drv_context[device])
		return;
	CHECK(cuCtxPushCurrent(drv_context[device]));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxPopCurrent(NULL));
}

static inline void drv_mem_info(int device, size_t *ret_free, size_t *ret_total)
{
	if (!drv_context[device])
		return;
	CHECK(cuCtxPushCurrent(drv_context[device]));
	CHECK(cuMemGetInfo(ret_free, ret_total));
	CHECK(cuCtxPopCurrent(NULL));
}

static inline void checkpoint(int devices, const char *what)
{
	static const struct checkpoint_driver driver = { drv_synchronize, drv_mem_info };

	checkpoint_with(&driver, "", devices, what);
}

/* End the program with a line and status 0 if there are fewer than @wanted devices. */
static inline void need_devices(int wanted)
{
	int count = 0;

	CHECK(cuDeviceGetCount(&count));
	if (count < wanted) {
		say("skip: %d devices wanted", wanted);
		exit(0);
	}
}

/* Are all @bytes at @ptr equal to @value? */
static inline bool holds_byte(CUdeviceptr ptr, unsigned char value, size_t bytes)
{
	unsigned char *copy = malloc(bytes);
	bool same = true;

	if (!copy)
		DIE("out of host memory");
	CHECK(cuMemcpyDtoH(copy, ptr, bytes));
	for (size_t i = 0; i < bytes && same; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

#endif
