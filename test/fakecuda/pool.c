/*
 * pool.c - memory pools: segments taken from the device, cut into blocks.
 *
 *   segment   [ live | free | freed, op pending | live ... ]   blocks by address, 512-byte multiples
 *
 * A freed block is pending until its stream has reached the free. It can be handed out again: to
 * the same stream at once; to a stream that is ordered after the free (FOLLOW_EVENT_DEPENDENCIES);
 * to anybody when the free is complete (ALLOW_OPPORTUNISTIC; without that, once the host has
 * synchronised); and, when the device has no more memory, to another stream that is made to wait
 * for the free (ALLOW_INTERNAL_DEPENDENCIES). Segments without a live or pending block go back at
 * a synchronising call, as far as more than the release threshold is reserved.
 *
 * Lock: fc.lock.
 */
#include "pool.h"

#include <stdlib.h>
#include <sys/mman.h>

enum block_state { BLOCK_FREE, BLOCK_LIVE, BLOCK_PENDING };

struct block {
	enum block_state state;
	bool seen;		/* free, and the host has synchronised since */
	uint64_t base;
	size_t size;
	struct fc_segment *segment;
	struct fc_op *op;	/* pending: the free, counted */
	uint64_t stream;	/* that freed it */
	struct block *prev, *next;
};

struct fc_segment {
	uint64_t base;
	size_t size;
	uint8_t *host;
	struct block *blocks;
	struct fc_segment *next;
};

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

CUresult fc_pool_default_host(CUmemAllocationType type, struct fc_pool **ret_pool)
{
	struct fc_pool **at = type == CU_MEM_ALLOCATION_TYPE_MANAGED ? &default_managed :
								       &default_host;
	CUmemPoolProps props = {
		.allocType = type,
		.location = { .type = CU_MEM_LOCATION_TYPE_HOST },
	};
	CUresult r = CUDA_SUCCESS;

	if (!*at) {
		r = fc_pool_make(NULL, &props, at);
		if (!r)
			(*at)->is_default = true;
	}
	*ret_pool = *at;
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

/* ---- segments ---- */

static void drop_segment(struct fc_pool *pool, struct fc_segment *seg)
{
	struct block *next;

	for (struct block *b = seg->blocks; b; b = next) {
		next = b->next;
		fc_op_put(b->op);
		free(b);
	}
	if (pool->dev)
		fc_arena_free(pool->dev, seg->base, seg->size);
	else
		munmap(seg->host, seg->size);
	pool->reserved -= seg->size;
	free(seg);
}

/* One block, free: nothing of it is used or about to be. */
static bool unused(const struct fc_segment *seg)
{
	return seg->blocks->state == BLOCK_FREE && !seg->blocks->next;
}

void fc_pool_release(struct fc_pool *pool, uint64_t keep)
{
	struct fc_segment **at = &pool->segments;

	while (*at && pool->reserved > keep) {
		struct fc_segment *seg = *at;

		if (unused(seg)) {
			*at = seg->next;
			drop_segment(pool, seg);
		} else {
			at = &seg->next;
		}
	}
}

static void drop_segments(struct fc_pool *pool)
{
	while (pool->segments) {
		struct fc_segment *seg = pool->segments;

		pool->segments = seg->next;
		drop_segment(pool, seg);
	}
}

void fc_pool_put(struct fc_pool *pool)
{
	struct fc_pool **at = &pools;

	if (--pool->refs)
		return;
	drop_segments(pool);
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	free(pool);
}

static CUresult map_segment(struct fc_pool *pool, struct fc_segment *seg)
{
	void *p;

	if (pool->dev)
		return fc_arena_segment(pool->dev, seg->size, &seg->base, &seg->host);
	p = mmap(NULL, seg->size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	seg->host = p;
	seg->base = (uint64_t)(uintptr_t)p;
	return CUDA_SUCCESS;
}

static CUresult grow_by(struct fc_pool *pool, size_t size, struct block **ret_b)
{
	struct fc_segment *seg, **at = &pool->segments;
	struct block *b;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (pool->max_size && pool->reserved + size > pool->max_size)
		return r;
	seg = calloc(1, sizeof(*seg));
	b = calloc(1, sizeof(*b));
	if (!seg || !b)
		goto fail;
	seg->size = size;
	r = map_segment(pool, seg);
	if (r)
		goto fail;
	*b = (struct block){ .base = seg->base, .size = size, .segment = seg, .seen = true };
	seg->blocks = b;
	while (*at && (*at)->base < seg->base)
		at = &(*at)->next;
	seg->next = *at;
	*at = seg;
	pool->reserved += size;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	*ret_b = b;
	return CUDA_SUCCESS;
fail:
	free(seg);
	free(b);
	return r;
}

static size_t round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

static CUresult grow(struct fc_pool *pool, size_t size, struct block **ret_b)
{
	CUresult r = grow_by(pool, round_up(size, FC_POOL_GROWTH), ret_b);

	if (!r)
		return r;
	r = grow_by(pool, round_up(size, FC_CHUNK), ret_b);
	if (!r)
		return r;
	for (struct fc_pool *other = pools; other; other = other->next)
		if (other->dev == pool->dev)
			fc_pool_release(other, 0);
	return grow_by(pool, round_up(size, FC_CHUNK), ret_b);
}

/* ---- blocks ---- */

static void join_next(struct block *b)
{
	struct block *n = b->next;

	if (!n || n->state != BLOCK_FREE || b->state != BLOCK_FREE)
		return;
	b->size += n->size;
	b->seen = b->seen && n->seen;
	b->next = n->next;
	if (n->next)
		n->next->prev = b;
	free(n);
}

static void make_free(struct block *b)
{
	fc_op_put(b->op);
	b->op = NULL;
	b->state = BLOCK_FREE;
	b->seen = false;
	join_next(b);
	if (b->prev)
		join_next(b->prev);
}

/* The front @size bytes of @b become a block of their own; without memory for that, all of it. */
static void cut(struct block *b, size_t size)
{
	struct block *rest;

	if (b->size == size)
		return;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return;
	*rest = *b;
	if (rest->op)
		fc_op_get(rest->op);
	rest->base += size;
	rest->size -= size;
	rest->prev = b;
	if (b->next)
		b->next->prev = rest;
	b->next = rest;
	b->size = size;
}

/* May @s have @b now, without anybody waiting? */
static bool usable(const struct fc_pool *pool, const struct block *b, struct fc_stream *s)
{
	switch (b->state) {
	case BLOCK_FREE:
		return b->seen || pool->reuse_opportunistic || b->stream == s->id;
	case BLOCK_PENDING:
		return b->stream == s->id ||
		       (pool->reuse_follow_events && fc_op_precedes(b->op, s->tail));
	default:
		return false;
	}
}

static struct block *best_fit(struct fc_pool *pool, size_t size, struct fc_stream *s, bool waiting)
{
	struct block *best = NULL;

	for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
		for (struct block *b = seg->blocks; b; b = b->next) {
			if (b->size < size || (best && b->size >= best->size))
				continue;
			if (waiting ? b->state == BLOCK_PENDING : usable(pool, b, s))
				best = b;
		}
	return best;
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

static CUresult hand_out(struct fc_pool *pool, struct block *b, struct fc_stream *s, size_t size,
			 struct fc_op *after, CUdeviceptr *ret_ptr)
{
	struct fc_device *dev = pool->dev ? pool->dev : s->ctx->dev;
	struct fc_alloc *a;
	struct fc_op *op;
	CUresult r;

	cut(b, size ? round_up(size, FC_SMALL) : FC_SMALL);
	r = submit_alloc(s, after, &op);
	if (r)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a) {
		fc_op_put(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_op_put(b->op);
	b->op = NULL;
	b->state = BLOCK_LIVE;
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
	pool->used += b->size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	fc_race_alloc(a, op);
	fc_op_put(op);
	*ret_ptr = a->base;
	return CUDA_SUCCESS;
}

CUresult fc_pool_alloc(struct fc_pool *pool, struct fc_stream *s, size_t size, CUdeviceptr *ret_ptr)
{
	size_t need = size ? round_up(size, FC_SMALL) : FC_SMALL;
	struct fc_op *after = NULL;
	struct block *b;
	CUresult r;

	if (need < size || pool->imported)
		return pool->imported ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	b = best_fit(pool, need, s, false);
	r = b ? CUDA_SUCCESS : grow(pool, need, &b);
	if (r && pool->reuse_internal && (b = best_fit(pool, need, s, true))) {
		after = b->op;
		r = CUDA_SUCCESS;
	}
	return r ? r : hand_out(pool, b, s, size, after, ret_ptr);
}

/* cuMemFree: the program promises that nothing uses it any more. Called by fc_mem_drop. */
void fc_pool_block_drop(struct fc_alloc *a)
{
	struct block *b = a->owner;

	a->pool->used -= b->size;
	b->stream = 0;
	make_free(b);
	fc_pool_put(a->pool);
}

struct free_work {
	struct fc_work work;
	struct fc_pool *pool;	/* counted */
};

/* The first block whose free is @op, or NULL: it may have been handed out since, or cut. */
static struct block *pending_block(struct fc_pool *pool, const struct fc_op *op)
{
	for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
		for (struct block *b = seg->blocks; b; b = b->next)
			if (b->op == op)
				return b;
	return NULL;
}

/* The stream has come to the free: also in a context that a fault has poisoned. */
static void reached(struct fc_op *op)
{
	struct fc_pool *pool = ((struct free_work *)op->work)->pool;
	struct block *b;

	while ((b = pending_block(pool, op)))
		make_free(b);
}

static void release_free(struct fc_work *w)
{
	struct free_work *f = (struct free_work *)w;

	fc_pool_put(f->pool);
	free(f);
}

/* The block must be pending, with its operation, before that is committed: it may be due at once. */
static CUresult submit_free(struct fc_stream *s, struct fc_work *w, struct block *b,
			    struct fc_op **ret_op)
{
	struct fc_op *op = fc_op_new(s->ctx, s, w);

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fc_op_order(op, s)) {
		fc_op_put(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	b->state = BLOCK_PENDING;
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
		a->pool->used -= a->reserved;
		fc_op_put(op);
		fc_pool_put(a->pool);
		free(a);
	}
	fc_work_put(&f->work);
	return r;
}

/* ---- all of them ---- */

void fc_pool_synced(void)
{
	for (struct fc_pool *pool = pools; pool; pool = pool->next) {
		for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
			for (struct block *b = seg->blocks; b; b = b->next)
				b->seen = b->seen || b->state == BLOCK_FREE;
		fc_pool_release(pool, pool->threshold);
	}
}

int fc_pool_check(void)
{
	int bad = 0;

	for (struct fc_pool *pool = pools; pool; pool = pool->next) {
		uint64_t reserved = 0, used = 0;

		for (struct fc_segment *seg = pool->segments; seg; seg = seg->next) {
			uint64_t at = seg->base;

			reserved += seg->size;
			for (struct block *b = seg->blocks; b; at += b->size, b = b->next) {
				used += b->state == BLOCK_LIVE ? b->size : 0;
				bad += b->base != at || b->segment != seg || !b->size;
				bad += b->state == BLOCK_FREE && b->next &&
				       b->next->state == BLOCK_FREE;
				bad += (b->state == BLOCK_PENDING) != (b->op != NULL);
			}
			bad += at != seg->base + seg->size;
		}
		bad += reserved != pool->reserved || used != pool->used;
		bad += used > pool->used_high || reserved > pool->reserved_high;
	}
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
		drop_segments(pool);
		if (pool->handle)
			pool->refs--;
		pool->handle = NULL;
		next = pool->next;
		fc_pool_put(pool);
	}
}

FC_EXPORT uint64_t fakecuda_pool_reserved_bytes(int device)
{
	uint64_t n = 0;

	fc_enter_control();
	for (struct fc_pool *pool = pools; pool; pool = pool->next)
		if (pool->dev && (device < 0 || pool->dev->ordinal == device))
			n += pool->reserved;
	fc_leave_control();
	return n;
}
