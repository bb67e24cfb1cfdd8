/*
 * hook_array.c - CUDA arrays and mipmapped arrays. Their record has the handle as its address.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/record.h"
#include "preload/order/order.h"
#include "preload/hooks/hook.h"

/* Convert a descriptor to the largest type; NULL stays NULL. A macro, because the older descriptors have other
 * types. */
#define SOLID(d, depth, flags) \
	((d) ? &(CUDA_ARRAY3D_DESCRIPTOR){ .Width = (d)->Width, .Height = (d)->Height, \
					   .Depth = (depth), .Format = (d)->Format, \
					   .NumChannels = (d)->NumChannels, .Flags = (flags) } \
	     : NULL)
#define FLAT(d) SOLID(d, 0, 0)

/* Ask the driver for the bytes of an array, because only the driver knows the tiling. Returns 0 without an answer. */
static uint64_t array_needs(CUarray array, CUdevice device)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;

	return GM_REAL(cuArrayGetMemoryRequirements)(&needs, array, device) ? 0 : needs.size;
}

static uint64_t mipmapped_needs(CUmipmappedArray array, CUdevice device)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;

	return GM_REAL(cuMipmappedArrayGetMemoryRequirements)(&needs, array, device) ? 0
										      : needs.size;
}

/* An array for which gm_array_bytes returns 0 has no memory of its own (sparse, deferred). */
#define GM_HOOK(class, name, type, params, args)
#define GM_ARRAY(class, name, type, params, args, descriptor, levels, needs) \
	CUresult name params \
	{ \
		struct gm_relaxed relaxed; \
		struct gm_call call; \
		uint64_t size, key; \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		gm_alloc_begin(&call, #name, GM_KIND_ARRAY, gm_array_bytes(descriptor, levels), \
			       GM_CALLER); \
		result = GM_TRY_WITH(name, args); \
		if (result || !call.alloc.requested) \
			return gm_alloc_end(&call, result, GM_MAP_ARRAY, 0, 0); \
		relaxed = gm_relax(); \
		size = needs(*pHandle, call.where.domain); \
		gm_unrelax(&relaxed); \
		key = (uintptr_t)*pHandle; \
		return gm_alloc_end(&call, result, GM_MAP_ARRAY, key, \
				    size ? size : call.alloc.requested); \
	}
#include "preload/hooks/hooks.def"
