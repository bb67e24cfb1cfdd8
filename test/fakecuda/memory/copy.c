/*
 * copy.c - copies: any of them is one box of bytes from one place to another, moved when the clock
 * passes its end.
 *
 * Pageable host memory is treated as the driver documents it: a source is staged at the call (so
 * the program may change it at once), a destination makes even the Async form wait. Pinned memory
 * is read and written when the copy ends: a missing synchronise shows. Lock: fc.lock.
 */
#include "test/fakecuda/memory/copy.h"

#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/memory/memory.h"

struct side {			/* one end of the box */
	uint64_t first;		/* its first byte */
	size_t pitch, slice;	/* to the next row, to the next layer */
};

struct copy_work {
	struct fc_work work;
	CUDA_MEMCPY3D_PEER_v1 p;
	struct side src, dst;
	uint8_t *staged;	/* a pageable source, as it was at the call; packed */
};

CUDA_MEMCPY3D_PEER_v1 fc_copy_linear(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type,
				     uint64_t src, size_t n)
{
	CUDA_MEMCPY3D_PEER_v1 p = {
		.srcMemoryType = src_type, .dstMemoryType = dst_type,
		.WidthInBytes = n, .Height = 1, .Depth = 1,
	};

	p.srcHost = (const void *)(uintptr_t)src;
	p.srcDevice = src;
	p.dstHost = (void *)(uintptr_t)dst;
	p.dstDevice = dst;
	return p;
}

/* ---- where a side lies ---- */

static bool place(struct side *s, CUmemorytype type, const void *host, CUdeviceptr device,
		  CUarray array, size_t pitch, size_t height, size_t x, size_t y, size_t z,
		  size_t width)
{
	uint64_t base = type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device;

	if (type == CU_MEMORYTYPE_ARRAY) {
		if (!fc_array_place(array, &base, &pitch, &height))
			return false;
	} else if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
		   type != CU_MEMORYTYPE_UNIFIED) {
		return false;
	}
	s->pitch = pitch ? pitch : width;
	s->slice = s->pitch * (height ? height : 1);
	s->first = base + z * s->slice + y * s->pitch + x;
	return base != 0;
}

/* A layer's height that is left out is the box's own. */
static bool place_both(struct copy_work *w)
{
	CUDA_MEMCPY3D_PEER_v1 *p = &w->p;
	size_t src_height = p->srcHeight ? p->srcHeight : p->Height;
	size_t dst_height = p->dstHeight ? p->dstHeight : p->Height;

	return place(&w->src, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch,
		     src_height, p->srcXInBytes, p->srcY, p->srcZ, p->WidthInBytes) &&
	       place(&w->dst, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch,
		     dst_height, p->dstXInBytes, p->dstY, p->dstZ, p->WidthInBytes);
}

static uint64_t row(const struct side *s, size_t y, size_t z)
{
	return s->first + z * s->slice + y * s->pitch;
}

/* ---- the work ---- */

static CUresult effect(struct fc_work *work, struct fc_op *op)
{
	struct copy_work *w = (struct copy_work *)work;
	const CUDA_MEMCPY3D_PEER_v1 *p = &w->p;
	CUresult r = CUDA_SUCCESS;

	(void)op;
	for (size_t z = 0; z < p->Depth && !r; z++)
		for (size_t y = 0; y < p->Height && !r; y++) {
			uint64_t src = row(&w->src, y, z);

			if (w->staged)
				src = (uint64_t)(uintptr_t)w->staged +
				      (z * p->Height + y) * p->WidthInBytes;
			r = fc_mem_move(row(&w->dst, y, z), src, p->WidthInBytes);
		}
	return r;
}

static void release(struct fc_work *work)
{
	struct copy_work *w = (struct copy_work *)work;

	free(w->staged);
	free(w);
}

#define MAX_ROWS 64		/* noted one by one; a larger box as the range that it covers */

static int touch(struct copy_work *w, const struct side *s, bool write)
{
	const CUDA_MEMCPY3D_PEER_v1 *p = &w->p;
	size_t rows = p->Height * p->Depth, end;

	if ((s->pitch == p->WidthInBytes && s->slice == s->pitch * p->Height) || rows > MAX_ROWS) {
		end = (p->Depth - 1) * s->slice + (p->Height - 1) * s->pitch + p->WidthInBytes;
		return fc_work_touch(&w->work, s->first, end, write);
	}
	for (size_t z = 0; z < p->Depth; z++)
		for (size_t y = 0; y < p->Height; y++)
			if (fc_work_touch(&w->work, row(s, y, z), p->WidthInBytes, write))
				return -1;
	return 0;
}

CUresult fc_work_copy(struct fc_ctx *ctx, const char *name, const CUDA_MEMCPY3D_PEER_v1 *p,
		      struct fc_work **ret_work)
{
	struct copy_work *w;
	uint64_t bytes;

	w = (struct copy_work *)fc_work_new(sizeof(*w), FC_WORK_COPY, name, ctx, 0);
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->work.effect = effect;
	w->work.release = release;
	w->p = *p;
	bytes = p->WidthInBytes * p->Height * p->Depth;
	w->work.duration_ns = 1000 + bytes / 32;
	if (bytes && !place_both(w)) {
		fc_work_put(&w->work);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (bytes && (touch(w, &w->src, false) || touch(w, &w->dst, true))) {
		fc_work_put(&w->work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_work = &w->work;
	return CUDA_SUCCESS;
}

/* ---- what the entries check ---- */

static bool drivers_own(uint64_t ptr)
{
	uint8_t *unused;
	size_t run;

	return fc_region_has(ptr) || fc_arena_span(ptr, 1, &unused, &run);
}

/* The whole box within one allocation, as the driver checks it at the call. */
static bool reachable(const struct copy_work *w, const struct side *s, CUmemorytype type)
{
	struct fc_alloc *a = fc_alloc_find(s->first);
	const CUDA_MEMCPY3D_PEER_v1 *p = &w->p;
	uint64_t end = row(s, p->Height - 1, p->Depth - 1) + p->WidthInBytes;

	if (type == CU_MEMORYTYPE_ARRAY)
		return a && end <= a->base + a->size;
	if (type == CU_MEMORYTYPE_HOST)
		return !drivers_own(s->first) || (a && a->readable_by_host);
	if (!a)
		return type == CU_MEMORYTYPE_UNIFIED && !drivers_own(s->first);
	return end <= a->base + a->size || a->kind == FC_MEM_VMM;
}

static bool pageable(const struct side *s, CUmemorytype type)
{
	return (type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED) &&
	       !drivers_own(s->first) && !fc_alloc_find(s->first);
}

static CUresult stage(struct copy_work *w)
{
	const CUDA_MEMCPY3D_PEER_v1 *p = &w->p;
	uint8_t *at = malloc(p->WidthInBytes * p->Height * p->Depth);

	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->staged = at;
	for (size_t z = 0; z < p->Depth; z++)
		for (size_t y = 0; y < p->Height; y++, at += p->WidthInBytes)
			memcpy(at, (const void *)(uintptr_t)row(&w->src, y, z), p->WidthInBytes);
	return CUDA_SUCCESS;
}

/* When must the caller wait? Before the copy, so that staging sees what earlier work wrote through
 * a registered alias; after it, for what the host is about to read. */
static CUresult submit_and_wait(struct copy_work *w, struct fc_stream *s, bool sync)
{
	bool from_pages = pageable(&w->src, w->p.srcMemoryType);
	bool to_pages = pageable(&w->dst, w->p.dstMemoryType);
	bool to_host = w->p.dstMemoryType == CU_MEMORYTYPE_HOST || to_pages ||
		       !drivers_own(w->dst.first);
	bool from_pinned = !from_pages && !drivers_own(w->src.first);
	struct fc_op *op;
	CUresult r = CUDA_SUCCESS;

	if (from_pages && sync)
		r = fc_wait_stream(s, w->work.name);
	if (from_pages && !r)
		r = stage(w);
	r = r ? r : fc_submit(s, &w->work, &op);
	if (r)
		return r;
	if (to_pages || (sync && (to_host || from_pinned)))
		r = fc_wait_op(op, w->work.name);
	fc_op_put(op);
	return r ? r : s->ctx->sticky;
}

CUresult fc_copy_submit(const char *name, const CUDA_MEMCPY3D_PEER_v1 *p, CUstream h, bool sync)
{
	struct copy_work *w;
	struct fc_stream *s;
	struct fc_work *work;
	CUresult r = fc_stream_get(h, &s);

	if (r)
		return r;
	r = fc_work_copy(s->ctx, name, p, &work);
	if (r)
		return r;
	w = (struct copy_work *)work;
	fc_stream_ref(s);
	if (!p->WidthInBytes || !p->Height || !p->Depth)
		r = CUDA_SUCCESS;
	else if (fc_capture_on(s))
		r = sync ? fc_capture_check(FC_UNSAFE_STREAM, s->ctx, s) :
			   fc_submit(s, work, NULL);
	else if (!reachable(w, &w->src, p->srcMemoryType) ||
		 !reachable(w, &w->dst, p->dstMemoryType))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!(r = fc_capture_legacy(s)))
		r = submit_and_wait(w, s, sync);
	fc_stream_put(s);
	fc_work_put(work);
	return r;
}
