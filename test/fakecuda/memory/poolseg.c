/*
 * poolseg.c - the segments of a memory pool: taken from the device in steps of 32 MiB, cut into
 * blocks, given back from their ends.
 *
 * Like the driver, which maps physical memory where it likes, a pool uses what is left at the end
 * of a segment for a larger request: the segment is made longer where that is possible. Lock:
 * fc.lock.
 */
#include "test/fakecuda/memory/poolseg.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- segments ---- */

static void drop_segment(struct fc_pool *pool, struct fc_segment *seg)
{
	struct fc_block *next;

	for (struct fc_block *b = seg->blocks; b; b = next) {
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

static struct fc_block *last_block(const struct fc_segment *seg)
{
	struct fc_block *b = seg->blocks;

	while (b->next)
		b = b->next;
	return b;
}

/* How much of the end of @seg is of no use: whole growth steps, or all of it. */
static size_t unused_end(const struct fc_segment *seg)
{
	const struct fc_block *last = last_block(seg);
	size_t end;

	if (last->state != FC_BLOCK_FREE)
		return 0;
	if (last == seg->blocks)
		return seg->size;
	end = fc_round_up(seg->size - last->size, FC_POOL_GROWTH);
	return end < seg->size ? seg->size - end : 0;
}

static void shrink(struct fc_pool *pool, struct fc_segment *seg, size_t cut)
{
	struct fc_block *last = last_block(seg);

	seg->size -= cut;
	last->size -= cut;
	if (!last->size) {
		last->prev->next = NULL;
		free(last);
	}
	pool->reserved -= cut;
	if (pool->dev)
		fc_arena_free(pool->dev, seg->base + seg->size, cut);
	else
		munmap(seg->host + seg->size, cut);
}

void fc_pool_release(struct fc_pool *pool, uint64_t keep)
{
	struct fc_segment **at = &pool->segments;

	while (*at && pool->reserved > keep) {
		struct fc_segment *seg = *at;
		size_t cut = unused_end(seg);

		if (cut > pool->reserved - keep)
			cut = (pool->reserved - keep) / FC_POOL_GROWTH * FC_POOL_GROWTH;
		if (cut == seg->size) {
			*at = seg->next;
			drop_segment(pool, seg);
		} else {
			if (cut)
				shrink(pool, seg, cut);
			at = &seg->next;
		}
	}
}

void fc_pool_drop_segments(struct fc_pool *pool)
{
	while (pool->segments) {
		struct fc_segment *seg = pool->segments;

		pool->segments = seg->next;
		drop_segment(pool, seg);
	}
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

static void note_reserved(struct fc_pool *pool, size_t more)
{
	pool->reserved += more;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
}

static CUresult grow_by(struct fc_pool *pool, size_t size, struct fc_block **ret_b)
{
	struct fc_segment *seg, **at = &pool->segments;
	struct fc_block *b;
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
	*b = (struct fc_block){ .base = seg->base, .size = size, .segment = seg, .seen = true };
	seg->blocks = b;
	while (*at && (*at)->base < seg->base)
		at = &(*at)->next;
	seg->next = *at;
	*at = seg;
	note_reserved(pool, size);
	*ret_b = b;
	return CUDA_SUCCESS;
fail:
	free(seg);
	free(b);
	return r;
}

/* Add to the last segment that ends in a free block what is missing there. */
static CUresult extend(struct fc_pool *pool, size_t size, struct fc_block **ret_b)
{
	struct fc_segment *seg = NULL;
	struct fc_block *tail;
	size_t more;
	CUresult r;

	for (struct fc_segment *s = pool->segments; s; s = s->next)
		if (last_block(s)->state == FC_BLOCK_FREE && last_block(s)->size < size)
			seg = s;
	if (!seg || !pool->dev)
		return CUDA_ERROR_OUT_OF_MEMORY;
	tail = last_block(seg);
	more = fc_round_up(size - tail->size, FC_POOL_GROWTH);
	if (pool->max_size && pool->reserved + more > pool->max_size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fc_arena_extend(pool->dev, seg->base + seg->size, more);
	if (r)
		return r;
	seg->size += more;
	tail->size += more;
	note_reserved(pool, more);
	*ret_b = tail;
	return CUDA_SUCCESS;
}

CUresult fc_pool_grow(struct fc_pool *pool, size_t size, struct fc_block **ret_b)
{
	CUresult r = extend(pool, size, ret_b);

	r = r ? grow_by(pool, fc_round_up(size, FC_POOL_GROWTH), ret_b) : r;
	if (!r)
		return r;
	r = grow_by(pool, fc_round_up(size, FC_CHUNK), ret_b);
	if (!r)
		return r;
	fc_pool_release_all(pool->dev);
	return grow_by(pool, fc_round_up(size, FC_CHUNK), ret_b);
}

/* ---- blocks ---- */

static void join_next(struct fc_block *b)
{
	struct fc_block *n = b->next;

	if (!n || n->state != FC_BLOCK_FREE || b->state != FC_BLOCK_FREE)
		return;
	b->size += n->size;
	b->seen = b->seen && n->seen;
	b->next = n->next;
	if (n->next)
		n->next->prev = b;
	free(n);
}

void fc_block_make_free(struct fc_block *b)
{
	fc_op_put(b->op);
	b->op = NULL;
	b->state = FC_BLOCK_FREE;
	b->seen = false;
	join_next(b);
	if (b->prev)
		join_next(b->prev);
}

void fc_block_cut(struct fc_block *b, size_t size)
{
	struct fc_block *rest;

	if (b->size == size)
		return;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return;
	*rest = *b;
	rest->orphan = false;
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
static bool usable(const struct fc_pool *pool, const struct fc_block *b, struct fc_stream *s)
{
	switch (b->state) {
	case FC_BLOCK_FREE:
		return b->seen || pool->reuse_opportunistic || b->stream == s->id;
	case FC_BLOCK_PENDING:
		return b->stream == s->id ||
		       (pool->reuse_follow_events && fc_op_precedes(b->op, s->tail));
	default:
		return false;
	}
}

struct fc_block *fc_block_best_fit(struct fc_pool *pool, size_t size, struct fc_stream *s,
				   bool waiting)
{
	struct fc_block *best = NULL;

	for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
		for (struct fc_block *b = seg->blocks; b; b = b->next) {
			if (b->size < size || (best && b->size >= best->size))
				continue;
			if (waiting ? b->state == FC_BLOCK_PENDING : usable(pool, b, s))
				best = b;
		}
	return best;
}

struct fc_block *fc_block_pending(struct fc_pool *pool, const struct fc_op *op)
{
	for (struct fc_segment *seg = pool->segments; seg; seg = seg->next)
		for (struct fc_block *b = seg->blocks; b; b = b->next)
			if (b->op == op)
				return b;
	return NULL;
}

int fc_pool_check_segments(const struct fc_pool *pool)
{
	uint64_t reserved = 0, used = 0;
	int bad = 0;

	for (struct fc_segment *seg = pool->segments; seg; seg = seg->next) {
		uint64_t at = seg->base;

		reserved += seg->size;
		for (struct fc_block *b = seg->blocks; b; at += b->size, b = b->next) {
			used += b->state == FC_BLOCK_LIVE ? b->asked : 0;
			bad += b->base != at || b->segment != seg || !b->size;
			bad += b->state == FC_BLOCK_FREE && b->next &&
			       b->next->state == FC_BLOCK_FREE;
			bad += (b->state == FC_BLOCK_PENDING) != (b->op != NULL);
		}
		bad += at != seg->base + seg->size;
	}
	bad += reserved != pool->reserved || used + pool->orphaned != pool->used;
	return bad + (pool->used > pool->used_high || reserved > pool->reserved_high);
}
