/* app_frees.c - every wrong way to free, and the unusual right ones.
 *
 * The driver decides each; a recorder must neither change what it decides nor lose its balance over
 * it: a checkpoint follows each group. Some of it would be undefined on a real GPU's driver (a
 * handle destroyed twice): that part runs on the fake device alone.
 *
 * Thread context: one thread.
 */
#include <sys/mman.h>

#include "test/apps/drv.h"

#define TRY(call) say("%s: %d", #call, (int)(call))

static void nothing(void)
{
	TRY(cuMemFree(0));
	TRY(cuMemFreeHost(NULL));
	TRY(cuMemHostUnregister(NULL));
	TRY(cuMemFreeAsync(0, NULL));
	checkpoint(1, "frees of nothing");
}

static void twice_and_inside(void)
{
	CUdeviceptr a, b, managed, async;
	size_t pitch;

	CHECK(cuMemAlloc(&a, 5000));
	CHECK(cuMemAllocPitch(&b, &pitch, 100, 10, 4));
	CHECK(cuMemAllocManaged(&managed, 70000, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocAsync(&async, 6000, NULL));
	TRY(cuMemFree(a + 1));
	TRY(cuMemFree(a + 4999));
	TRY(cuMemFree(b + 100));
	TRY(cuMemFree(managed + 4096));
	TRY(cuMemFreeAsync(async + 512, NULL));
	checkpoint(1, "interior pointers");
	TRY(cuMemFree(a));
	TRY(cuMemFree(a));
	TRY(cuMemFree(b));
	TRY(cuMemFree(b));
	TRY(cuMemFree(managed));
	TRY(cuMemFree(managed));
	TRY(cuMemFreeAsync(async, NULL));
	TRY(cuMemFreeAsync(async, NULL));
	TRY(cuMemFree(async));
	CHECK(cuCtxSynchronize());
	checkpoint(1, "freed twice");
	/* The address of a freed block serves again: its record must be the new one's. */
	CHECK(cuMemAlloc(&b, 5000));
	say("the address is given again: %s", a == b ? "yes" : "no");
	checkpoint(1, "given again");
	TRY(cuMemFree(b));
}

static void by_another_door(void)
{
	CUdeviceptr linear, async;
	void *host, *pages;

	CHECK(cuMemAlloc(&linear, 8000));
	CHECK(cuMemAllocAsync(&async, 9000, NULL));
	CHECK(cuMemAllocHost(&host, 10000));
	pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		DIE("mmap");
	CHECK(cuMemHostRegister(pages, 65536, 0));
	TRY(cuMemFree((CUdeviceptr)host));
	TRY(cuMemFreeHost((void *)linear));
	TRY(cuMemHostUnregister(host));
	TRY(cuMemFreeHost(pages));
	TRY(cuMemFree((CUdeviceptr)pages));
	TRY(cuIpcCloseMemHandle(linear));
	TRY(cuMemHostRegister(pages, 65536, 0));
	checkpoint(1, "by the wrong function");
	TRY(cuMemFreeAsync(linear, NULL));
	TRY(cuMemFree(async));
	CHECK(cuCtxSynchronize());
	checkpoint(1, "by the other function that may");
	TRY(cuMemHostUnregister(pages));
	TRY(cuMemHostUnregister(pages));
	TRY(cuMemFreeHost(host));
	TRY(cuMemFreeHost(host));
	munmap(pages, 65536);
	checkpoint(1, "host memory given back twice");
}

static void foreign(void)
{
	char *heap = malloc(4096), on_stack[16];

	if (!heap)
		DIE("malloc");
	TRY(cuMemFree((CUdeviceptr)heap));
	TRY(cuMemFree((CUdeviceptr)on_stack));
	TRY(cuMemFree(0x7));
	TRY(cuMemFree(UINT64_MAX));
	TRY(cuMemFreeHost(heap));
	TRY(cuMemHostUnregister(heap));
	TRY(cuMemFreeAsync((CUdeviceptr)heap, NULL));
	free(heap);
	checkpoint(1, "pointers of somebody else's");
}

static void wrong_arguments(void)
{
	CUdeviceptr ptr = 0;
	void *host = NULL;
	size_t pitch;

	TRY(cuMemAlloc(&ptr, 0));
	TRY(cuMemAlloc(NULL, 100));
	TRY(cuMemAllocPitch(&ptr, &pitch, 0, 10, 4));
	TRY(cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL));
	TRY(cuMemAllocManaged(&ptr, 100, 77));
	TRY(cuMemHostAlloc(&host, 0, 0));
	TRY(cuMemHostRegister(NULL, 100, 0));
	TRY(cuArrayCreate(NULL, NULL));
	TRY(cuMemPoolCreate(NULL, NULL));
	TRY(cuMemCreate(NULL, 0, NULL, 0));
	TRY(cuImportExternalMemory(NULL, NULL));
	checkpoint(1, "wrong arguments");
}

static void zero_bytes(void)
{
	CUdeviceptr none, one;

	CHECK(cuMemAllocAsync(&none, 0, NULL));
	CHECK(cuMemAllocAsync(&one, 1, NULL));
	say("zero bytes in stream order: %s", none ? "a pointer" : "none");
	checkpoint(1, "zero bytes");
	TRY(cuMemFreeAsync(none, NULL));
	TRY(cuMemFreeAsync(one, NULL));
	CHECK(cuCtxSynchronize());
	checkpoint(1, "zero bytes freed");
}

/* Handles: a driver may look into what they point at. */
static void handles_twice(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = { .Width = 64, .Height = 64,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4 };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemGenericAllocationHandle handle;
	CUarray array;

	if (!FAKE(fakecuda_live_bytes))
		return;
	CHECK(cuArrayCreate(&array, &desc));
	CHECK(cuMemCreate(&handle, 2 << 20, &prop, 0));
	checkpoint(1, "handles");
	TRY(cuArrayDestroy(array));
	TRY(cuArrayDestroy(array));
	TRY(cuMemRelease(handle));
	TRY(cuMemRelease(handle));
	TRY(cuMemUnmap(0x12340000, 2 << 20));
	TRY(cuMemMap(0x12340000, 2 << 20, 0, handle, 0));
	TRY(cuArrayDestroy((CUarray)&desc));
	TRY(cuMipmappedArrayDestroy((CUmipmappedArray)&desc));
	TRY(cuDestroyExternalMemory((CUexternalMemory)&desc));
	TRY(cuMemPoolDestroy((CUmemoryPool)&desc));
	TRY(cuCtxDestroy((CUcontext)&desc));
	checkpoint(1, "handles given back twice");
}

int main(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	nothing();
	twice_and_inside();
	by_another_door();
	foreign();
	wrong_arguments();
	zero_bytes();
	handles_twice();
	CHECK(cuDevicePrimaryCtxRelease(0));
	say("app_frees: done");
	return 0;
}
