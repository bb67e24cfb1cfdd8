/* app_driver.c - a program linked with the driver (-lcuda), as C programs and other languages'
 * bindings are: it calls the exported names, the newest ABI of each that cuda.h chooses.
 *
 * Thread context: one thread.
 */
#include <sys/mman.h>

#include "test/apps/drv.h"

static void linear_memory(void)
{
	CUdeviceptr a, b, managed;
	size_t pitch, size;
	CUdeviceptr base;

	CHECK(cuMemAlloc(&a, 1000000));
	CHECK(cuMemAllocPitch(&b, &pitch, 1000, 20, 4));
	CHECK(cuMemAllocManaged(&managed, 1 << 20, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemsetD8(a, 1, 1000000));
	CHECK(cuMemsetD32(managed, 0x02020202, (1 << 20) / 4));
	CHECK(cuMemsetD2D8(b, pitch, 3, 1000, 20));
	expect(holds_byte(a, 1, 1000000) && holds_byte(managed, 2, 1 << 20), "linear memory");
	CHECK(cuMemGetAddressRange(&base, &size, a + 12345));
	expect(base == a && size == 1000000, "its address range");
	checkpoint(1, "linear memory");
	expect(cuMemFree(a + 512) == CUDA_ERROR_INVALID_VALUE, "an interior pointer is not freed");
	CHECK(cuMemFree(a));
	expect(cuMemFree(a) == CUDA_ERROR_INVALID_VALUE, "nor one that is freed already");
	CHECK(cuMemFree(b));
	CHECK(cuMemFree(managed));
	expect(cuMemAlloc(&a, 0) == CUDA_ERROR_INVALID_VALUE, "zero bytes");
	checkpoint(1, "freed");
}

static void host_memory(void)
{
	void *plain, *flagged, *pages;

	CHECK(cuMemAllocHost(&plain, 100000));
	CHECK(cuMemHostAlloc(&flagged, 5000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		DIE("mmap");
	CHECK(cuMemHostRegister(pages, 8192, 0));
	checkpoint(1, "host memory");
	CHECK(cuMemHostUnregister(pages));
	munmap(pages, 8192);
	CHECK(cuMemFreeHost(plain));
	CHECK(cuMemFreeHost(flagged));
	checkpoint(1, "freed");
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = { .Width = 64, .Height = 64,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4 };
	CUDA_ARRAY3D_DESCRIPTOR deep = { .Width = 32, .Height = 32, .Depth = 32,
					 .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 };
	CUmipmappedArray pyramid;
	CUarray a, b;

	CHECK(cuArrayCreate(&a, &flat));
	CHECK(cuArray3DCreate(&b, &deep));
	deep.Depth = 0;
	CHECK(cuMipmappedArrayCreate(&pyramid, &deep, 4));
	checkpoint(1, "arrays");
	CHECK(cuArrayDestroy(a));
	CHECK(cuArrayDestroy(b));
	CHECK(cuMipmappedArrayDestroy(pyramid));
	checkpoint(1, "destroyed");
}

static void stream_ordered(void)
{
	CUdeviceptr a, b, c;
	CUmemoryPool pool;
	CUstream stream;
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemPoolCreate(&pool, &props));
	CHECK(cuMemAllocAsync(&a, 123456, stream));
	CHECK(cuMemAllocFromPoolAsync(&b, 234567, pool, stream));
	CHECK(cuMemAllocAsync(&c, 345678, CU_STREAM_PER_THREAD));
	CHECK(cuMemsetD8Async(a, 4, 123456, stream));
	CHECK(cuStreamSynchronize(stream));
	expect(holds_byte(a, 4, 123456), "memory in stream order");
	checkpoint(1, "in stream order");
	CHECK(cuMemFreeAsync(a, stream));
	CHECK(cuMemFreeAsync(c, CU_STREAM_PER_THREAD));
	CHECK(cuMemFree(b));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemPoolDestroy(pool));
	CHECK(cuStreamDestroy(stream));
	checkpoint(1, "freed");
}

static void old_entry_points(void)
{
	CUdeviceptr ptr;
	CUevent event;
	float ms;

	CHECK(cuMemAlloc(&ptr, 4096));
	CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
	CHECK(cuEventRecord(event, NULL));
	CHECK(cuEventSynchronize(event));
	CHECK(cuEventElapsedTime(&ms, event, event));
	CHECK(cuEventDestroy(event));
	CHECK(cuMemFree(ptr));
	expect(ms == 0.0f, "an event");
}

int main(void)
{
	CUdevice device;

	expect(cuDeviceGet(&device, 0) == CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], device));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	linear_memory();
	host_memory();
	arrays();
	stream_ordered();
	old_entry_points();
	CHECK(cuDevicePrimaryCtxRelease(device));
	say("app_driver: done");
	return 0;
}
