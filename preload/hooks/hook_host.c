/*
 * hook_host.c - pinned host memory: allocated, or the program's own, registered.
 *
 * It is recorded in the host's domain; it ends with the context that made it.
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/record.h"
#include "preload/hooks/retry.h"

static uint64_t address_of(CUresult result, void *const *pp)
{
	return result ? 0 : (uint64_t)(uintptr_t)*pp;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemHostAlloc, pp, bytesize, Flags);
	gm_alloc_begin(&call, "cuMemHostAlloc", GM_KIND_HOST, bytesize, GM_CALLER);
	result = GM_TRY(cuMemHostAlloc, pp, bytesize, Flags);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, address_of(result, pp), bytesize);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAllocHost_v2, pp, bytesize);
	gm_alloc_begin(&call, "cuMemAllocHost_v2", GM_KIND_HOST, bytesize, GM_CALLER);
	result = GM_TRY(cuMemAllocHost_v2, pp, bytesize);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, address_of(result, pp), bytesize);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAllocHost, pp, bytesize);
	gm_alloc_begin(&call, "cuMemAllocHost", GM_KIND_HOST, bytesize, GM_CALLER);
	result = GM_TRY(cuMemAllocHost, pp, bytesize);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, address_of(result, pp), bytesize);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemHostRegister_v2, p, bytesize, Flags);
	gm_alloc_begin(&call, "cuMemHostRegister_v2", GM_KIND_HOST, bytesize, GM_CALLER);
	call.alloc.flags = GM_SEGMENT_REGISTERED;
	result = GM_TRY(cuMemHostRegister_v2, p, bytesize, Flags);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, address_of(result, &p), bytesize);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemHostRegister, p, bytesize, Flags);
	gm_alloc_begin(&call, "cuMemHostRegister", GM_KIND_HOST, bytesize, GM_CALLER);
	call.alloc.flags = GM_SEGMENT_REGISTERED;
	result = GM_TRY(cuMemHostRegister, p, bytesize, Flags);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, address_of(result, &p), bytesize);
}

CUresult cuMemFreeHost(void *p)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemFreeHost, p);
	gm_free_begin(&call, GM_MAP_ADDRESS, (uintptr_t)p, NULL);
	result = GM_REAL(cuMemFreeHost)(p);
	return gm_free_end(&call, result);
}

CUresult cuMemHostUnregister(void *p)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemHostUnregister, p);
	gm_free_begin(&call, GM_MAP_ADDRESS, (uintptr_t)p, NULL);
	result = GM_REAL(cuMemHostUnregister)(p);
	return gm_free_end(&call, result);
}
