/*
 * pointer.c - what a pointer is: address ranges, attributes, free memory. Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"
#include "test/fakecuda/memory/pool.h"

#include <string.h>

CUresult fc_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	struct fc_device *dev;
	struct fc_ctx *ctx;
	size_t used;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!free || !total)
		return CUDA_ERROR_INVALID_VALUE;
	dev = ctx->dev;
	used = dev->charged + fc_device_others(dev);
	*free = used < dev->capacity ? dev->capacity - used : 0;
	*total = dev->capacity;
	return CUDA_SUCCESS;
}

static struct fc_alloc *find(CUdeviceptr ptr)
{
	struct fc_alloc *a = fc_alloc_find(ptr);

	return a && !a->freed && a->kind != FC_MEM_ARRAY ? a : NULL;
}

CUresult fc_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct fc_alloc *a = find(dptr);
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!a)
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = a->base;
	if (psize)
		*psize = a->size;
	return CUDA_SUCCESS;
}

/* ---- attributes ---- */

static bool on_host(const struct fc_alloc *a)
{
	return a->kind == FC_MEM_HOST || a->kind == FC_MEM_REGISTERED;
}

static bool legacy_ipc(const struct fc_alloc *a)
{
	return a->kind == FC_MEM_DEVICE || a->kind == FC_MEM_GLOBAL;
}

static CUmemAllocationHandleType handle_types(const struct fc_alloc *a)
{
	return a->kind == FC_MEM_POOL ? a->pool->handle_types :
	       a->kind == FC_MEM_VMM ? fc_vmm_handle_types(a) : 0;
}

#define PUT(type, value) (*(type *)data = (type)(value))

static void put_identity(const struct fc_alloc *a, CUpointer_attribute attribute, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		PUT(CUcontext, a->ctx ? a->ctx->handle : NULL);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		PUT(CUmemorytype, on_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		PUT(unsigned int, a->sync_memops || a->kind == FC_MEM_MANAGED);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		PUT(unsigned long long, a->id);
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		PUT(unsigned int, a->kind == FC_MEM_MANAGED ||
				  (a->kind == FC_MEM_GLOBAL && a->readable_by_host));
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		PUT(int, a->dev ? a->dev->ordinal : -1);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		PUT(CUmemoryPool, a->kind == FC_MEM_POOL ? fc_pool_handle(a->pool) : NULL);
		break;
	default:
		break;
	}
}

static void put_range(const struct fc_alloc *a, CUpointer_attribute attribute, void *data)
{

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		PUT(unsigned int, legacy_ipc(a));
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		PUT(CUdeviceptr, a->base);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		PUT(size_t, a->size);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		PUT(size_t, a->reserved);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		PUT(unsigned int, 1);
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		PUT(unsigned long long, handle_types(a));
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		PUT(unsigned int, !on_host(a) && a->kind != FC_MEM_MANAGED);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		PUT(CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS,
		    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
		break;
	default:
		break;
	}
}

/* 0, or 1 for an attribute that @a has not (P2P tokens; a host address of device memory). */
static CUresult get(const struct fc_alloc *a, uint64_t ptr, CUpointer_attribute attribute,
		    void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		PUT(CUdeviceptr, ptr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!a->readable_by_host)
			return CUDA_ERROR_INVALID_VALUE;
		PUT(void *, (uintptr_t)ptr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		PUT(unsigned int, 0);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		put_identity(a, attribute, data);
		return CUDA_SUCCESS;
	default:
		if ((int)attribute <= 0 ||
		    attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
			return CUDA_ERROR_INVALID_VALUE;
		put_range(a, attribute, data);
		return CUDA_SUCCESS;
	}
}

CUresult fc_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct fc_alloc *a = find(ptr);
	struct fc_ctx *ctx;
	uint64_t base;
	size_t size;
	CUresult r = fc_ctx_current(&ctx);

	if (r == CUDA_ERROR_INVALID_CONTEXT)
		r = CUDA_SUCCESS;	/* asks about the pointer, not the context */
	if (r)
		return r;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (a)
		return get(a, ptr, attribute, data);
	if (attribute == CU_POINTER_ATTRIBUTE_MAPPED && fc_region_find(ptr, &base, &size)) {
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* How many bytes each attribute's value has, for the zeroes of an unknown pointer. */
static size_t value_size(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return 8;
	default:
		return 4;
	}
}

/* Unlike the single form it succeeds for any pointer: what does not apply reads as zero, the
 * device ordinal as -2, the host pointer as what was asked about. */
CUresult fc_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				   void **data, CUdeviceptr ptr)
{
	struct fc_alloc *a = find(ptr);

	if (!numAttributes || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (a && !get(a, ptr, attributes[i], data[i]))
			continue;
		memset(data[i], 0, value_size(attributes[i]));
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
		if (!a && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			memcpy(data[i], &ptr, sizeof(ptr));
	}
	return CUDA_SUCCESS;
}

CUresult fc_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				  CUdeviceptr ptr)
{
	struct fc_alloc *a = find(ptr);

	if (!value || !a || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	a->sync_memops = *(const unsigned int *)value != 0;
	return CUDA_SUCCESS;
}
