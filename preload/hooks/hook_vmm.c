/*
 * hook_vmm.c - virtual memory: handles with their bytes, and their mappings (backing.h).
 *
 * Reserved addresses hold no bytes. A multicast object has no bytes of its own, so its handle and its
 * mappings are not recorded; the calls pass through. Handles belong to no context.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/order/order.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"

static void place(struct gm_call *call, const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		call->alloc.domain = gm_domain_of(location->id);
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		call->alloc.domain = GM_DOMAIN_HOST;
		break;
	default:
		break;
	}
	call->alloc.context = 0;
	call->alloc.flags = GM_SEGMENT_UNMAPPED;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemCreate, handle, size, prop, flags);
	gm_alloc_begin(&call, "cuMemCreate", GM_KIND_VMM, size, GM_CALLER);
	if (prop)
		place(&call, &prop->location);
	result = GM_TRY(cuMemCreate, handle, size, prop, flags);
	call.alloc.handle = result ? 0 : *handle;
	return gm_alloc_end(&call, result, GM_MAP_HANDLE, result ? 0 : *handle, size);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result;

	GM_ENTER(cuMemRetainAllocationHandle, handle, addr);
	if (gm_cache_pages_covers((uintptr_t)addr))
		return gm_leave(CUDA_ERROR_INVALID_VALUE);	/* as the driver answers for memory of cudaMalloc */
	result = GM_REAL(cuMemRetainAllocationHandle)(handle, addr);
	if (!result)
		gm_backing_retain_at(GM_MAP_HANDLE, *handle, (uintptr_t)addr);
	return gm_leave(result);
}

/* Import memory of another process. Its size is learned from its mappings. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	struct gm_relaxed relaxed;
	CUmemAllocationProp prop;
	struct gm_call call;
	CUresult result;
	bool known;

	GM_ENTER(cuMemImportFromShareableHandle, handle, osHandle, shHandleType);
	gm_alloc_begin(&call, "cuMemImportFromShareableHandle", GM_KIND_IPC, 0, GM_CALLER);
	result = GM_TRY(cuMemImportFromShareableHandle, handle, osHandle, shHandleType);
	if (result || gm_backing_retain(GM_MAP_HANDLE, *handle))
		return gm_alloc_pass(&call, result);
	relaxed = gm_relax();
	known = !GM_REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, *handle);
	gm_unrelax(&relaxed);
	if (!known)
		return gm_alloc_pass(&call, result);
	place(&call, &prop.location);
	call.alloc.handle = *handle;
	return gm_alloc_end(&call, result, GM_MAP_HANDLE, *handle, 0);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemMap, ptr, size, offset, handle, flags);
	gm_alloc_begin(&call, "cuMemMap", GM_KIND_VMM, size, GM_CALLER);
	result = GM_TRY(cuMemMap, ptr, size, offset, handle, flags);
	if (!result)
		gm_backing_map(GM_MAP_HANDLE, handle, ptr, offset, size, call.op,
			       gm_stack_of_change(&call.alloc));
	return gm_alloc_pass(&call, result);
}

/* The cache must give each new peer access to the pages that it has mapped itself. For its own allocations the
 * driver does this. */
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct gm_where where;
	enum gm_context_role role;
	CUdevice device = -1;
	CUresult result;
	uint32_t peer;

	GM_ENTER(cuCtxEnablePeerAccess, peerContext, Flags);
	where = gm_where_now();
	peer = gm_context_meet(peerContext);
	if (peer && where.context)	/* before the peer may use the memory */
		gm_ticket_touches(where.context, peer);
	result = GM_TRY(cuCtxEnablePeerAccess, peerContext, Flags);
	if (!result && gm_context_handle(peer, &role, &device) && device >= 0)
		gm_cache_pages_peer((uint8_t)device, where.domain);
	return gm_leave(result);
}
