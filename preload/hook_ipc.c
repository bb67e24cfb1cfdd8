/*
 * hook_ipc.c - memory of another process, opened by its handle. The bytes are the exporter's.
 *
 * The driver gives the same address to whoever opens the same handle again in one context, and
 * counts: so do we, as references of a backing keyed by its address.
 *
 * Thread context: any. Signal context: passes through inside a hook. Fork: state.h.
 */
#include "preload/capture.h"
#include "preload/record.h"

static CUresult open_end(struct gm_call *call, CUresult result, const CUdeviceptr *pdptr)
{
	struct gm_relaxed relaxed;
	size_t size = 0;

	if (result || gm_backing_retain(GM_MAP_EXTERNAL, *pdptr))
		return gm_alloc_pass(call, result);
	relaxed = gm_relax();
	GM_REAL(cuMemGetAddressRange_v2)(NULL, &size, *pdptr);
	gm_unrelax(&relaxed);
	call->alloc.requested = size;
	return gm_alloc_end(call, result, GM_MAP_EXTERNAL, *pdptr, size);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
	gm_alloc_begin(&call, "cuIpcOpenMemHandle_v2", GM_KIND_IPC, 0, GM_CALLER);
	result = GM_REAL(cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);
	return open_end(&call, result, pdptr);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuIpcOpenMemHandle, pdptr, handle, Flags);
	gm_alloc_begin(&call, "cuIpcOpenMemHandle", GM_KIND_IPC, 0, GM_CALLER);
	result = GM_REAL(cuIpcOpenMemHandle)(pdptr, handle, Flags);
	return open_end(&call, result, pdptr);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuIpcCloseMemHandle, dptr);
	gm_take_begin(&call, GM_MAP_EXTERNAL, dptr, 0);
	result = GM_REAL(cuIpcCloseMemHandle)(dptr);
	return gm_free_end(&call, result);
}
