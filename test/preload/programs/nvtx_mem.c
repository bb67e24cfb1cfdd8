/*
 * nvtx_mem.c - a program with a pool of its own, annotated by NVTX's memory extension as compute-sanitizer's
 * guide has it: a heap that is a suballocator, regions registered, resized, named and unregistered. For
 * test_pools.py. Prints where its heap lies.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#define HEAP ((size_t)1 << 20)
#define PIECES 200
#define PIECE ((size_t)4096)

int gpumem_snapshot(const char *path) __attribute__((weak));

static nvtxMemHeapHandle_t heap_of(nvtxDomainHandle_t domain, CUdeviceptr at, size_t size, const char *name,
				   uint32_t usage)
{
	nvtxMemVirtualRangeDesc_t range = { size, (const void *)at };
	nvtxMemHeapDesc_t desc = {
		.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(desc), .usage = usage,
		.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .typeSpecificDescSize = sizeof(range),
		.typeSpecificDesc = &range, .messageType = NVTX_MESSAGE_TYPE_ASCII,
		.message.ascii = name,
	};

	return nvtxMemHeapRegister(domain, &desc);
}

static void add(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap, const nvtxMemVirtualRangeDesc_t *ranges,
		size_t count, nvtxMemRegionHandle_t *handles)
{
	nvtxMemRegionsRegisterBatch_t batch = {
		.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(batch),
		.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .heap = heap, .regionCount = count,
		.regionDescElementSize = sizeof(*ranges), .regionDescElements = ranges,
		.regionHandleElementsOut = handles,
	};

	nvtxMemRegionsRegister(domain, &batch);
}

static void drop(nvtxDomainHandle_t domain, uint32_t type, const nvtxMemRegionRef_t *refs, size_t count)
{
	nvtxMemRegionsUnregisterBatch_t batch = {
		.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(batch), .refType = type,
		.refCount = count, .refElementSize = sizeof(*refs), .refElements = refs,
	};

	nvtxMemRegionsUnregister(domain, &batch);
}

static void grow(nvtxDomainHandle_t domain, CUdeviceptr at, size_t size)
{
	nvtxMemVirtualRangeDesc_t range = { size, (const void *)at };
	nvtxMemRegionsResizeBatch_t batch = {
		.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(batch),
		.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .regionDescCount = 1,
		.regionDescElementSize = sizeof(range), .regionDescElements = &range,
	};

	nvtxMemRegionsResize(domain, &batch);
}

static void name(nvtxDomainHandle_t domain, CUdeviceptr at, const char *text)
{
	nvtxMemRegionNameDesc_t desc = {
		.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER, .nameType = NVTX_MESSAGE_TYPE_ASCII,
		.region.pointer = (const void *)at, .name.ascii = text,
	};
	nvtxMemRegionsNameBatch_t batch = {
		.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(batch), .regionCount = 1,
		.regionElementSize = sizeof(desc), .regionElements = &desc,
	};

	nvtxMemRegionsName(domain, &batch);
}

static void must(CUresult result)
{
	if (result)
		exit(1);
}

/* A suballocator that announces each of its pieces as a heap of the same name, more of them than there are pools; every
 * second one goes again, with what is handed out in it. */
static void many(nvtxDomainHandle_t domain, CUdeviceptr at)
{
	nvtxMemHeapHandle_t heaps[PIECES];
	nvtxMemRegionRef_t ref;

	for (size_t i = 0; i < PIECES; i++) {
		heaps[i] = heap_of(domain, at + i * PIECE, PIECE, "pieces", NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
		add(domain, heaps[i], (const nvtxMemVirtualRangeDesc_t[]){
			{ 256, (const void *)(at + i * PIECE) }, { 512, (const void *)(at + i * PIECE + 1024) } }, 2, NULL);
	}
	for (size_t i = 0; i < PIECES; i += 2)
		nvtxMemHeapUnregister(domain, heaps[i]);
	/* What NVTX alone never looks at: batches without elements, a heap that is none, a name that is none. */
	add(domain, heaps[1], NULL, 3, NULL);
	add(domain, (nvtxMemHeapHandle_t)&ref, &(nvtxMemVirtualRangeDesc_t){ 64, (const void *)at }, 1, NULL);
	drop(domain, NVTX_MEM_REGION_REF_TYPE_POINTER, NULL, 3);
	name(domain, at + PIECE, NULL);
	ref.pointer = (const void *)(at + PIECE);
	drop(domain, NVTX_MEM_REGION_REF_TYPE_POINTER, &ref, 1);
	heap_of(domain, at, PIECE, "pieces", NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);	/* in a place that is free again */
	if (gpumem_snapshot)
		gpumem_snapshot(NULL);
}

int main(int argc, char **argv)
{
	nvtxDomainHandle_t domain;
	nvtxMemHeapHandle_t heap, layout;
	nvtxMemRegionHandle_t handles[4];
	nvtxMemRegionRef_t ref;
	CUdeviceptr at, other;
	CUcontext context;

	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&context, 0));
	must(cuCtxSetCurrent(context));
	must(cuMemAlloc(&at, HEAP));
	must(cuMemAlloc(&other, HEAP));
	domain = nvtxDomainCreateA("my library");
	if (argc > 1 && !strcmp(argv[1], "many")) {
		many(domain, at);
		printf("%llu\n", (unsigned long long)at);
		return 0;
	}
	heap = heap_of(domain, at, HEAP, "frames", NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
	layout = heap_of(domain, other, HEAP, "fields", NVTX_MEM_HEAP_USAGE_TYPE_LAYOUT);
	add(domain, heap, (const nvtxMemVirtualRangeDesc_t[]){
		{ 4096, (const void *)at }, { 8192, (const void *)(at + 4096) },
		{ 100, (const void *)(at + 65536) }, { 512, (const void *)(at + 131072) },
	    }, 4, handles);
	add(domain, layout, &(nvtxMemVirtualRangeDesc_t){ 64, (const void *)other }, 1, &ref.handle);
	name(domain, at + 65536, "header");
	grow(domain, at + 65536, 200);
	name(domain, at + 65536, "a longer header");
	name(domain, at + 4096, "body");
	ref.pointer = (const void *)at;
	drop(domain, NVTX_MEM_REGION_REF_TYPE_POINTER, &ref, 1);
	drop(domain, NVTX_MEM_REGION_REF_TYPE_POINTER, &ref, 1);	/* again: not known */
	ref.handle = handles[3];
	drop(domain, NVTX_MEM_REGION_REF_TYPE_HANDLE, &ref, 1);
	printf("%llu\n", (unsigned long long)at);
	if (gpumem_snapshot)
		gpumem_snapshot(NULL);
	nvtxMemHeapReset(domain, heap);
	add(domain, heap, &(nvtxMemVirtualRangeDesc_t){ 1000, (const void *)(at + 512) }, 1, NULL);
	if (gpumem_snapshot)
		gpumem_snapshot(NULL);
	nvtxMemHeapUnregister(domain, heap);
	if (gpumem_snapshot)
		gpumem_snapshot(NULL);
	must(cuMemFree(at));
	return 0;
}
