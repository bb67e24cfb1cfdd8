/* app.h - shared by the CUDA test programs: checks, contents, checkpoints, the driver by name.
 *
 * The programs are ordinary CUDA programs. Built with the real runtime they run on a GPU. Built with
 * test/fakecuda's stand-in they run without one, and print the same lines, except checkpoints (checkpoint.h).
 * Only checkpoints know of libgpumem: they ask it for a snapshot if it is in the process.
 *
 * Thread context: any thread; during checkpoint() the other threads must stand still.
 */
#ifndef TEST_APPS_APP_H
#define TEST_APPS_APP_H

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include "test/apps/checkpoint.h"

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t check_error = (call);                                              \
		if (check_error != cudaSuccess)                                                \
			DIE("%s: %s", #call, cudaGetErrorName(check_error));                   \
	} while (0)

#define CHECK_DRIVER(call)                                                                     \
	do {                                                                                   \
		CUresult check_result = (call);                                                \
		if (check_result != CUDA_SUCCESS)                                              \
			DIE("%s: CUresult %d", #call, (int)check_result);                      \
	} while (0)

/* Return a function of the driver with the ABI that CUDA @version introduced, in the way of a program that does not
 * link the driver. */
static inline void *driver_entry(const char *name, unsigned version)
{
	cudaDriverEntryPointQueryResult status;
	void *function = NULL;

	CHECK(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault,
					       &status));
	if (!function)
		DIE("no %s in this driver", name);
	return function;
}
#define DRIVER(name, version) ((PFN_##name##_v##version)driver_entry(#name, version))

static inline void app_synchronize(int device)
{
	int current;

	CHECK(cudaGetDevice(&current));
	CHECK(cudaSetDevice(device));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaSetDevice(current));
}

static inline void app_mem_info(int device, size_t *ret_free, size_t *ret_total)
{
	int current;

	CHECK(cudaGetDevice(&current));
	CHECK(cudaSetDevice(device));
	CHECK(cudaMemGetInfo(ret_free, ret_total));
	CHECK(cudaSetDevice(current));
}

static inline void checkpoint_as(const char *role, int devices, const char *what)
{
	static const struct checkpoint_driver driver = { app_synchronize, app_mem_info };

	checkpoint_with(&driver, role, devices, what);
}

static inline void checkpoint(const char *what)
{
	checkpoint_as("", 1, what);
}

/* ---- contents ---- */

/* Kernels. The fake driver knows them by their names; a GPU runs their code. */
extern "C" __global__ void fill(uint32_t *p, uint32_t value, uint32_t n)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p[i] = value;
}

extern "C" __global__ void add(uint32_t *p, uint32_t value, uint32_t n)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p[i] += value;
}

static inline unsigned int blocks_for(size_t words)
{
	return (unsigned int)((words + 255) / 256);
}

/* Are all @bytes at @ptr, in any memory that cudaMemcpy reads, equal to @value? */
static inline bool holds_byte(const void *ptr, unsigned char value, size_t bytes)
{
	unsigned char *copy = (unsigned char *)malloc(bytes);
	bool same = true;

	if (!copy)
		DIE("out of host memory");
	CHECK(cudaMemcpy(copy, ptr, bytes, cudaMemcpyDefault));
	for (size_t i = 0; i < bytes && same; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

static inline bool holds_word(const void *ptr, uint32_t value, size_t words)
{
	uint32_t *copy = (uint32_t *)malloc(words * sizeof(*copy));
	bool same = true;

	if (!copy)
		DIE("out of host memory");
	CHECK(cudaMemcpy(copy, ptr, words * sizeof(*copy), cudaMemcpyDefault));
	for (size_t i = 0; i < words && same; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

#endif
