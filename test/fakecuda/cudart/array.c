/* array.c - CUDA arrays and mipmapped arrays: making them and asking about them.
 *
 * Thread context: any thread.
 */
#include "cudart.h"

static const struct {
	CUarray_format format;
	enum cudaChannelFormatKind kind;
	int bits;
} formats[] = {
	{ CU_AD_FORMAT_UNSIGNED_INT8, cudaChannelFormatKindUnsigned, 8 },
	{ CU_AD_FORMAT_UNSIGNED_INT16, cudaChannelFormatKindUnsigned, 16 },
	{ CU_AD_FORMAT_UNSIGNED_INT32, cudaChannelFormatKindUnsigned, 32 },
	{ CU_AD_FORMAT_SIGNED_INT8, cudaChannelFormatKindSigned, 8 },
	{ CU_AD_FORMAT_SIGNED_INT16, cudaChannelFormatKindSigned, 16 },
	{ CU_AD_FORMAT_SIGNED_INT32, cudaChannelFormatKindSigned, 32 },
	{ CU_AD_FORMAT_HALF, cudaChannelFormatKindFloat, 16 },
	{ CU_AD_FORMAT_FLOAT, cudaChannelFormatKindFloat, 32 },
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

/* The driver's element format for a channel description; 0, which is no format, when there is
 * none: one, two or four channels of one width, none missing in between. */
static CUarray_format array_format(const struct cudaChannelFormatDesc *desc,
				   unsigned int *ret_channels)
{
	int widths[4] = { desc->x, desc->y, desc->z, desc->w };
	unsigned int channels = 0;

	while (channels < 4 && widths[channels] == desc->x)
		channels++;
	for (unsigned int i = channels; i < 4; i++) {
		if (widths[i])
			return (CUarray_format)0;
	}
	if (channels == 3)
		return (CUarray_format)0;
	*ret_channels = channels;
	for (size_t i = 0; i < FORMATS; i++) {
		if (formats[i].kind == desc->f && formats[i].bits == desc->x)
			return formats[i].format;
	}
	return (CUarray_format)0;
}

/* Bits of one channel, and what kind it is. */
static int format_bits(CUarray_format format, enum cudaChannelFormatKind *ret_kind)
{
	for (size_t i = 0; i < FORMATS; i++) {
		if (formats[i].format == format) {
			*ret_kind = formats[i].kind;
			return formats[i].bits;
		}
	}
	*ret_kind = cudaChannelFormatKindNone;
	return 0;
}

static cudaError_t array_descriptor(const struct cudaChannelFormatDesc *desc,
				    struct cudaExtent extent, unsigned int flags,
				    CUDA_ARRAY3D_DESCRIPTOR *ret_descriptor)
{
	unsigned int channels = 0;

	if (!desc || !array_format(desc, &channels))
		return cudaErrorInvalidChannelDescriptor;
	*ret_descriptor = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Format = array_format(desc, &channels),
		.Flags = flags,
	};
	ret_descriptor->NumChannels = channels;
	return cudaSuccess;
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
			      struct cudaExtent extent, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	cudaError_t error = array ? array_descriptor(desc, extent, flags, &descriptor) :
				    cudaErrorInvalidValue;

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuArray3DCreate, 3020)((CUarray *)array, &descriptor));
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
			    size_t width, size_t height, unsigned int flags)
{
	return cudaMalloc3DArray(array, desc, (struct cudaExtent){ width, height, 0 }, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array)
{
	if (!array)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_DRV(cuArrayDestroy, 2000)((CUarray)array));
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
				     const struct cudaChannelFormatDesc *desc,
				     struct cudaExtent extent, unsigned int levels,
				     unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	cudaError_t error = array ? array_descriptor(desc, extent, flags, &descriptor) :
				    cudaErrorInvalidValue;

	if (error)
		return cudart_record(error);
	return CUDART_CALL(CUDART_DRV(cuMipmappedArrayCreate, 5000)((CUmipmappedArray *)array,
								    &descriptor, levels));
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array)
{
	if (!array)
		return cudart_record(cudart_enter(CUDART_NEED_CONTEXT));
	return CUDART_CALL(CUDART_DRV(cuMipmappedArrayDestroy, 5000)((CUmipmappedArray)array));
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *level_array, cudaMipmappedArray_const_t array,
				       unsigned int level)
{
	return CUDART_CALL(CUDART_DRV(cuMipmappedArrayGetLevel, 5000)(
		(CUarray *)level_array, (CUmipmappedArray)(uintptr_t)array, level));
}

static cudaError_t describe(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *ret_descriptor)
{
	return (cudaError_t)CUDART_DRV(cuArray3DGetDescriptor, 3020)(ret_descriptor,
								     (CUarray)(uintptr_t)array);
}

cudaError_t cudart_array_element(cudaArray_const_t array, size_t *ret_bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	enum cudaChannelFormatKind kind;
	cudaError_t error = describe(array, &descriptor);

	if (!error)
		*ret_bytes = descriptor.NumChannels *
			     (size_t)format_bits(descriptor.Format, &kind) / 8;
	return error;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
						   enum cudaChannelFormatKind kind)
{
	return (struct cudaChannelFormatDesc){ x, y, z, w, kind };
}
