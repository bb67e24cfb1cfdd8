/* drv.h - what the C programs that use the driver API alone share.
 *
 * A program that links the driver (-lcuda) includes it as it is. Thread context: any thread,
 * except checkpoint(), for which the others must stand still.
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

/* The contexts that checkpoints work in: one a device, or NULL for a device not used. */
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

/* Ends the program, successfully and saying so, where there are fewer than @wanted devices. */
static inline void need_devices(int wanted)
{
	int count = 0;

	CHECK(cuDeviceGetCount(&count));
	if (count < wanted) {
		say("skip: %d devices wanted", wanted);
		exit(0);
	}
}

/* Whether @bytes at @ptr are all @value. */
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
