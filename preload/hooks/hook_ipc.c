/*
 * hook_ipc.c - memory of another process that is opened by an IPC handle, and our memory that is exported.
 *
 * The bytes belong to the exporter. If a handle is opened again in one context, the driver returns the same
 * address and counts the opens; we count them as references of a backing whose key is that address. A
 * handle names a segment and also says which block of it is exported (imports.h). Other processes may write
 * exported memory at any time, outside our streams (writers.c).
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include <errno.h>

#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "preload/order/order.h"
#include "preload/hooks/imports.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"

/* ---- export ---- */

#define EXPORTED "memory is exported to other processes"

static CUresult export_inside(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	CUresult result = GM_REAL(cuIpcGetMemHandle)(pHandle, dptr);
	uint64_t base, bytes;
	CUdeviceptr start;
	size_t size;

	if (result || !gm_cache_covers(dptr))
		return result;
	gm_writers_noticed(EXPORTED);
	if (!gm_inside_block(dptr, &base, &bytes) ||
	    GM_REAL(cuMemGetAddressRange_v2)(&start, &size, dptr) ||
	    !gm_part_write(pHandle, base - start, bytes, size))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	CUipcMemHandle handle;
	struct gm_segment segment;
	struct gm_block copy;
	uint32_t block;
	CUresult result;

	if (!gm_enter(false))
		return export_inside(pHandle, dptr);
	if (!gm_cache_on() || !pHandle)
		return gm_leave(GM_REAL(cuIpcGetMemHandle)(pHandle, dptr));
	result = GM_REAL(cuIpcGetMemHandle)(&handle, dptr);
	/* A refusal counts as an export, too: the driver refuses memory in pages (expandable_segments:True), and
	 * the program may then export memory that it allocates next. */
	if (!result || gm_cache_covers(dptr))
		gm_writers_seen(EXPORTED);
	if (result)
		return gm_leave(result);
	block = gm_cache_block(dptr, &copy);
	if (block ? dptr - copy.address >= copy.requested : gm_cache_covers(dptr))
		return gm_leave(CUDA_ERROR_INVALID_VALUE);	/* the block is freed, or @dptr lies past its end */
	if (block && (!gm_cache_heap_segment(block, &segment) ||
		      !gm_part_write(&handle, copy.address - segment.address, copy.requested,
				     segment.size)))
		return gm_leave(CUDA_ERROR_INVALID_VALUE);
	*pHandle = handle;
	return gm_leave(CUDA_SUCCESS);
}

/* Export memory as a dma-buf, for network cards and storage. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	CUresult result;

	if (!gm_enter(false))
		return GM_REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType,
							      flags);
	result = GM_REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags);
	if (!result)
		gm_writers_seen("memory is exported as a dma-buf");
	return gm_leave(result);
}

/* ---- import ---- */

uint64_t gm_import_bytes(CUdeviceptr address)
{
	struct gm_relaxed relaxed = gm_relax();
	size_t size = 0;

	GM_REAL(cuMemGetAddressRange_v2)(NULL, &size, address);
	gm_unrelax(&relaxed);
	return size;
}

typedef __typeof__(cuIpcOpenMemHandle_v2) open_fn;

/* Open the handle, and move *pdptr to the exported block. *ret_size: the bytes of the block. */
static CUresult open_part(open_fn *real, CUdeviceptr *pdptr, CUipcMemHandle handle,
			  unsigned int flags, uint64_t *ret_size)
{
	uint64_t offset = 0, size = 0, all;
	unsigned int tries = 0;
	CUresult result;
	int r;

	gm_part_read(&handle, &offset, &size);
	result = real(pdptr, handle, flags);
	while (result && gm_retry(result, &tries))
		result = real(pdptr, handle, flags);
	if (result)
		return result;
	all = gm_import_bytes(*pdptr);
	if (size && (offset >= all || size > all - offset))	/* the eight bytes were not written by us */
		offset = size = 0;
	r = gm_import_opened(*pdptr, all, offset, size);
	if (r && offset) {	/* the program could not close this address */
		GM_REAL(cuIpcCloseMemHandle)(*pdptr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pdptr += offset;
	*ret_size = size ? size : all;
	return CUDA_SUCCESS;
}

static CUresult open_handle(struct gm_call *call, open_fn *real, CUdeviceptr *pdptr,
			    CUipcMemHandle handle, unsigned int flags)
{
	uint64_t size = 0;
	CUresult result = open_part(real, pdptr, handle, flags, &size);

	if (result || gm_backing_retain(GM_MAP_EXTERNAL, *pdptr))
		return gm_alloc_pass(call, result);
	call->alloc.requested = size;
	return gm_alloc_end(call, result, GM_MAP_EXTERNAL, *pdptr, size);
}

#define OPEN_HANDLE(name) \
	CUresult name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) \
	{ \
		struct gm_call call; \
		\
		GM_ENTER(name, pdptr, handle, Flags); \
		gm_alloc_begin(&call, #name, GM_KIND_IPC, 0, GM_CALLER); \
		return open_handle(&call, GM_REAL(name), pdptr, handle, Flags); \
	}
OPEN_HANDLE(cuIpcOpenMemHandle_v2)
OPEN_HANDLE(cuIpcOpenMemHandle)

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct gm_import import = { .base = dptr };
	struct gm_call call;
	CUresult result;
	int known;

	GM_ENTER(cuIpcCloseMemHandle, dptr);
	known = gm_import_closing(dptr, &import);
	if (known < 0)
		return gm_leave(CUDA_ERROR_INVALID_VALUE);
	gm_take_begin(&call, GM_MAP_EXTERNAL, dptr, 0);
	result = GM_REAL(cuIpcCloseMemHandle)(import.base);
	if (result && known)
		gm_import_opened(import.base, import.base_bytes, import.address - import.base,
				 import.size);
	return gm_free_end(&call, result);
}
