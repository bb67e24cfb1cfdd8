/* memory.h - conformance of linear, pitched, managed, host and array memory. */
#ifndef TEST_CONFORMANCE_MEMORY_H
#define TEST_CONFORMANCE_MEMORY_H

#include <sys/mman.h>

#include "test/conformance/conf.h"

static void zero_sizes(void)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaStream_t stream = conf_busy;
	CUdeviceptr address = 1;
	cudaPitchedPtr box;
	cudaArray_t array;
	size_t pitch = 7;
	void *p;

	conf_section = "zero sizes";
	p = (void *)1;
	CODE(cudaMalloc(&p, 0));
	TRUTH("cudaMalloc(0) gives NULL", p == NULL);
	CODE(cudaFree(NULL));
	CODE(DRIVER(cuMemAlloc, 3020)(&address, 0));
	CODE(DRIVER(cuMemFree, 3020)(0));
	p = NULL;
	CODE(cudaMallocAsync(&p, 0, stream));
	TRUTH("cudaMallocAsync(0) gives a pointer", p != NULL);
	CODE(cudaFreeAsync(p, stream));
	address = 0;
	CODE(DRIVER(cuMemAllocAsync, 11020)(&address, 0, stream));
	TRUTH("cuMemAllocAsync(0) gives a pointer", address != 0);
	CODE(DRIVER(cuMemFreeAsync, 11020)(address, stream));
	CODE(cudaFreeAsync(NULL, stream));
	CODE(cudaStreamSynchronize(stream));
	p = NULL;
	CODE(cudaMallocManaged(&p, 0));
	CODE(DRIVER(cuMemAllocManaged, 6000)(&address, 0, CU_MEM_ATTACH_GLOBAL));
	p = (void *)1;
	CODE(cudaMallocHost(&p, 0));
	TRUTH("cudaMallocHost(0) gives NULL", p == NULL);
	CODE(DRIVER(cuMemHostAlloc, 2020)(&p, 0, 0));
	CODE(cudaFreeHost(NULL));
	p = (void *)1;
	CODE(cudaMallocPitch(&p, &pitch, 0, 10));
	CODE(cudaMallocPitch(&p, &pitch, 10, 0));
	CODE(DRIVER(cuMemAllocPitch, 3020)(&address, &pitch, 0, 10, 4));
	CODE(cudaMalloc3D(&box, make_cudaExtent(0, 4, 4)));
	CODE(cudaMalloc3D(&box, make_cudaExtent(4, 4, 0)));
	CODE(cudaMallocArray(&array, &format, 0, 0));
	CODE(cudaFreeArray(NULL));
	CODE(cudaFreeMipmappedArray(NULL));
	CODE(cudaHostRegister(&pitch, 0, 0));
	CODE(cudaMemset(NULL, 0, 0));
	CODE(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
	CODE(cudaMemcpyAsync(NULL, NULL, 0, cudaMemcpyDefault, stream));
	CODE(cudaMalloc(NULL, 10));
}

static void wrong_frees(void)
{
	void *p = NULL, *q = NULL, *async = NULL, *managed = NULL, *pinned = NULL;
	cudaStream_t stream = conf_busy;
	char here[64];

	conf_section = "wrong frees";
	NEED(cudaMalloc(&p, 1 << 20));
	CODE_OF("cudaFree of an interior pointer", cudaFree((char *)p + 512));
	CODE_OF("cudaFreeAsync of an interior pointer", cudaFreeAsync((char *)p + 512, stream));
	CODE_OF("cudaFreeHost of device memory", cudaFreeHost(p));
	CODE_OF("cudaFree", cudaFree(p));
	CODE_OF("cudaFree again", cudaFree(p));
	CODE_OF("cudaFreeAsync after cudaFree", cudaFreeAsync(p, stream));
	CODE_OF("cudaFree of the stack", cudaFree(here));
	CODE_OF("cudaFree of a small number", cudaFree((void *)4096));
	CODE_OF("cudaFreeHost of the stack", cudaFreeHost(here));

	NEED(cudaMallocHost(&pinned, 10000));
	CODE_OF("cudaFree of pinned memory", cudaFree(pinned));
	CODE_OF("cudaFreeAsync of pinned memory", cudaFreeAsync(pinned, stream));
	CODE_OF("cudaFreeHost of an interior pointer", cudaFreeHost((char *)pinned + 64));
	CODE_OF("cudaFreeHost", cudaFreeHost(pinned));
	CODE_OF("cudaFreeHost again", cudaFreeHost(pinned));

	NEED(cudaMallocManaged(&managed, 10000));
	CODE_OF("cudaFreeHost of managed memory", cudaFreeHost(managed));
	CODE_OF("cudaFreeAsync of managed memory", cudaFreeAsync(managed, stream));
	CODE_OF("cudaFree of managed memory", cudaFree(managed));
	CODE_OF("cudaFree of managed memory again", cudaFree(managed));

	NEED(cudaMallocAsync(&async, 10000, stream));
	NEED(cudaStreamSynchronize(stream));
	CODE_OF("cudaFree of an interior pointer of async memory", cudaFree((char *)async + 512));
	CODE_OF("cudaFreeAsync", cudaFreeAsync(async, stream));
	CODE_OF("cudaFreeAsync again, before the stream gets there", cudaFreeAsync(async, stream));
	CODE(cudaStreamSynchronize(stream));
	CODE_OF("cudaFreeAsync again, after it", cudaFreeAsync(async, stream));
	CODE_OF("cudaFree after cudaFreeAsync", cudaFree(async));

	NEED(cudaMalloc(&p, 1 << 20));
	CODE_OF("cudaFreeAsync of a cudaMalloc pointer", cudaFreeAsync(p, stream));
	CODE(cudaStreamSynchronize(stream));
	CODE_OF("cudaFree of it after that", cudaFree(p));
	NEED(cudaMallocAsync(&q, 1 << 20, stream));
	CODE_OF("cudaFree of a cudaMallocAsync pointer", cudaFree(q));
	CODE_OF("cudaFreeAsync of it after that", cudaFreeAsync(q, stream));
	CODE(cudaDeviceSynchronize());
}

static void host_memory(void)
{
	size_t page = 4096, bytes = 16 * page;
	unsigned int flags = 99;
	void *device = NULL, *p = NULL;
	char *pages = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);

	conf_section = "host memory";
	CODE(cudaHostRegister(pages, bytes, 0));
	CODE_OF("registered twice", cudaHostRegister(pages, bytes, 0));
	CODE_OF("registered in part again", cudaHostRegister(pages + page, page, 0));
	CODE_OF("unregistered in the middle", cudaHostUnregister(pages + page));
	CODE_OF("cudaFreeHost of registered memory", cudaFreeHost(pages));
	CODE(cudaHostGetDevicePointer(&device, pages, 0));
	TRUTH("the device pointer is the host pointer", device == pages);
	CODE(cudaHostGetFlags(&flags, pages));
	CODE(cudaHostUnregister(pages));
	CODE_OF("unregistered twice", cudaHostUnregister(pages));
	CODE_OF("registered off a page", cudaHostRegister(pages + 100, 1000, 0));
	CODE(cudaHostUnregister(pages + 100));
	CODE_OF("an unknown flag", cudaHostRegister(pages, bytes, 0x1000));
	munmap(pages, bytes);

	NEED(cudaMallocHost(&p, 5000));
	CODE(cudaHostGetFlags(&flags, p));
	VALUE("flags of cudaMallocHost", flags);
	TRUTH("it is page aligned", ((uintptr_t)p & 4095) == 0);
	CODE_OF("cudaHostRegister of pinned memory", cudaHostRegister(p, 4096, 0));
	CODE_OF("cudaHostUnregister of pinned memory", cudaHostUnregister(p));
	CODE(cudaFreeHost(p));
	NEED(cudaHostAlloc(&p, 5000, cudaHostAllocMapped | cudaHostAllocWriteCombined));
	CODE(cudaHostGetFlags(&flags, p));
	VALUE("flags of mapped, write-combined memory", flags);
	CODE(cudaFreeHost(p));
	CODE_OF("cudaHostAlloc with an unknown flag", cudaHostAlloc(&p, 5000, 0x100));
	NEED(cudaMalloc(&p, 5000));
	CODE_OF("cudaHostRegister of device memory", cudaHostRegister(p, 4096, 0));
	CODE_OF("cudaHostGetDevicePointer of device memory",
		cudaHostGetDevicePointer(&device, p, 0));
	CODE(cudaFree(p));
}

static void placement(void)
{
	char *small[8], *big[3];
	bool apart = true;

	conf_section = "placement";
	for (auto &p : small)
		NEED(cudaMalloc(&p, 1));
	for (int i = 1; i < 8; i++)
		apart = apart && small[i] - small[i - 1] == 512;
	TRUTH("one byte each: 512 bytes apart, rising", apart);
	NEED(cudaFree(small[3]));
	NEED(cudaMalloc(&big[0], 1));
	TRUTH("a hole is filled again at once", big[0] == small[3]);
	for (auto &p : small)
		CODE_OF("cudaFree", cudaFree(p));
	for (int i = 0; i < 3; i++)
		NEED(cudaMalloc(&big[i], ((size_t)2 << 20) * (i + 1) + (i == 2)));
	for (auto &p : big) {
		TRUTH("from 2 MiB on: 2 MiB aligned", ((uintptr_t)p & ((2 << 20) - 1)) == 0);
		cudaFree(p);
	}
	NEED(cudaMalloc(&big[0], (1 << 20) + 1));
	TRUTH("1 MiB and a byte: 2 MiB aligned", ((uintptr_t)big[0] & ((2 << 20) - 1)) == 0);
	cudaFree(big[0]);
	NEED(cudaMalloc(&big[0], 1 << 20));
	TRUTH("1 MiB: 2 MiB aligned", ((uintptr_t)big[0] & ((2 << 20) - 1)) == 0);
	cudaFree(big[0]);
}

static void charge(const char *what, size_t bytes, int count)
{
	long long before = used_bytes(), with;
	void *p[16];

	for (int i = 0; i < count; i++)
		NEED(cudaMalloc(&p[i], bytes));
	with = used_bytes();
	for (int i = 0; i < count; i++)
		cudaFree(p[i]);
	conf_print(what, "%lld KiB taken, %lld KiB given back", (with - before) / 1024,
		   (with - used_bytes()) / 1024);
}

static void charges(void)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
	long long before;
	cudaArray_t array;
	void *p;

	conf_section = "what cudaMemGetInfo counts";
	charge("4 of one byte", 1, 4);
	charge("one of 1 MiB", 1 << 20, 1);
	charge("one of 1 MiB and a byte", (1 << 20) + 1, 1);
	charge("3 of 1 MiB", 1 << 20, 3);
	charge("one of 2 MiB", 2 << 20, 1);
	charge("one of 2 MiB and a byte", (2 << 20) + 1, 1);
	charge("one of 3 MiB", 3 << 20, 1);
	charge("2 of 3 MiB", 3 << 20, 2);
	charge("one of 20 MiB", 20 << 20, 1);
	charge("one of 100 MiB and a byte", (100 << 20) + 1, 1);

	before = used_bytes();
	NEED(cudaMallocHost(&p, 20 << 20));
	VALUE("pinned memory, 20 MiB: KiB taken", (used_bytes() - before) / 1024);
	cudaFreeHost(p);
	before = used_bytes();
	NEED(cudaMallocManaged(&p, 20 << 20));
	VALUE("managed memory, 20 MiB untouched: KiB taken", (used_bytes() - before) / 1024);
	cudaFree(p);
	before = used_bytes();
	NEED(cudaMallocArray(&array, &format, 1024, 1024));
	VALUE("an array of 16 MiB: KiB taken", (used_bytes() - before) / 1024);
	cudaFreeArray(array);
	VALUE("and freed: KiB left", (used_bytes() - before) / 1024);
}

static void pitches(void)
{
	static const size_t widths[] = { 1, 4, 100, 255, 256, 257, 511, 512, 513, 1000, 1024, 4096,
					 5000, 65535, 65536, 65537, 1000000 };
	cudaPitchedPtr box = {};
	CUdeviceptr address;
	char what[64];
	size_t pitch;
	void *p;

	conf_section = "pitches";
	for (size_t width : widths) {
		snprintf(what, sizeof(what), "cudaMallocPitch, %zu wide", width);
		pitch = 0;
		NEED(cudaMallocPitch(&p, &pitch, width, 3));
		VALUE(what, pitch);
		cudaFree(p);
	}
	for (unsigned int element : { 1u, 4u, 8u, 16u, 32u }) {
		int code = (int)DRIVER(cuMemAllocPitch, 3020)(&address, &pitch, 100, 3, element);

		snprintf(what, sizeof(what), "cuMemAllocPitch, elements of %u", element);
		if (code) {
			CODE_OF(what, code);
			continue;
		}
		VALUE(what, pitch);
		cudaFree((void *)address);
	}
	NEED(cudaMalloc3D(&box, make_cudaExtent(100, 5, 7)));
	VALUE("cudaMalloc3D: pitch", box.pitch);
	VALUE("cudaMalloc3D: xsize", box.xsize);
	VALUE("cudaMalloc3D: ysize", box.ysize);
	NEED(DRIVER(cuMemGetAddressRange, 3020)(&address, &pitch, (CUdeviceptr)box.ptr));
	VALUE("cudaMalloc3D: the driver's size", pitch);
	cudaFree(box.ptr);
	CODE_OF("wider than the largest pitch", cudaMallocPitch(&p, &pitch, (size_t)1 << 32, 1));
}

static void array_size(const char *what, CUDA_ARRAY3D_DESCRIPTOR descriptor, unsigned int levels)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {};
	CUmipmappedArray pyramid = NULL;
	CUarray array = NULL;
	int code;

	code = levels ? (int)DRIVER(cuMipmappedArrayCreate, 5000)(&pyramid, &descriptor, levels) :
			(int)DRIVER(cuArray3DCreate, 3020)(&array, &descriptor);
	if (code) {
		conf_print(what, "create %d", code);
		return;
	}
	if (levels)
		code = (int)DRIVER(cuMipmappedArrayGetMemoryRequirements, 11060)(&needs, pyramid,
										 0);
	else
		code = (int)DRIVER(cuArrayGetMemoryRequirements, 11060)(&needs, array, 0);
	if (code)
		conf_print(what, "requirements %d", code);
	else
		conf_print(what, "%zu bytes, aligned to %zu", needs.size, needs.alignment);
	if (levels)
		DRIVER(cuMipmappedArrayDestroy, 5000)(pyramid);
	else
		DRIVER(cuArrayDestroy, 2000)(array);
}

static void array_sizes(void)
{
	static const struct {
		const char *what;
		CUDA_ARRAY3D_DESCRIPTOR descriptor;
		unsigned int levels;
	} shapes[] = {
		{ "1D 64 bytes", { 64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 0 },
		{ "1D 1000 floats", { 1000, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 0 },
		{ "2D 64 x 64 bytes", { 64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 0 },
		{ "2D 100 x 37 float4", { 100, 37, 0, CU_AD_FORMAT_FLOAT, 4, 0 }, 0 },
		{ "2D 1024 x 1024 floats", { 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 0 },
		{ "2D 4096 x 4096 half2", { 4096, 4096, 0, CU_AD_FORMAT_HALF, 2, 0 }, 0 },
		{ "3D 64 x 32 x 16 float4", { 64, 32, 16, CU_AD_FORMAT_FLOAT, 4, 0 }, 0 },
		{ "3D 5 x 6 x 7 bytes", { 5, 6, 7, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 0 },
		{ "layered 128 x 128 x 6 float4",
		  { 128, 128, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED }, 0 },
		{ "cube 64", { 64, 64, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP }, 0 },
		{ "mipmapped 256 x 256 float4, 5 levels",
		  { 256, 256, 0, CU_AD_FORMAT_FLOAT, 4, 0 }, 5 },
		{ "mipmapped 1000 x 500 bytes, 9 levels",
		  { 1000, 500, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 9 },
	};
	char what[80];

	conf_section = "array sizes";
	for (auto &shape : shapes) {
		CUDA_ARRAY3D_DESCRIPTOR descriptor = shape.descriptor;

		array_size(shape.what, descriptor, shape.levels);
		descriptor.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
		snprintf(what, sizeof(what), "%s, mapped later", shape.what);
		array_size(what, descriptor, shape.levels);
	}
}

/* What an ordinary array takes, seen from outside: many of one shape. */
static void array_charge(const char *what, CUDA_ARRAY3D_DESCRIPTOR descriptor, int count)
{
	CUarray arrays[64];
	long long before = used_bytes();

	for (int i = 0; i < count; i++)
		NEED(DRIVER(cuArray3DCreate, 3020)(&arrays[i], &descriptor));
	conf_print(what, "%lld KiB", (used_bytes() - before) / 1024);
	for (int i = 0; i < count; i++)
		DRIVER(cuArrayDestroy, 2000)(arrays[i]);
}

/* How many of one small shape share the memory that the first of them takes: the grain of sizes
 * that the driver tells nobody. */
static void array_grain(const char *what, CUDA_ARRAY3D_DESCRIPTOR descriptor)
{
	auto create = DRIVER(cuArray3DCreate, 3020);
	static CUarray arrays[4200];
	long long before, first;
	int count = 1;

	before = used_bytes();
	NEED(create(&arrays[0], &descriptor));
	first = used_bytes() - before;
	while (count < 4200 && create(&arrays[count], &descriptor) == CUDA_SUCCESS) {
		count++;
		if (used_bytes() - before > first)
			break;
	}
	conf_print(what, "%d share %lld KiB", count - 1, first / 1024);
	while (count > 0)
		DRIVER(cuArrayDestroy, 2000)(arrays[--count]);
}

static void array_charges(void)
{
	conf_section = "what arrays take";
	array_grain("1D 64 bytes", { 64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 });
	array_grain("2D 64 x 64 bytes", { 64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 });
	array_grain("2D 64 x 65 bytes", { 64, 65, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 });
	array_grain("2D 100 x 37 float4", { 100, 37, 0, CU_AD_FORMAT_FLOAT, 4, 0 });
	array_grain("2D 256 x 256 floats", { 256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0 });
	array_charge("one of 64 x 64 bytes", { 64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 1);
	array_charge("64 of 64 x 64 bytes", { 64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, 64);
	array_charge("one of 1024 x 1024 floats", { 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 1);
	array_charge("16 of 1024 x 1024 floats", { 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 16);
	array_charge("16 of 1000 x 1000 floats", { 1000, 1000, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 16);
}

static void copies(void)
{
	char *p = NULL, *freed = NULL;
	static char here[8192];

	conf_section = "copies";
	NEED(cudaMalloc(&p, 4096));
	NEED(cudaMalloc(&freed, 3 << 20));
	NEED(cudaFree(freed));
	CODE_OF("cudaMemset of the whole", cudaMemset(p, 1, 4096));
	CODE_OF("cudaMemset past the end", cudaMemset(p, 1, 4097));
	CODE_OF("cudaMemset of freed memory", cudaMemset(freed, 1, 16));
	CODE_OF("cudaMemcpy to the device past the end",
		cudaMemcpy(p, here, 4097, cudaMemcpyHostToDevice));
	CODE_OF("cudaMemcpy from the device past the end",
		cudaMemcpy(here, p, 4097, cudaMemcpyDeviceToHost));
	CODE_OF("cudaMemcpy to freed memory", cudaMemcpy(freed, here, 16, cudaMemcpyHostToDevice));
	CODE_OF("cudaMemcpy by default, both on the host",
		cudaMemcpy(here, here + 4096, 16, cudaMemcpyDefault));
	CODE_OF("cudaMemcpy2D with rows wider than the pitch",
		cudaMemcpy2D(p, 64, here, 100, 80, 2, cudaMemcpyHostToDevice));
	CODE_OF("an unknown direction", cudaMemcpy(p, here, 16, (enum cudaMemcpyKind)9));
	CODE(cudaFree(p));
}

#endif
