/*
 * hook_external.c - memory of other APIs: imported external memory and its mappings (backing.h), and
 * graphics resources while they are mapped.
 *
 * The program calls cuMemFree to free a buffer that it mapped from external memory, and
 * cuMipmappedArrayDestroy to free such a mipmapped array. So gm_free_begin looks for such a mapping when it
 * finds no block.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/hooks/record.h"
#include "preload/order/order.h"
#include "preload/hooks/hook.h"

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
				const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	uint64_t size = memHandleDesc ? memHandleDesc->size : 0;
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuImportExternalMemory, extMem_out, memHandleDesc);
	gm_alloc_begin(&call, "cuImportExternalMemory", GM_KIND_EXTERNAL, size, GM_CALLER);
	call.alloc.flags = GM_SEGMENT_UNMAPPED;
	result = GM_TRY(cuImportExternalMemory, extMem_out, memHandleDesc);
	return gm_alloc_end(&call, result, GM_MAP_EXTERNAL,
			    result ? 0 : (uint64_t)(uintptr_t)*extMem_out, size);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuExternalMemoryGetMappedBuffer, devPtr, extMem, bufferDesc);
	gm_alloc_begin(&call, "cuExternalMemoryGetMappedBuffer", GM_KIND_EXTERNAL, 0, GM_CALLER);
	result = GM_TRY(cuExternalMemoryGetMappedBuffer, devPtr, extMem, bufferDesc);
	if (!result)
		gm_backing_map(GM_MAP_EXTERNAL, (uintptr_t)extMem, *devPtr, bufferDesc->offset,
			       bufferDesc->size, call.op, gm_stack_of_change(&call.alloc));
	return gm_alloc_pass(&call, result);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(
	CUmipmappedArray *mipmap, CUexternalMemory extMem,
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	struct gm_call call;
	CUresult result;

	GM_ENTER(cuExternalMemoryGetMappedMipmappedArray, mipmap, extMem, mipmapDesc);
	gm_alloc_begin(&call, "cuExternalMemoryGetMappedMipmappedArray", GM_KIND_EXTERNAL, 0,
		       GM_CALLER);
	result = GM_TRY(cuExternalMemoryGetMappedMipmappedArray, mipmap, extMem, mipmapDesc);
	if (!result)	/* the place within the import is unknown, because the driver tiles */
		gm_backing_map(GM_MAP_EXTERNAL, (uintptr_t)extMem, (uintptr_t)*mipmap, 0, 0,
			       call.op, gm_stack_of_change(&call.alloc));
	return gm_alloc_pass(&call, result);
}

/* ---- graphics resources, which are recorded while they are mapped ---- */

static uint64_t bytes_of_resource(CUgraphicsResource resource, CUdeviceptr *ret_address)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct gm_relaxed relaxed = gm_relax();
	size_t size = 0;
	CUarray array;

	*ret_address = 0;
	if (GM_REAL(cuGraphicsResourceGetMappedPointer_v2)(ret_address, &size, resource) &&
	    !GM_REAL(cuGraphicsSubResourceGetMappedArray)(&array, resource, 0, 0) &&
	    !GM_REAL(cuArray3DGetDescriptor_v2)(&desc, array))
		size = gm_array_bytes(&desc, 1);
	gm_unrelax(&relaxed);
	return size;
}

static void resources_mapped(const char *entry, unsigned int count,
			     const CUgraphicsResource *resources, const void *caller)
{
	for (unsigned int i = 0; i < count; i++) {
		CUdeviceptr address;
		struct gm_call call;
		uint64_t size = bytes_of_resource(resources[i], &address);

		gm_alloc_begin(&call, entry, GM_KIND_EXTERNAL, size, caller);
		call.alloc.flags = GM_SEGMENT_UNMAPPED;
		gm_alloc_record(&call, GM_MAP_EXTERNAL, (uintptr_t)resources[i], size);
		if (address)
			gm_backing_map(GM_MAP_EXTERNAL, (uintptr_t)resources[i], address, 0, size,
				       call.op, gm_stack_of_change(&call.alloc));
		gm_op_end(call.op);
	}
}

typedef __typeof__(cuGraphicsUnmapResources) unmap_fn;

static CUresult unmap(unmap_fn *real, unsigned int count, CUgraphicsResource *resources,
		      CUstream stream)
{
	uint16_t module;
	uint32_t stack = gm_stack_of_free(&module);
	uint64_t tsc = gm_stamp_before(), op;
	CUresult result = real(count, resources, stream);

	if (result)
		return gm_leave(result);
	op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_EXTERNAL, gm_where_now().domain, 0, 0);
	for (unsigned int i = 0; i < count; i++)
		gm_backing_end(GM_MAP_EXTERNAL, (uintptr_t)resources[i], op, tsc, stack);
	gm_op_end(op);
	return gm_leave(result);
}

#define GRAPHICS(suffix) \
	CUresult cuGraphicsMapResources##suffix(unsigned int count, \
						CUgraphicsResource *resources, CUstream hStream) \
	{ \
		CUresult result; \
		\
		GM_ENTER(cuGraphicsMapResources##suffix, count, resources, hStream); \
		result = GM_TRY(cuGraphicsMapResources##suffix, count, resources, hStream); \
		if (!result) \
			resources_mapped("cuGraphicsMapResources" #suffix, count, resources, \
					 GM_CALLER); \
		return gm_leave(result); \
	} \
	CUresult cuGraphicsUnmapResources##suffix(unsigned int count, \
						  CUgraphicsResource *resources, CUstream hStream) \
	{ \
		GM_ENTER(cuGraphicsUnmapResources##suffix, count, resources, hStream); \
		return unmap(GM_REAL(cuGraphicsUnmapResources##suffix), count, resources, hStream); \
	}
GRAPHICS()
GRAPHICS(_ptsz)
