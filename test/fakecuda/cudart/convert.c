/* convert.c - the runtime's descriptions of 3D copies in the driver's terms.
 *
 * Thread context: any thread. May ask the driver what an array holds, nothing else.
 */
#include "cudart.h"

/* One end of a copy: an array, or pitched memory on the side that the kind of copy names. */
struct end {
	CUmemorytype type;
	CUarray array;
	void *ptr;
	size_t pitch, height;
	size_t x_bytes, y, z;
};

static CUmemorytype linear_type(enum cudaMemcpyKind kind, bool source)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
		return CU_MEMORYTYPE_HOST;
	case cudaMemcpyHostToDevice:
		return source ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case cudaMemcpyDeviceToHost:
		return source ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case cudaMemcpyDeviceToDevice:
		return CU_MEMORYTYPE_DEVICE;
	default:
		return CU_MEMORYTYPE_UNIFIED;
	}
}

static struct end make_end(cudaArray_const_t array, struct cudaPos pos, struct cudaPitchedPtr ptr,
			   enum cudaMemcpyKind kind, bool source, size_t element)
{
	if (array)
		return (struct end){ .type = CU_MEMORYTYPE_ARRAY,
				     .array = (CUarray)(uintptr_t)array,
				     .x_bytes = pos.x * element,
				     .y = pos.y,
				     .z = pos.z };
	return (struct end){ .type = linear_type(kind, source),
			     .ptr = ptr.ptr,
			     .pitch = ptr.pitch,
			     .height = ptr.ysize,
			     .x_bytes = pos.x * element,
			     .y = pos.y,
			     .z = pos.z };
}

/* Both of the driver's 3D copy structures name these fields alike. */
#define FILL_SOURCE(copy, end)                                                                 \
	do {                                                                                   \
		(copy)->srcMemoryType = (end)->type;                                           \
		(copy)->srcArray = (end)->array;                                               \
		if ((end)->type == CU_MEMORYTYPE_HOST)                                         \
			(copy)->srcHost = (end)->ptr;                                          \
		else                                                                           \
			(copy)->srcDevice = (CUdeviceptr)(end)->ptr;                           \
		(copy)->srcPitch = (end)->pitch;                                               \
		(copy)->srcHeight = (end)->height;                                             \
		(copy)->srcXInBytes = (end)->x_bytes;                                          \
		(copy)->srcY = (end)->y;                                                       \
		(copy)->srcZ = (end)->z;                                                       \
	} while (0)

#define FILL_DESTINATION(copy, end)                                                            \
	do {                                                                                   \
		(copy)->dstMemoryType = (end)->type;                                           \
		(copy)->dstArray = (end)->array;                                               \
		if ((end)->type == CU_MEMORYTYPE_HOST)                                         \
			(copy)->dstHost = (end)->ptr;                                          \
		else                                                                           \
			(copy)->dstDevice = (CUdeviceptr)(end)->ptr;                           \
		(copy)->dstPitch = (end)->pitch;                                               \
		(copy)->dstHeight = (end)->height;                                             \
		(copy)->dstXInBytes = (end)->x_bytes;                                          \
		(copy)->dstY = (end)->y;                                                       \
		(copy)->dstZ = (end)->z;                                                       \
	} while (0)

/* Widths and places are in elements of the array that takes part, in bytes where none does. The
 * places in the linear memory of such a copy, too (seen on an H200, whatever the manual says). */
static cudaError_t copy_element(cudaArray_const_t source, cudaArray_const_t destination,
				size_t *ret_bytes)
{
	*ret_bytes = 1;
	if (source)
		return cudart_array_element(source, ret_bytes);
	if (destination)
		return cudart_array_element(destination, ret_bytes);
	return cudaSuccess;
}

cudaError_t cudart_copy3d(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *ret_copy)
{
	struct end source, destination;
	cudaError_t error;
	size_t element;

	if (!params || (!params->srcArray && !params->srcPtr.ptr) ||
	    (!params->dstArray && !params->dstPtr.ptr))
		return cudaErrorInvalidValue;
	error = copy_element(params->srcArray, params->dstArray, &element);
	if (error)
		return error;
	source = make_end(params->srcArray, params->srcPos, params->srcPtr, params->kind, true,
			  element);
	destination = make_end(params->dstArray, params->dstPos, params->dstPtr, params->kind,
			       false, element);
	*ret_copy = (CUDA_MEMCPY3D){ .WidthInBytes = params->extent.width * element,
				     .Height = params->extent.height,
				     .Depth = params->extent.depth };
	FILL_SOURCE(ret_copy, &source);
	FILL_DESTINATION(ret_copy, &destination);
	return cudaSuccess;
}
