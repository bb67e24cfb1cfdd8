/*
 * retry.c - calls that fail for want of memory while the allocator's cache holds some. For
 * test_retry.py.
 *
 *   retry each NAME...   each entry, its arguments all zero, with its first call refused by the
 *                        fake driver: what it returned, and how often the driver was called. Then
 *                        again, with nothing cached.
 *   retry full           a device full of cached memory, and every sort of memory asked for
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define TRY(call) printf("%s: %d\n", #call, (int)(call))
#define CHECK(call) \
	do { \
		int check_ = (int)(call); \
		if (check_) { \
			printf("%s: %d\n", #call, check_); \
			exit(1); \
		} \
	} while (0)

typedef CUresult zeroes_fn(long, long, long, long, long, long, long, long, long, long, long, long,
			   long, long);
static void (*fail)(const char *entry, long skip, long times, int error);
static uint64_t (*calls)(const char *entry);
static void (*reset_calls)(void);
static CUcontext context;

static void start(void)
{
	*(void **)&fail = dlsym(RTLD_DEFAULT, "fakecuda_fail");
	*(void **)&calls = dlsym(RTLD_DEFAULT, "fakecuda_calls");
	*(void **)&reset_calls = dlsym(RTLD_DEFAULT, "fakecuda_reset_calls");
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
}

static void cached(void)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, 64 * MIB));
	CHECK(cuMemFree(p));
}

static void one(const char *name, const char *when)
{
	void *address = dlsym(RTLD_DEFAULT, name);
	zeroes_fn *entry;
	int result;

	memcpy(&entry, &address, sizeof(entry));
	if (!address) {
		printf("%s %s: missing\n", name, when);
		return;
	}
	fail(NULL, 0, 0, 0);
	fail(name, 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
	reset_calls();
	result = (int)entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	printf("%s %s: %d, %d calls\n", name, when, result, (int)calls(name));
	fflush(stdout);
	fail(NULL, 0, 0, 0);
	cuCtxSetCurrent(context);	/* zero may have been made current */
}

static void each(char **names)
{
	for (; *names; names++) {
		cached();
		one(*names, "cached");
		one(*names, "again");
	}
}

static void full(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemAllocationProp vmm = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUDA_ARRAY_DESCRIPTOR flat = { .Width = 16384, .Height = 8192,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4 };
	CUmemGenericAllocationHandle handle = 0;
	size_t pitch, free_bytes, total;
	CUdeviceptr p[12], q = 0;
	CUmemoryPool pool;
	CUarray array = NULL;
	CUstream stream;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemPoolCreate(&pool, &props));
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 12; i++)
			CHECK(cuMemAlloc(&p[i], 75 * MIB));
		for (int i = 0; i < 12; i++)
			CHECK(round % 2 ? cuMemFree(p[i]) : cuMemFreeAsync(p[i], stream));
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuMemGetInfo(&free_bytes, &total));
		printf("free: %zu of %zu MiB\n", free_bytes / MIB, total / MIB);
		switch (round) {
		case 0:
			TRY(cuMemAllocPitch(&q, &pitch, 1 << 20, 512, 4));
			CHECK(cuMemFree(q));
			break;
		case 1:
			TRY(cuArrayCreate(&array, &flat));
			CHECK(cuArrayDestroy(array));
			break;
		case 2:
			TRY(cuMemCreate(&handle, 512 * MIB, &vmm, 0));
			CHECK(cuMemRelease(handle));
			break;
		case 3:
			TRY(cuMemAllocFromPoolAsync(&q, 512 * MIB, pool, stream));
			CHECK(cuMemFreeAsync(q, stream));
			break;
		case 4:
			TRY(cuMemAllocAsync(&q, 512 * MIB, stream));
			CHECK(cuMemFreeAsync(q, stream));
			break;
		default:
			TRY(cuMemAlloc(&q, 800 * MIB));
			CHECK(cuMemFree(q));
		}
		CHECK(cuStreamSynchronize(stream));
	}
	TRY(cuMemAlloc(&q, 2048 * MIB));
	CHECK(cuMemPoolDestroy(pool));
}

int main(int argc, char **argv)
{
	start();
	if (argc > 2 && !strcmp(argv[1], "each"))
		each(argv + 2);
	else
		full();
	printf("done\n");
	return 0;
}
