/*
 * pool.c - memory pools, and the stream-ordered operations on them.
 *
 * A freed block is pending until its stream has reached the free. It can be handed out again: to
 * the same stream at once; to a stream that is ordered after the free (FOLLOW_EVENT_DEPENDENCIES);
 * to anybody when the free is complete (ALLOW_OPPORTUNISTIC; without that, once the host has
 * synchronised); and, when the device has no more memory, to another stream that is made to wait
 * for the free (ALLOW_INTERNAL_DEPENDENCIES). What no live or pending block needs goes back at a
 * synchronising call, as far as more than the release threshold is reserved.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/pool.h"

#include <stdlib.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/poolseg.h"

static struct fc_pool *pools;
static struct fc_pool *default_host, *default_managed;

/* ---- pools ---- */

CUresult fc_pool_make(struct fc_device *dev, const CUmemPoolProps *props, struct fc_pool **ret_pool)
{
	struct fc_pool *pool = calloc(1, sizeof(*pool)), **at = &pools;

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->handle = fc_handle_new(FC_H_POOL, pool);
	if (!pool->handle) {
		free(pool);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pool->refs = 1;
	pool->dev = dev;
	pool->type = props->allocType;
	pool->location = props->location;
	pool->handle_types = props->handleTypes;
	pool->max_size = props->maxSize;
	pool->reuse_follow_events = 1;
	pool->reuse_opportunistic = 1;
	pool->reuse_internal = 1;
	if (dev)
		pool->access[dev->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	while (*at)
		at = &(*at)->next;
	*at = pool;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

CUresult fc_pool_default(struct fc_device *dev, struct fc_pool **ret_pool)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->ordinal },
	};
	CUresult r = CUDA_SUCCESS;

	if (!dev->default_pool) {
		r = fc_pool_make(dev, &props, &dev->default_pool);
		if (!r)
			dev->default_pool->is_default = true;
	}
	*ret_pool = dev->default_pool;
	return r;
}

CUresult fc_pool_get(CUmemoryPool h, struct fc_pool **ret_pool)
{
	struct fc_pool *pool = fc_handle_get(h, FC_H_POOL);

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

struct fc_device *fc_pool_device(const struct fc_pool *pool)
{
	return pool->dev;
}

CUmemoryPool fc_pool_handle(const struct fc_pool *pool)
{
	return pool->handle;
}

enum fakecuda_kind fc_pool_kind(const struct fc_pool *pool)
{
	return pool->type == CU_MEM_ALLOCATION_TYPE_MANAGED ? FAKECUDA_MANAGED :
	       pool->dev ? FAKECUDA_POOL : FAKECUDA_HOST;
}

void fc_pool_put(struct fc_pool *pool)
{
	struct fc_pool **at = &pools;

	if (--pool->refs)
		return;
	fc_pool_drop_segments(pool);
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	free(pool);
}

/* ---- stream-ordered operations ---- */

static CUresult submit_alloc(struct fc_stream *s, struct fc_op *after, struct fc_op **ret_op)
{
	struct fc_work *w = fc_work_new(sizeof(*w), FC_WORK_ALLOC, "cuMemAllocAsync", s->ctx, 0);
	struct fc_op *op = w ? fc_op_new(s->ctx, s, w) : NULL;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (op && !fc_op_order(op, s) && !fc_op_after(op, after, FC_AFTER_END)) {
		fc_stream_push(s, op);
		fc_op_commit(op);
		*ret_op = fc_op_get(op);
		r = CUDA_SUCCESS;
	}
	fc_op_put(op);
	fc_work_put(w);
	return r;
}

static CUresult hand_out(struct fc_pool *pool, struct fc_block *b, struct fc_stream *s, size_t size,
			 struct fc_op *after, CUdeviceptr *ret_ptr)
{
	struct fc_device *dev = pool->dev ? pool->dev : s->ctx->dev;
	struct fc_alloc *a = calloc(1, sizeof(*a));
	struct fc_op *op, *before = b->op;
	CUresult r;

	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fc_block_cut(b, fc_round_up(size, FC_SMALL));
	/* Nobody else's from here on: a submission may let frees be done, which join blocks. */
	b->op = NULL;
	b->state = FC_BLOCK_LIVE;
	r = submit_alloc(s, after, &op);
	fc_op_put(before);
	if (r) {
		free(a);
		fc_block_make_free(b);
		return r;
	}
	a->kind = FC_MEM_POOL;
	a->dev = dev;
	a->base = b->base;
	a->size = size;
	a->reserved = b->size;
	a->host = b->segment->host + (b->base - b->segment->base);
	a->pool = pool;
	a->owner = b;
	a->readable_by_host = !pool->dev;
	fc_alloc_add(a);
	fc_account(dev, fc_pool_kind(pool), (int64_t)size, 1);
	pool->refs++;
	b->asked = size;
	b->orphan = false;
	pool->used += size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	fc_race_alloc(a, op);
	fc_op_put(op);
	*ret_ptr = a->base;
	return CUDA_SUCCESS;
}

CUresult fc_pool_alloc(struct fc_pool *pool, struct fc_stream *s, size_t size, CUdeviceptr *ret_ptr)
{
	size_t need = fc_round_up(size, FC_SMALL);
	struct fc_op *after = NULL;
	struct fc_block *b;
	CUresult r;

	if (pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_ptr = 0;
	if (!size)
		return CUDA_SUCCESS;
	if (need < size || size > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b = fc_block_best_fit(pool, need, s, false);
	r = b ? CUDA_SUCCESS : fc_pool_grow(pool, need, &b);
	if (r && pool->reuse_internal && (b = fc_block_best_fit(pool, need, s, true))) {
		after = b->op;
		r = CUDA_SUCCESS;
	}
	return r ? r : hand_out(pool, b, s, size, after, ret_ptr);
}

/* cuMemFree: the program promises that nothing uses it any more. Called by fc_mem_drop. */
void fc_pool_block_drop(struct fc_alloc *a)
{
	struct fc_block *b = a->owner;

	if (b->orphan)
		a->pool->orphaned += b->asked;
	else
		a->pool->used -= b->asked;
	b->stream = 0;
	fc_block_make_free(b);
	fc_pool_put(a->pool);
}

struct free_work {
	struct fc_work work;
	struct fc_pool *pool;	/* counted */
};

/* The stream has come to the free: also in a context that a fault has poisoned. */
static void reached(struct fc_op *op)
{
	struct fc_pool *pool = ((struct free_work *)op->work)->pool;
	struct fc_block *b;

	while ((b = fc_block_pending(pool, op)))
		fc_block_make_free(b);
}

static void release_free(struct fc_work *w)
{
	struct free_work *f = (struct free_work *)w;

	fc_pool_put(f->pool);
	free(f);
}

/* The block must be pending, with its operation, before that is committed: it may be due then. */
static CUresult submit_free(struct fc_stream *s, struct fc_work *w, struct fc_block *b,
			    struct fc_op **ret_op)
{
	struct fc_op *op = fc_op_new(s->ctx, s, w);

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fc_op_order(op, s)) {
		fc_op_put(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	b->state = FC_BLOCK_PENDING;
	b->stream = s->id;
	b->op = fc_op_get(op);
	op->done = reached;
	fc_stream_push(s, op);
	fc_op_commit(op);
	*ret_op = op;
	return CUDA_SUCCESS;
}

CUresult fc_pool_free(struct fc_alloc *a, struct fc_stream *s)
{
	struct free_work *f;
	struct fc_op *op;
	CUresult r;

	f = (struct free_work *)fc_work_new(sizeof(*f), FC_WORK_FREE, "cuMemFreeAsync", s->ctx, 0);
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->pool = a->pool;
	f->pool->refs++;
	f->work.release = release_free;
	f->work.one_shot = true;
	fc_alloc_remove(a);
	r = submit_free(s, &f->work, a->owner, &op);
	if (r) {
		fc_alloc_add(a);
	} else {
		fc_account(a->dev, fc_pool_kind(a->pool), -(int64_t)a->size, -1);
		fc_race_free(a, op);
		a->pool->used -= a->size;
		fc_op_put(op);
		fc_pool_put(a->pool);
		free(a);
	}
	fc_work_put(&f->work);
	return r;
}

/* ---- all of them ---- */

void fc_pool_release_all(const struct fc_device *dev)
{
	for (struct fc_pool *pool = pools; pool; pool = pool->next)
		if (pool->dev == dev)
			fc_pool_release(pool, 0);
}

/* Stream-ordered memory outlives its context, but as seen on an H200 cuMemFree of it no longer
 * lowers what its pool says is used. */
void fc_pool_ctx_ended(const struct fc_ctx *ctx)
{
	for (struct fc_alloc *a = fc_alloc_next(0); a; a = fc_alloc_next(a->base + 1))
		if (a->kind == FC_MEM_POOL && a->pool->dev == ctx->dev && ctx->primary)
			((struct fc_block *)a->owner)->orphan = true;
}

void fc_pool_synced(void)
{
	for (struct fc_pool *pool = pools; pool; pool = pool->next) {
		for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
			for (struct fc_block *b = seg->blocks; b; b = b->next)
				b->seen = b->seen || b->state == FC_BLOCK_FREE;
		fc_pool_release(pool, pool->threshold);
	}
}

int fc_pool_check(void)
{
	int bad = 0;

	for (struct fc_pool *pool = pools; pool; pool = pool->next)
		bad += fc_pool_check_segments(pool);
	return bad;
}

/* Works of dropped operations may still hold a pool; it goes with the last of them. */
void fc_pool_reset(void)
{
	struct fc_pool *next;

	for (int i = 0; i < fc.n_devices; i++)
		fc.devices[i].default_pool = fc.devices[i].current_pool = NULL;
	default_host = default_managed = NULL;
	for (struct fc_alloc *a = fc_alloc_next(0), *after; a; a = after) {
		after = fc_alloc_next(a->base + 1);
		if (a->kind == FC_MEM_POOL)
			fc_mem_drop(a);
	}
	for (struct fc_pool *pool = pools; pool; pool = next) {
		pool->refs++;
		fc_pool_drop_segments(pool);
		if (pool->handle)
			pool->refs--;
		pool->handle = NULL;
		next = pool->next;
		fc_pool_put(pool);
	}
}
