/* pointers.h - conformance of what the driver says about pointers, for every sort of memory. */
#ifndef TEST_CONFORMANCE_POINTERS_H
#define TEST_CONFORMANCE_POINTERS_H

#include <sys/mman.h>

#include "test/conformance/conf.h"

/* One line for the runtime's view, one for each of the driver's attributes. */
static void pointer_lines(const char *what, void *p)
{
	static const struct {
		CUpointer_attribute attribute;
		const char *name;
		int bytes;
	} numbers[] = {
		{ CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type", 4 },
		{ CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed", 4 },
		{ CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device ordinal", 4 },
		{ CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "legacy IPC", 1 },
		{ CU_POINTER_ATTRIBUTE_MAPPED, "mapped", 1 },
		{ CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size", 8 },
		{ CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "handle types", 8 },
		{ CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync memops", 1 },
	};
	auto get = DRIVER(cuPointerGetAttribute, 4000);
	struct cudaPointerAttributes runtime = {};
	CUcontext context = NULL, current = NULL;
	CUmemoryPool pool = NULL;
	CUdeviceptr start = 0, device = 0;
	void *host = NULL;
	char line[160];
	int code;

	code = cudaPointerGetAttributes(&runtime, p);
	conf_print(what, "%d: type %d, device %d, device pointer %s, host pointer %s", code,
		   (int)runtime.type, runtime.device,
		   runtime.devicePointer == p ? "same" : runtime.devicePointer ? "other" : "none",
		   runtime.hostPointer == p ? "same" : runtime.hostPointer ? "other" : "none");
	cudaGetLastError();
	for (auto &number : numbers) {
		uint64_t value = 0;

		code = get(&value, number.attribute, (CUdeviceptr)p);
		snprintf(line, sizeof(line), "%s, %s", what, number.name);
		if (code)
			conf_print(line, "%d", code);
		else
			conf_print(line, "0: %llu", (unsigned long long)value &
				   (number.bytes == 8 ? ~0ull : (1ull << 8 * number.bytes) - 1));
	}
	DRIVER(cuCtxGetCurrent, 4000)(&current);
	code = get(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)p);
	snprintf(line, sizeof(line), "%s, context", what);
	conf_print(line, "%d, %s", code,
		   context == current ? "current" : context ? "other" : "none");
	code = get(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)p);
	snprintf(line, sizeof(line), "%s, device pointer", what);
	conf_print(line, "%d, %s", code,
		   device == (CUdeviceptr)p ? "same" : device ? "other" : "none");
	code = get(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)p);
	snprintf(line, sizeof(line), "%s, host pointer", what);
	conf_print(line, "%d, %s", code, host == p ? "same" : host ? "other" : "none");
	code = get(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (CUdeviceptr)p);
	snprintf(line, sizeof(line), "%s, range start", what);
	conf_print(line, "%d, %s", code,
		   start == (CUdeviceptr)p ? "same" : start ? "other" : "none");
	code = get(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)p);
	snprintf(line, sizeof(line), "%s, pool", what);
	conf_print(line, "%d, %s", code, pool ? "one" : "none");
}

static void pointer_attributes(void)
{
	static char here[64];
	void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p = NULL, *async = NULL, *managed = NULL, *pinned = NULL, *mapped = NULL;

	conf_section = "pointer attributes";
	NEED(cudaMalloc(&p, 5000));
	pointer_lines("cudaMalloc", p);
	pointer_lines("inside of it", (char *)p + 100);
	NEED(cudaMallocAsync(&async, 5000, conf_busy));
	NEED(cudaStreamSynchronize(conf_busy));
	pointer_lines("cudaMallocAsync", async);
	NEED(cudaMallocManaged(&managed, 5000));
	pointer_lines("cudaMallocManaged", managed);
	NEED(cudaMallocHost(&pinned, 5000));
	pointer_lines("cudaMallocHost", pinned);
	NEED(cudaHostAlloc(&mapped, 5000, cudaHostAllocMapped));
	pointer_lines("cudaHostAlloc, mapped", mapped);
	NEED(cudaHostRegister(pages, 8192, 0));
	pointer_lines("cudaHostRegister", pages);
	NEED(cudaHostUnregister(pages));
	munmap(pages, 8192);
	pointer_lines("plain host memory", here);
	NEED(cudaFree(p));
	pointer_lines("freed", p);
	NEED(cudaFree(async));
	NEED(cudaDeviceSynchronize());
	NEED(cudaFree(managed));
	NEED(cudaFreeHost(pinned));
	NEED(cudaFreeHost(mapped));
}

static void address_ranges(void)
{
	auto range = DRIVER(cuMemGetAddressRange, 3020);
	void *p = NULL, *pinned = NULL, *managed = NULL;
	CUdeviceptr base = 0;
	static char here[8];
	size_t size = 0;

	conf_section = "address ranges";
	NEED(cudaMalloc(&p, 1));
	NEED(range(&base, &size, (CUdeviceptr)p));
	VALUE("of one byte", size);
	CODE_OF("of one past it", range(&base, &size, (CUdeviceptr)p + 1));
	NEED(cudaFree(p));
	CODE_OF("of freed memory", range(&base, &size, (CUdeviceptr)p));
	NEED(cudaMalloc(&p, 3000001));
	NEED(range(&base, &size, (CUdeviceptr)p + 3000000));
	VALUE("of 3000001 bytes, from the last", size);
	TRUTH("its base", base == (CUdeviceptr)p);
	CODE_OF("with nowhere to put the base", range(NULL, &size, (CUdeviceptr)p));
	CODE_OF("with nowhere to put either", range(NULL, NULL, (CUdeviceptr)p));
	NEED(cudaFree(p));
	NEED(cudaMallocHost(&pinned, 5000));
	CODE_OF("of pinned memory", range(&base, &size, (CUdeviceptr)pinned));
	NEED(cudaFreeHost(pinned));
	NEED(cudaMallocManaged(&managed, 5000));
	size = 0;
	CODE_OF("of managed memory", range(&base, &size, (CUdeviceptr)managed));
	VALUE("its size", size);
	NEED(cudaFree(managed));
	CODE_OF("of plain host memory", range(&base, &size, (CUdeviceptr)here));
	CODE_OF("of nothing", range(&base, &size, 0));
}

static void buffer_ids(void)
{
	auto get = DRIVER(cuPointerGetAttribute, 4000);
	unsigned long long first = 0, again = 0, second = 0, later = 0;
	char *p, *q, *r;

	conf_section = "buffer ids";
	NEED(cudaMalloc(&p, 1000));
	NEED(cudaMalloc(&q, 1000));
	NEED(get(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)p));
	NEED(get(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)p + 999));
	NEED(get(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)q));
	NEED(cudaFree(p));
	NEED(cudaMalloc(&r, 1000));
	NEED(get(&later, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)r));
	TRUTH("one id for a whole allocation", first == again);
	TRUTH("another for its neighbour", first != second);
	TRUTH("the same address again", p == r);
	TRUTH("and a new id", later != first && later != second);
	NEED(cudaFree(q));
	NEED(cudaFree(r));
}

#endif
