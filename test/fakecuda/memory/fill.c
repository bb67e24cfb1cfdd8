/*
 * fill.c - cuMemset in all its forms. Only host-visible memory makes the form without Async wait.
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <string.h>

struct fill_work {
	struct fc_work work;
	CUDA_MEMSET_NODE_PARAMS_v1 p;
};

static CUresult effect(struct fc_work *work, struct fc_op *op)
{
	const CUDA_MEMSET_NODE_PARAMS_v1 *p = &((struct fill_work *)work)->p;
	CUresult r = CUDA_SUCCESS;

	(void)op;
	for (size_t y = 0; y < p->height && !r; y++)	/* little endian: the low bytes count */
		r = fc_mem_fill(p->dst + y * p->pitch, &p->value, p->elementSize, p->width);
	return r;
}

#define MAX_ROWS 64

static int touch(struct fill_work *w)
{
	const CUDA_MEMSET_NODE_PARAMS_v1 *p = &w->p;
	size_t row = p->width * p->elementSize;

	if (!row || !p->height)
		return 0;
	if (p->height == 1 || p->pitch == row || p->height > MAX_ROWS)
		return fc_work_touch(&w->work, p->dst, (p->height - 1) * p->pitch + row, true);
	for (size_t y = 0; y < p->height; y++)
		if (fc_work_touch(&w->work, p->dst + y * p->pitch, row, true))
			return -1;
	return 0;
}

CUresult fc_work_fill(struct fc_ctx *ctx, const char *name, const CUDA_MEMSET_NODE_PARAMS_v1 *p,
		      struct fc_work **ret_work)
{
	struct fill_work *w;

	if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) ||
	    p->dst % p->elementSize || (p->height > 1 && p->pitch < p->width * p->elementSize) ||
	    (!p->dst && p->width && p->height))
		return CUDA_ERROR_INVALID_VALUE;
	w = (struct fill_work *)fc_work_new(sizeof(*w), FC_WORK_FILL, name, ctx, 0);
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->work.effect = effect;
	w->work.duration_ns = 1000 + p->width * p->elementSize * p->height / 64;
	w->p = *p;
	if (touch(w)) {
		fc_work_put(&w->work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_work = &w->work;
	return CUDA_SUCCESS;
}

/* As the driver checks it at the call: within one live allocation of its own. */
static bool reachable(const CUDA_MEMSET_NODE_PARAMS_v1 *p)
{
	struct fc_alloc *a = fc_alloc_find(p->dst);
	uint64_t end = p->dst + (p->height - 1) * p->pitch + p->width * p->elementSize;

	return a && (end <= a->base + a->size || a->kind == FC_MEM_VMM);
}

static CUresult fill(const char *name, CUdeviceptr dst, size_t pitch, unsigned int value,
		     unsigned int element, size_t width, size_t height, CUstream h, bool sync)
{
	CUDA_MEMSET_NODE_PARAMS_v1 p = {
		.dst = dst, .pitch = pitch, .value = value, .elementSize = element,
		.width = width, .height = height,
	};
	struct fc_stream *s;
	struct fc_work *w;
	struct fc_op *op;
	CUresult r = fc_stream_get(h, &s);

	r = r ? r : fc_work_fill(s->ctx, name, &p, &w);
	if (r)
		return r;
	op = NULL;
	fc_stream_ref(s);
	if (width && height && !fc_capture_on(s) && !reachable(&p))
		r = CUDA_ERROR_INVALID_VALUE;
	else if (width && height)
		r = fc_submit(s, w, &op);
	if (!r && op && sync && fc_alloc_find(dst)->readable_by_host) {
		r = fc_wait_op(op, name);
		r = r ? r : s->ctx->sticky;
	}
	fc_op_put(op);
	fc_stream_put(s);
	fc_work_put(w);
	return r;
}

/* For one element type: the linear and the pitched form, their Async forms, the first ABI. */
#define FORMS(bits, type) \
CUresult fc_cuMemsetD##bits##_v2(CUdeviceptr d, type v, size_t N) \
{ \
	return fill("cuMemsetD" #bits, d, 0, v, bits / 8, N, 1, NULL, true); \
} \
CUresult fc_cuMemsetD##bits##Async(CUdeviceptr d, type v, size_t N, CUstream h) \
{ \
	return fill("cuMemsetD" #bits "Async", d, 0, v, bits / 8, N, 1, h, false); \
} \
CUresult fc_cuMemsetD##bits(CUdeviceptr_v1 d, type v, unsigned int N) \
{ \
	return fc_cuMemsetD##bits##_v2(d, v, N); \
} \
CUresult fc_cuMemsetD2D##bits##_v2(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h) \
{ \
	return fill("cuMemsetD2D" #bits, d, pitch, v, bits / 8, w, h, NULL, true); \
} \
CUresult fc_cuMemsetD2D##bits##Async(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h, \
				     CUstream s) \
{ \
	return fill("cuMemsetD2D" #bits "Async", d, pitch, v, bits / 8, w, h, s, false); \
} \
CUresult fc_cuMemsetD2D##bits(CUdeviceptr_v1 d, unsigned int pitch, type v, unsigned int w, \
			      unsigned int h) \
{ \
	return fc_cuMemsetD2D##bits##_v2(d, pitch, v, w, h); \
}

FORMS(8, unsigned char)
FORMS(16, unsigned short)
FORMS(32, unsigned int)
