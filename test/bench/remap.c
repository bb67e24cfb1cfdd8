/*
 * remap.c - what the driver takes to move memory in pages from some addresses to others (scripts/gpu-bench.sh runs it).
 *
 * For pages of 2, 8 and 32 MiB, and runs of 1 to 256 of them: microseconds for a page, the mean of ten times, of
 * cuMemCreate, cuMemMap of each, cuMemSetAccess of all, cuMemUnmap of all and cuMemRelease; with and without RDMA.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda.h>

#define MOST 256u
#define TIMES 10u
#define MIB ((size_t)1 << 20)

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "remap: %s: CUresult %d\n", what, (int)result);
	exit(1);
}
#define CHECK(call) check(call, #call)

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void run(CUdeviceptr at, size_t page, unsigned int count, bool rdma)
{
	static CUmemGenericAllocationHandle handles[MOST];
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		.allocFlags.gpuDirectRDMACapable = rdma,
	};
	const CUmemAccessDesc who = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	double made = now_us(), mapped = 0, opened = 0, unmapped = 0, released, t[4];

	for (unsigned int i = 0; i < count; i++)
		CHECK(cuMemCreate(&handles[i], page, &prop, 0));
	made = now_us() - made;
	for (unsigned int n = 0; n < TIMES; n++) {
		t[0] = now_us();
		for (unsigned int i = 0; i < count; i++)
			CHECK(cuMemMap(at + i * page, page, 0, handles[i], 0));
		t[1] = now_us();
		CHECK(cuMemSetAccess(at, count * page, &who, 1));
		t[2] = now_us();
		CHECK(cuMemUnmap(at, count * page));
		t[3] = now_us();
		mapped += t[1] - t[0];
		opened += t[2] - t[1];
		unmapped += t[3] - t[2];
	}
	released = now_us();
	for (unsigned int i = 0; i < count; i++)
		CHECK(cuMemRelease(handles[i]));
	released = now_us() - released;
	printf("%3u pages of %2zu MiB%s: create %5.1f, map %5.1f, set access %5.1f, unmap %5.1f, release %5.1f us a page\n", count,
	       page / MIB, rdma ? ", RDMA" : "", made / count, mapped / TIMES / count, opened / TIMES / count,
	       unmapped / TIMES / count, released / count);
}

int main(void)
{
	CUcontext context;
	CUdeviceptr at;
	int rdma = 0;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAddressReserve(&at, 1024 * MIB, 0, 0, 0));
	CHECK(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
	for (int with = 0; with <= !!rdma; with++)
		for (size_t page = 2 * MIB; page <= 32 * MIB; page *= 4)
			for (unsigned int count = 1; count <= MOST && count * page <= 1024 * MIB; count *= 4)
				run(at, page, count, with);
	CHECK(cuMemAddressFree(at, 1024 * MIB));
	CHECK(cuDevicePrimaryCtxRelease(0));
	return 0;
}
