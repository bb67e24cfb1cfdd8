/*
 * hook_mem.c - memory that one call allocates and one call frees: cuMemAlloc and cuMemFree, which the cache
 * may serve, and the GM_ALLOC and GM_FREE rows of hooks.def.
 *
 * Pinned host memory, allocated or registered, is recorded in the host's domain and ends with the context that
 * made it. A mipmapped array from external memory is recorded as a mapping of that memory (hook_external.c).
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/cache/cache.h"
#include "preload/hooks/hook.h"

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	unsigned int tries = 0;
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuMemAlloc_v2, dptr, bytesize);
	gm_alloc_prepare(&call, "cuMemAlloc_v2", GM_KIND_DEVICE, bytesize, GM_CALLER);
	if (gm_cache_malloc(&call, dptr, &result))
		return result;
	gm_alloc_flight(&call);
	result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
	while (result && !call.exhausted && gm_retry(result, &tries))
		result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
	return gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : *dptr, bytesize);
}

static __attribute__((noinline)) CUresult free_inside(CUdeviceptr dptr)
{
	if (!gm_cache_covers(dptr))
		return GM_REAL(cuMemFree_v2)(dptr);
	return gm_inside_freed(dptr, GM_REAL(cuMemFree_v2)(GM_NOBODYS));
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct gm_call call;
	CUresult result;

	if (!gm_enter(false))
		return free_inside(dptr);
	if (gm_cache_free(dptr, GM_CALLER, &result))
		return result;
	gm_free_begin(&call, GM_MAP_ADDRESS, dptr, NULL);
	result = GM_REAL(cuMemFree_v2)(dptr);
	return gm_free_end(&call, result);
}

/* ---- the GM_ALLOC and GM_FREE rows of hooks.def, for memory of any kind ---- */

#define GM_HOOK(class, name, type, params, args)
#define GM_ALLOC(class, name, type, params, args, kind, segment_flags, requested, address, size) \
	CUresult name params \
	{ \
		struct gm_call call; \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		gm_alloc_begin(&call, #name, kind, requested, GM_CALLER); \
		call.alloc.flags = segment_flags; \
		result = GM_TRY_WITH(name, args); \
		return gm_alloc_end(&call, result, GM_MAP_ADDRESS, \
				    result ? 0 : (uint64_t)(uintptr_t)(address), \
				    result ? 0 : size); \
	}
#define GM_FREE(class, name, type, params, args, begin) \
	CUresult name params \
	{ \
		struct gm_call call; \
		\
		GM_ENTER_WITH(name, args); \
		begin; \
		return gm_free_end(&call, GM_REAL(name) args); \
	}
#include "preload/hooks/hooks.def"
