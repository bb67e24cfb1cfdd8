/*
 * hook_pool.c - stream-ordered memory and the driver pools that it comes from.
 *
 * Memory that a capturing stream allocates belongs to the graph (hook_graph.c). Other memory belongs to its
 * pool: it outlives contexts, and a destroyed pool lives on until its last pointer is freed. Because the
 * driver works like this, only a free ends a record here.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/cache/cache.h"
#include "preload/order/order.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"
#include "preload/hooks/imports.h"

/* ---- where a pool's memory lies ---- */

static uint8_t domain_of_location(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return gm_domain_of(location->id);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return GM_DOMAIN_HOST;
	default:
		return GM_DOMAIN_UNKNOWN;
	}
}

/* Return the domain of a pointer as the driver reports it, or @otherwise when the driver gives no answer.
 * @maybe_host: the pool may have host memory. */
static uint8_t domain_of_pointer(CUdeviceptr ptr, bool maybe_host, uint8_t otherwise)
{
	struct gm_relaxed relaxed = gm_relax();
	unsigned int type = 0;
	int device = -1;

	if (maybe_host &&
	    !GM_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) &&
	    type == CU_MEMORYTYPE_HOST)
		otherwise = GM_DOMAIN_HOST;
	else if (!GM_REAL(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr))
		otherwise = gm_domain_of(device);
	gm_unrelax(&relaxed);
	return otherwise;
}

/* Return the domain of @ptr, which cuMemAllocAsync allocated on the device of @stream. This need not be the
 * current device. */
static uint8_t domain_of_stream(const struct gm_call *call, CUdeviceptr ptr, CUstream stream)
{
	bool current = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;

	return current || gm_device_count() == 1 ? call->where.domain
						 : domain_of_pointer(ptr, false,
								     call->where.domain);
}

static uint8_t domain_of_pool(const struct gm_call *call, CUdeviceptr ptr, CUmemoryPool pool)
{
	uint64_t known = gm_map_get(gm_pointers, GM_MAP_POOL, (uintptr_t)pool);

	return known ? (uint8_t)(known - 1)
		     : domain_of_pointer(ptr, true, call->where.domain);
}

/* ---- allocate and free ---- */

static bool async_begin(struct gm_call *call, const char *entry, uint64_t bytes, CUmemoryPool pool,
			CUstream stream, bool per_thread, const void *caller)
{
	gm_alloc_prepare(call, entry, GM_KIND_POOL, bytes, caller);
	if (per_thread && !stream)
		stream = CU_STREAM_PER_THREAD;
	call->alloc.stream = (uintptr_t)stream;
	call->alloc.handle = (uintptr_t)pool;
	call->alloc.context = 0;
	return gm_stream_captures(stream, per_thread);
}

static CUresult async_end(struct gm_call *call, CUresult result, const CUdeviceptr *dptr,
			  uint64_t bytes, bool captured)
{
	CUmemoryPool pool = (CUmemoryPool)(uintptr_t)call->alloc.handle;
	CUstream stream = (CUstream)(uintptr_t)call->alloc.stream;

	if (result)
		return gm_alloc_pass(call, result);
	call->alloc.domain = pool ? domain_of_pool(call, *dptr, pool)
				  : domain_of_stream(call, *dptr, stream);
	if (!captured)
		gm_pool_passed(call->alloc.domain, pool);
	if (!captured)
		return gm_alloc_end(call, result, GM_MAP_ADDRESS, *dptr, bytes);
	gm_graph_node_made(call->alloc.domain);
	return gm_alloc_pass(call, result);
}

/* Return the context and device of a stream. Only the driver knows them, and asking costs more than the
 * allocation, so each thread keeps its last answer. The answer stays true, because keys are never used twice. */
static struct gm_where where_of_stream(const struct gm_call *call, CUstream stream, uint64_t key)
{
	static __thread struct { uint64_t key; struct gm_where where; } known;
	CUcontext context, before = NULL;

	if (stream <= CU_STREAM_PER_THREAD || gm_device_count() == 1)
		return call->where;
	if (known.key == key)
		return known.where;
	known.where = (struct gm_where){ 0, GM_DOMAIN_UNKNOWN };
	if (GM_REAL(cuCtxGetCurrent)(&before) || GM_REAL(cuStreamGetCtx)(stream, &context))
		return known.where;
	if (context == before) {
		known.where = call->where;
	} else if (!GM_REAL(cuCtxPushCurrent_v2)(context)) {
		known.where = gm_where_now();
		GM_REAL(cuCtxPopCurrent_v2)(&context);
	}
	known.key = known.where.context ? key : 0;
	return known.where;
}

/* Serve an allocation from the cache. If the program names a pool, the driver serves it. */
static bool from_cache(struct gm_call *call, CUdeviceptr *dptr, CUmemoryPool pool, CUstream stream,
		       bool per_thread, CUresult *ret_result)
{
	struct gm_where where;
	uint64_t key;

	if (pool || !gm_cache_on())
		return false;
	key = gm_stream_key_in(call->where.context, stream, per_thread);
	if (per_thread && !stream)
		stream = CU_STREAM_PER_THREAD;
	where = where_of_stream(call, stream, key);
	/* The driver serves streams of other devices than the current one. */
	if (where.domain != call->where.domain || !gm_pool_served(where.domain))
		return false;
	return gm_cache_malloc_async(call, dptr, stream, key, ret_result);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_ALLOC_ASYNC(class, name, type, params, args, pool, per_thread) \
	CUresult name params \
	{ \
		struct gm_call call; \
		CUresult result; \
		bool captured; \
		\
		GM_ENTER_WITH(name, args); \
		captured = async_begin(&call, #name, bytesize, pool, hStream, per_thread, GM_CALLER); \
		if (!captured && from_cache(&call, dptr, pool, hStream, per_thread, &result)) \
			return result; \
		gm_alloc_flight(&call); \
		result = GM_TRY_WITH(name, args); \
		return async_end(&call, result, dptr, bytesize, captured); \
	}
#include "preload/hooks/hooks.def"

static __attribute__((noinline)) CUresult
free_inside(__typeof__(cuMemFreeAsync) *real, CUdeviceptr dptr, CUstream stream, bool per_thread)
{
	if (!gm_cache_covers(dptr) || gm_stream_captures(stream, per_thread))
		return real(dptr, stream);
	return gm_inside_freed(dptr, real(GM_NOBODYS, stream));
}

/* On a capturing stream the driver makes the free of a graph's pointer a node of the graph, and refuses the free
 * of other pointers. Pointers of graphs are not in the map, so such a free is not recorded. */
#define FREE_ASYNC(name, per_thread, none) \
	CUresult name(CUdeviceptr dptr, CUstream hStream) \
	{ \
		struct gm_call call; \
		CUresult result; \
		\
		if (!gm_enter(false)) \
			return free_inside(GM_REAL(name), dptr, hStream, per_thread); \
		if (gm_cache_free_async(dptr, hStream, per_thread, &result)) \
			return result; \
		gm_free_begin(&call, GM_MAP_ADDRESS, dptr, hStream ? hStream : (none)); \
		result = GM_REAL(name)(dptr, hStream); \
		return gm_free_end(&call, result); \
	}
FREE_ASYNC(cuMemFreeAsync, false, NULL)
FREE_ASYNC(cuMemFreeAsync_ptsz, true, CU_STREAM_PER_THREAD)

/* ---- pools ---- */

static void pool_seen(CUmemoryPool pool, uint8_t domain)
{
	if (domain != GM_DOMAIN_UNKNOWN)
		gm_map_put(gm_pointers, GM_MAP_POOL, (uintptr_t)pool, domain + 1u, NULL);
	else	/* remove an entry that may be stale */
		gm_map_take(gm_pointers, GM_MAP_POOL, (uintptr_t)pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result;

	GM_ENTER(cuMemPoolCreate, pool, poolProps);
	result = GM_TRY(cuMemPoolCreate, pool, poolProps);
	if (!result)
		pool_seen(*pool, domain_of_location(&poolProps->location));
	return gm_leave(result);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
					    CUmemAllocationHandleType handleType,
					    unsigned long long flags)
{
	CUresult result;

	GM_ENTER(cuMemPoolImportFromShareableHandle, pool_out, handle, handleType, flags);
	result = GM_TRY(cuMemPoolImportFromShareableHandle, pool_out, handle, handleType, flags);
	if (!result)
		pool_seen(*pool_out, GM_DOMAIN_UNKNOWN);
	return gm_leave(result);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	uint64_t domain;
	CUresult result;

	GM_ENTER(cuMemPoolDestroy, pool);
	domain = gm_map_take(gm_pointers, GM_MAP_POOL, (uintptr_t)pool);
	result = GM_REAL(cuMemPoolDestroy)(pool);
	if (result && domain)
		gm_map_put(gm_pointers, GM_MAP_POOL, (uintptr_t)pool, domain, NULL);
	return gm_leave(result);
}

/* Import a pointer from another process's pool. The program frees it like one of its own. */
CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
				CUmemPoolPtrExportData *shareData)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemPoolImportPointer, ptr_out, pool, shareData);
	gm_alloc_begin(&call, "cuMemPoolImportPointer", GM_KIND_IPC, 0, GM_CALLER);
	result = GM_TRY(cuMemPoolImportPointer, ptr_out, pool, shareData);
	if (result)
		return gm_alloc_pass(&call, result);
	call.alloc.domain = domain_of_pointer(*ptr_out, true, call.where.domain);
	call.alloc.context = 0;
	call.alloc.handle = (uintptr_t)pool;
	call.alloc.requested = gm_import_bytes(*ptr_out);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, *ptr_out, call.alloc.requested);
}
