/*
 * array_size.c - compute the bytes of a CUDA array from its descriptor (see record.h).
 *
 * Thread and signal context: any; pure.
 */
#include <stdbool.h>
#include <stddef.h>

#include "preload/hooks/record.h"

static bool is_block_compressed(CUarray_format format)
{
	return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

static unsigned int bits_per_channel(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 8;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 16;
	default:
		return 32;
	}
}

/* Return the bits of a texel, chroma planes included, for formats whose channels cuda.h fixes. 0: the descriptor
 * has the number of channels. */
static unsigned int bits_of_format(CUarray_format format)
{
	switch ((unsigned int)format) {
	case CU_AD_FORMAT_BC1_UNORM:
	case CU_AD_FORMAT_BC1_UNORM_SRGB:
	case CU_AD_FORMAT_BC4_UNORM:
	case CU_AD_FORMAT_BC4_SNORM:
		return 4;
	case CU_AD_FORMAT_UNORM_INT8X1:
	case CU_AD_FORMAT_SNORM_INT8X1:
		return 8;
	case CU_AD_FORMAT_NV12:
		return 12;
	case CU_AD_FORMAT_UNORM_INT8X2:
	case CU_AD_FORMAT_SNORM_INT8X2:
	case CU_AD_FORMAT_UNORM_INT16X1:
	case CU_AD_FORMAT_SNORM_INT16X1:
	case CU_AD_FORMAT_NV16:
	case CU_AD_FORMAT_YUY2:
		return 16;
	case CU_AD_FORMAT_P010:
	case CU_AD_FORMAT_P016:
	case CU_AD_FORMAT_Y444_PLANAR8:
	case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
		return 24;
	case CU_AD_FORMAT_UNORM_INT8X4:
	case CU_AD_FORMAT_SNORM_INT8X4:
	case CU_AD_FORMAT_UNORM_INT16X2:
	case CU_AD_FORMAT_SNORM_INT16X2:
	case CU_AD_FORMAT_P210:
	case CU_AD_FORMAT_P216:
	case CU_AD_FORMAT_Y210:
	case CU_AD_FORMAT_Y216:
	case CU_AD_FORMAT_AYUV:
	case CU_AD_FORMAT_Y410:
	case CU_AD_FORMAT_UNORM_INT_101010_2:
		return 32;
	case CU_AD_FORMAT_Y444_PLANAR10:
	case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
		return 48;
	case CU_AD_FORMAT_UNORM_INT16X4:
	case CU_AD_FORMAT_SNORM_INT16X4:
	case CU_AD_FORMAT_Y416:
		return 64;
	default:
		return is_block_compressed(format) ? 8 : 0;
	}
}

static uint64_t level_of(size_t extent, unsigned int level)
{
	uint64_t size = level < 64 ? (uint64_t)extent >> level : 0;

	return size ? size : 1;
}

uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels)
{
	uint64_t bytes = 0, bits, w, h, d;
	bool layered;

	if (!desc || desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	bits = bits_of_format(desc->Format);
	if (!bits)
		bits = (uint64_t)bits_per_channel(desc->Format) * desc->NumChannels;
	layered = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	for (unsigned int level = 0; level < levels && level < 64; level++) {
		w = level_of(desc->Width, level);
		h = level_of(desc->Height, level);
		d = level_of(desc->Depth, layered ? 0 : level);
		if (is_block_compressed(desc->Format)) {
			w = (w + 3) / 4 * 4;
			h = (h + 3) / 4 * 4;
		}
		bytes += (w * h * d * bits + 7) / 8;
	}
	return bytes;
}
