/* app_hostfn.c - host functions and stream callbacks that call the driver, which refuses: with the
 * same error with a recorder in between, and without waiting for anything.
 *
 * Thread context: one thread, and the driver's own for the functions.
 */
#include <sys/mman.h>

#include "test/apps/drv.h"

#define CALLS 14

static struct {
	CUdeviceptr linear, async, va;
	CUmemGenericAllocationHandle handle;
	void *host, *pages;
	CUstream stream;
	int results[CALLS];
} shared;

static void CUDA_CB inside(void *arg)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUDA_ARRAY_DESCRIPTOR desc = { .Width = 16, .Height = 16,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1 };
	CUmemGenericAllocationHandle handle;
	size_t free_bytes, total_bytes;
	CUdeviceptr ptr;
	CUarray array;
	void *host;
	int *r = arg;

	*r++ = (int)cuMemAlloc(&ptr, 1000);
	*r++ = (int)cuMemFree(shared.linear);
	*r++ = (int)cuMemAllocManaged(&ptr, 1000, CU_MEM_ATTACH_GLOBAL);
	*r++ = (int)cuMemAllocAsync(&ptr, 1000, shared.stream);
	*r++ = (int)cuMemFreeAsync(shared.async, shared.stream);
	*r++ = (int)cuMemHostAlloc(&host, 1000, 0);
	*r++ = (int)cuMemFreeHost(shared.host);
	*r++ = (int)cuMemHostRegister(shared.pages, 4096, 0);
	*r++ = (int)cuArrayCreate(&array, &desc);
	*r++ = (int)cuMemCreate(&handle, 2 << 20, &prop, 0);
	*r++ = (int)cuMemUnmap(shared.va, 2 << 20);
	*r++ = (int)cuMemRelease(shared.handle);
	*r++ = (int)cuMemGetInfo(&free_bytes, &total_bytes);
	*r++ = (int)cuDevicePrimaryCtxReset(0);
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *arg)
{
	(void)stream;
	(void)status;
	inside(arg);
}

static void tell(const char *where)
{
	static const char *const names[CALLS] = {
		"cuMemAlloc", "cuMemFree", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemFreeAsync",
		"cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuArrayCreate",
		"cuMemCreate", "cuMemUnmap", "cuMemRelease", "cuMemGetInfo",
		"cuDevicePrimaryCtxReset",
	};

	for (int i = 0; i < CALLS; i++)
		say("%s: %s: %d", where, names[i], shared.results[i]);
}

int main(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuStreamCreate(&shared.stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&shared.linear, 3 << 20));
	CHECK(cuMemAllocAsync(&shared.async, 1 << 20, shared.stream));
	CHECK(cuMemHostAlloc(&shared.host, 5000, 0));
	CHECK(cuMemCreate(&shared.handle, 2 << 20, &prop, 0));
	CHECK(cuMemAddressReserve(&shared.va, 2 << 20, 0, 0, 0));
	CHECK(cuMemMap(shared.va, 2 << 20, 0, shared.handle, 0));
	shared.pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared.pages == MAP_FAILED)
		DIE("mmap");
	checkpoint(1, "before");
	CHECK(cuLaunchHostFunc(shared.stream, inside, shared.results));
	CHECK(cuStreamSynchronize(shared.stream));
	tell("in a host function");
	checkpoint(1, "after a host function");
	CHECK(cuStreamAddCallback(shared.stream, callback, shared.results, 0));
	CHECK(cuStreamSynchronize(shared.stream));
	tell("in a callback");
	checkpoint(1, "after a callback");
	CHECK(cuMemFree(shared.linear));
	CHECK(cuMemFreeAsync(shared.async, shared.stream));
	CHECK(cuStreamSynchronize(shared.stream));
	CHECK(cuMemFreeHost(shared.host));
	CHECK(cuMemUnmap(shared.va, 2 << 20));
	CHECK(cuMemRelease(shared.handle));
	checkpoint(1, "all of it freed outside");
	CHECK(cuDevicePrimaryCtxRelease(0));
	say("app_hostfn: done");
	return 0;
}
