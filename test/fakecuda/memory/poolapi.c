/*
 * poolapi.c - the entries for memory pools and stream-ordered memory. Lock: fc.lock.
 */
#include "test/fakecuda/memory/pool.h"

#include <string.h>

#include "test/fakecuda/memory/ipc.h"

/* ---- which pool ---- */

static CUresult current_pool(struct fc_device *dev, struct fc_pool **ret_pool)
{
	if (!dev->current_pool)
		return fc_pool_default(dev, ret_pool);
	*ret_pool = dev->current_pool;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	struct fc_device *device;
	struct fc_pool *pool;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!pool_out)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_pool_default(device, &pool);
	if (!r)
		*pool_out = pool->handle;
	return r;
}

CUresult fc_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	struct fc_device *device;
	struct fc_pool *p;
	CUresult r = fc_device_get(dev, &device);

	if (r)
		return r;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	r = current_pool(device, &p);
	if (!r)
		*pool = p->handle;
	return r;
}

CUresult fc_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	struct fc_device *device;
	struct fc_pool *p;
	CUresult r = fc_device_get(dev, &device);

	r = r ? r : fc_pool_get(pool, &p);
	if (r)
		return r;
	if (p->dev != device || p->imported)
		return CUDA_ERROR_INVALID_VALUE;
	device->current_pool = p;
	return CUDA_SUCCESS;
}

static bool is_host(CUmemLocationType type)
{
	return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	       type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult fc_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	if (!location)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	return fc_cuDeviceSetMemPool(location->id, pool);
}

/* ---- life ---- */

CUresult fc_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	const unsigned int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	struct fc_device *dev = NULL;
	struct fc_pool *p;
	CUresult r = CUDA_SUCCESS;

	if (!pool || !poolProps || ((unsigned int)poolProps->handleTypes & ~known) ||
	    (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED &&
	     poolProps->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	if (poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	    poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		r = fc_device_get(poolProps->location.id, &dev) ? CUDA_ERROR_INVALID_VALUE : r;
	else if (poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
		 !is_host(poolProps->location.type))
		r = CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	r = r ? r : fc_pool_make(dev, poolProps, &p);
	if (!r)
		*pool = p->handle;
	return r;
}

CUresult fc_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);

	if (r)
		return r;
	if (p->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	if (r)
		return r;
	if (p->dev && p->dev->current_pool == p)
		p->dev->current_pool = NULL;
	fc_handle_drop(pool);
	p->handle = NULL;
	fc_pool_release(p, 0);
	fc_pool_put(p);
	return CUDA_SUCCESS;
}

CUresult fc_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);

	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	if (r)
		return r;
	fc_pool_release(p, minBytesToKeep);
	return CUDA_SUCCESS;
}

/* ---- attributes ---- */

static int *int_attribute(struct fc_pool *p, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		return &p->reuse_follow_events;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		return &p->reuse_opportunistic;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return &p->reuse_internal;
	default:
		return NULL;
	}
}

CUresult fc_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);
	int *flag;

	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	if (r)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	flag = int_attribute(p, attr);
	if (flag) {
		*(int *)value = *flag;
		return CUDA_SUCCESS;
	}
	switch (attr) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = p->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = p->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = p->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult fc_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);
	int *flag;

	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	if (r)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	flag = int_attribute(p, attr);
	if (flag) {
		*flag = *(int *)value != 0;
		return CUDA_SUCCESS;
	}
	switch (attr) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:	/* high marks can only be reset, by a zero */
		if (*(cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		p->reserved_high = p->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		p->used_high = p->used;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult fc_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct fc_device *dev;
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);

	if (r)
		return r;
	if (count && !map)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		r = fc_device_get(map[i].location.id, &dev);
		if (r)
			return r;
		if (dev == p->dev && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	for (size_t i = 0; i < count; i++)
		p->access[map[i].location.id] = map[i].flags;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
			       CUmemLocation *location)
{
	struct fc_device *dev;
	struct fc_pool *p;
	CUresult r = fc_pool_get(memPool, &p);

	if (r)
		return r;
	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_host(location->type)) {
		*flags = p->dev ? CU_MEM_ACCESS_FLAGS_PROT_NONE :
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	}
	r = fc_device_get(location->id, &dev);
	if (!r)
		*flags = p->access[dev->ordinal];
	return r;
}

/* ---- allocation ---- */

static CUresult alloc(CUdeviceptr *dptr, size_t bytesize, struct fc_pool *pool, CUstream hStream)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (!pool)
		r = current_pool(s->ctx->dev, &pool);
	if (r)
		return r;
	if (fc_capture_on(s))
		return fc_capture_alloc(s, bytesize, pool, dptr);
	r = fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s);
	r = r ? r : fc_capture_legacy(s);
	return r ? r : fc_pool_alloc(pool, s, bytesize, dptr);
}

CUresult fc_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return alloc(dptr, bytesize, NULL, hStream);
}

CUresult fc_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				    CUstream hStream)
{
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);

	return r ? r : alloc(dptr, bytesize, p, hStream);
}

CUresult fc_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct fc_stream *s;
	struct fc_alloc *a;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (fc_capture_on(s))
		return fc_capture_free(s, dptr);
	r = fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s);
	r = r ? r : fc_capture_legacy(s);
	if (r || !dptr)
		return r;
	a = fc_mem_is_base(dptr);
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	switch (a->kind) {
	case FC_MEM_POOL:
		return fc_pool_free(a, s);
	case FC_MEM_DEVICE:
		return fc_mem_free_async(a, s);
	case FC_MEM_MANAGED:
		return CUDA_ERROR_NOT_SUPPORTED;
	case FC_MEM_GRAPH:
		return fc_graph_free(a, s);
	case FC_MEM_IPC:
		return fc_ipc_from_pool(a) ? fc_mem_free_async(a, s) : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
