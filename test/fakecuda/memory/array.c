/*
 * array.c - arrays and mipmapped arrays.
 *
 * An array's contents lie in the device's arena at an address no program sees. It takes what it
 * takes on an H200: rows of 64-byte multiples, their number rounded up to the height of a block of
 * 8 to 128 rows; a mipmapped array is one piece, its levels are arrays inside it. It is counted
 * with the bytes of its elements, all that a program can know: memory requirements are given only
 * for arrays with deferred mapping, which have no memory (and here never get any). Destroying
 * waits for the context's work, as freeing does. Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/copy.h"
#include "test/fakecuda/memory/external.h"

#define ROW_ALIGN 64
#define REQUIREMENT 65536	/* what memory requirements are multiples of */
#define MAX_LEVELS 18

struct fc_array {
	void *handle;
	enum fc_htype type;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct fc_ctx *ctx;		/* not counted: destroyed with it */
	struct fc_alloc *a;		/* NULL: a level of @parent, or deferred */
	uint64_t base;
	size_t pitch, height;		/* of a layer, in bytes and rows */
	size_t size;			/* all of it */
	size_t elements;		/* bytes that count */
	unsigned int n_levels;		/* of a mipmapped array */
	struct fc_array *levels[MAX_LEVELS];
	struct fc_array *parent;
	struct fc_array *next;
};

static struct fc_array *arrays;		/* all but levels */

/* Bytes of one element, 0 for a format this driver has not. */
static size_t element_size(CUarray_format format, unsigned int channels)
{
	if (channels != 1 && channels != 2 && channels != 4)
		return 0;
	switch ((unsigned int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2ul * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4ul * channels;
	default:
		return 0;
	}
}

static size_t or_one(size_t n)
{
	return n ? n : 1;
}

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static size_t row_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return round_up(d->Width * element_size(d->Format, d->NumChannels), ROW_ALIGN);
}

/* Rows of a layer: multiples of the smallest block that holds them, of at most 128. */
static size_t rows(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	size_t block = 8;

	if (!d->Height)
		return 1;
	while (block < d->Height && block < 128)
		block *= 2;
	return round_up(d->Height, block);
}

static size_t bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return row_bytes(d) * rows(d) * or_one(d->Depth);
}

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Width * or_one(d->Height) * or_one(d->Depth) *
	       element_size(d->Format, d->NumChannels);
}

/* Level @n of @d: halved in every dimension that it has, layers apart. */
static CUDA_ARRAY3D_DESCRIPTOR level_desc(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int n)
{
	CUDA_ARRAY3D_DESCRIPTOR l = *d;
	bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	l.Width = or_one(d->Width >> n);
	l.Height = d->Height ? or_one(d->Height >> n) : 0;
	if (d->Depth && !layered)
		l.Depth = or_one(d->Depth >> n);
	return l;
}

static bool good(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d && d->Width && element_size(d->Format, d->NumChannels) &&
	       d->Width <= 1u << 28 && d->Height <= 1u << 17 && d->Depth <= 1u << 15 &&
	       !(d->Flags & CUDA_ARRAY3D_SPARSE) && (d->Height || !d->Depth || d->Flags);
}

/* ---- making ---- */

static struct fc_array *new_array(enum fc_htype type, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				  struct fc_ctx *ctx)
{
	struct fc_array *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->handle = fc_handle_new(type, x);
	if (!x->handle) {
		free(x);
		return NULL;
	}
	x->type = type;
	x->desc = *desc;
	x->ctx = ctx->base;
	x->pitch = row_bytes(desc);
	x->height = rows(desc);
	x->size = bytes(desc);
	x->elements = element_bytes(desc);
	return x;
}

static void add_levels(struct fc_array *x, unsigned int n_levels)
{
	x->n_levels = n_levels;
	for (unsigned int i = 1; i < n_levels; i++) {
		CUDA_ARRAY3D_DESCRIPTOR l = level_desc(&x->desc, i);

		x->size += bytes(&l);
		x->elements += element_bytes(&l);
	}
}

static void drop(struct fc_array *x)
{
	struct fc_array **at = &arrays;

	for (unsigned int i = 0; i < x->n_levels; i++)
		if (x->levels[i])
			drop(x->levels[i]);
	if (!x->parent) {
		while (*at != x)
			at = &(*at)->next;
		*at = x->next;
	}
	if (x->a) {
		if (x->a->kind == FC_MEM_ARRAY)
			fc_account(x->ctx->dev, FAKECUDA_ARRAY, -(int64_t)x->elements, -1);
		fc_race_free(x->a, NULL);
		fc_mem_drop(x->a);
	}
	fc_handle_drop(x->handle);
	free(x);
}

static void enlist(struct fc_array *x, struct fc_alloc *a)
{
	x->a = a;
	x->base = a ? a->base : 0;
	if (a && a->kind == FC_MEM_ARRAY)
		fc_account(x->ctx->dev, FAKECUDA_ARRAY, (int64_t)x->elements, 1);
	x->next = arrays;
	arrays = x;
}

static CUresult back(struct fc_array *x, struct fc_ctx *ctx)
{
	struct fc_alloc *a;
	uint64_t ptr;
	uint8_t *host;
	CUresult r = CUDA_SUCCESS;

	if (x->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) {
		enlist(x, NULL);
		return CUDA_SUCCESS;
	}
	r = fc_arena_alloc(ctx->dev, ctx->base, x->size, &ptr, &host);
	if (r)
		return r;
	a = fc_mem_new(FC_MEM_ARRAY, ctx->dev, ctx, ptr, x->size, host);
	if (!a) {
		fc_arena_free(ctx->dev, ptr, x->size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_race_alloc(a, NULL);
	enlist(x, a);
	return CUDA_SUCCESS;
}

static CUresult create(enum fc_htype type, const CUDA_ARRAY3D_DESCRIPTOR *desc,
		       unsigned int n_levels, void **ret_handle)
{
	struct fc_array *x;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, ctx->base, NULL);
	if (r)
		return r;
	if (!ret_handle || !good(desc) || n_levels > MAX_LEVELS)
		return CUDA_ERROR_INVALID_VALUE;
	x = new_array(type, desc, ctx);
	if (!x)
		return CUDA_ERROR_OUT_OF_MEMORY;
	add_levels(x, n_levels);
	r = back(x, ctx);
	if (r) {
		fc_handle_drop(x->handle);
		free(x);
		return r;
	}
	*ret_handle = x->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	return create(FC_H_ARRAY, pAllocateArray, 0, (void **)pHandle);
}

CUresult fc_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ d->Width, d->Height, d->Depth, d->Format,
					  d->NumChannels, d->Flags };
	return fc_cuArray3DCreate_v2(pHandle, &desc);
}

CUresult fc_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ d->Width, d->Height, 0, d->Format, d->NumChannels, 0 };
	return fc_cuArray3DCreate_v2(pHandle, &desc);
}

CUresult fc_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY_DESCRIPTOR desc;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY_DESCRIPTOR){ d->Width, d->Height, d->Format, d->NumChannels };
	return fc_cuArrayCreate_v2(pHandle, &desc);
}

CUresult fc_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				   unsigned int numMipmapLevels)
{
	if (!numMipmapLevels)
		return CUDA_ERROR_INVALID_VALUE;
	return create(FC_H_MIPMAP, desc, numMipmapLevels, (void **)pHandle);
}

CUresult fc_cuExternalMemoryGetMappedMipmappedArray(
	CUmipmappedArray *mipmap, CUexternalMemory extMem,
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	struct fc_array *x;
	struct fc_alloc *a;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!mipmap || !mipmapDesc || !good(&mipmapDesc->arrayDesc) || !mipmapDesc->numLevels ||
	    mipmapDesc->numLevels > MAX_LEVELS)
		return CUDA_ERROR_INVALID_VALUE;
	x = new_array(FC_H_MIPMAP, &mipmapDesc->arrayDesc, ctx);
	if (!x)
		return CUDA_ERROR_OUT_OF_MEMORY;
	add_levels(x, mipmapDesc->numLevels);
	r = fc_external_map(extMem, ctx, mipmapDesc->offset, x->size, &a);
	if (r) {
		fc_handle_drop(x->handle);
		free(x);
		return r;
	}
	enlist(x, a);
	*mipmap = x->handle;
	return CUDA_SUCCESS;
}

/* ---- destroying ---- */

static CUresult destroy(void *handle, enum fc_htype type, const char *why)
{
	struct fc_array *x = fc_handle_get(handle, type);
	struct fc_ctx *ctx;
	CUresult r;

	if (!x)
		return CUDA_ERROR_INVALID_HANDLE;
	if (x->parent)
		return CUDA_ERROR_INVALID_VALUE;	/* a level goes with its array */
	r = fc_capture_check(FC_UNSAFE_CALL, x->ctx, NULL);
	if (r)
		return r;
	ctx = fc_ctx_ref(x->ctx);
	r = fc_wait_ctx(ctx, why);
	r = r ? r : ctx->sticky;
	if (!r && fc_handle_get(handle, type) == x)
		drop(x);
	fc_ctx_put(ctx);
	return r;
}

CUresult fc_cuArrayDestroy(CUarray hArray)
{
	return destroy(hArray, FC_H_ARRAY, "cuArrayDestroy");
}

CUresult fc_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	return destroy(hMipmappedArray, FC_H_MIPMAP, "cuMipmappedArrayDestroy");
}

void fc_array_ctx_ended(struct fc_ctx *ctx)
{
	struct fc_array *next;

	for (struct fc_array *x = arrays; x; x = next) {
		next = x->next;
		if (!ctx || x->ctx == ctx)
			drop(x);
	}
}

void fc_array_reset(void)
{
	fc_array_ctx_ended(NULL);
}

/* ---- asking ---- */

bool fc_array_place(CUarray array, uint64_t *ret_base, size_t *ret_pitch, size_t *ret_height)
{
	struct fc_array *x = fc_handle_get(array, FC_H_ARRAY);

	if (!x || !x->base)
		return false;
	*ret_base = x->base;
	*ret_pitch = x->pitch;
	*ret_height = x->height;
	return true;
}

CUresult fc_cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
				     unsigned int level)
{
	struct fc_array *x = fc_handle_get(hMipmappedArray, FC_H_MIPMAP), *l;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	uint64_t base;

	if (!x || !pLevelArray || level >= x->n_levels)
		return x ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (!x->levels[level]) {
		base = x->base;
		for (unsigned int i = 0; i < level; i++) {
			desc = level_desc(&x->desc, i);
			base += bytes(&desc);
		}
		desc = level_desc(&x->desc, level);
		l = new_array(FC_H_ARRAY, &desc, x->ctx);
		if (!l)
			return CUDA_ERROR_OUT_OF_MEMORY;
		l->base = x->base ? base : 0;
		l->parent = x;
		x->levels[level] = l;
	}
	*pLevelArray = x->levels[level]->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *d, CUarray hArray)
{
	struct fc_array *x = fc_handle_get(hArray, FC_H_ARRAY);

	if (!x || !d)
		return x ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*d = x->desc;
	return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, const struct fc_array *x,
			     CUdevice device)
{
	struct fc_device *dev;
	CUresult r = fc_device_get(device, &dev);

	if (!out || !x || !(x->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
		return CUDA_ERROR_INVALID_VALUE;
	if (r)
		return r;
	memset(out, 0, sizeof(*out));
	out->size = round_up(x->size, REQUIREMENT);
	out->alignment = REQUIREMENT;
	return CUDA_SUCCESS;
}

CUresult fc_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
					 CUarray array, CUdevice device)
{
	return requirements(memoryRequirements, fc_handle_get(array, FC_H_ARRAY), device);
}

CUresult fc_cuMipmappedArrayGetMemoryRequirements(
	CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUmipmappedArray mipmap,
	CUdevice device)
{
	return requirements(memoryRequirements, fc_handle_get(mipmap, FC_H_MIPMAP), device);
}
