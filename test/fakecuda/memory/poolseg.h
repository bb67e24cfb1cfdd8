/*
 * poolseg.h - the segments of a memory pool, and their blocks.
 *
 *   segment   [ live | free | freed, op pending | live ... ]   blocks: multiples of 512 bytes
 *
 * All under fc.lock.
 */
#ifndef FC_POOLSEG_H
#define FC_POOLSEG_H

#include "test/fakecuda/memory/pool.h"

enum fc_block_state { FC_BLOCK_FREE, FC_BLOCK_LIVE, FC_BLOCK_PENDING };

struct fc_block {
	enum fc_block_state state;
	bool seen;		/* free, and the host has synchronised since */
	bool orphan;		/* live since before its context was reset */
	uint64_t base;
	size_t size;
	size_t asked;		/* live: what was requested */
	struct fc_segment *segment;
	struct fc_op *op;	/* pending: the free, counted */
	uint64_t stream;	/* that freed it */
	struct fc_block *prev, *next;
};

struct fc_segment {
	uint64_t base;
	size_t size;
	uint8_t *host;
	struct fc_block *blocks;
	struct fc_segment *next;
};

static inline size_t fc_round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

/* fc_pool_grow - a free block of at least @size bytes, from more memory of the device; the unused
 * memory of all its pools is given back for it, if need be. */
CUresult fc_pool_grow(struct fc_pool *pool, size_t size, struct fc_block **ret_b);
void fc_pool_drop_segments(struct fc_pool *pool);

/* fc_block_best_fit - what @s may have at once; @waiting: what another stream has freed and not
 * reached. NULL: nothing of that size. */
struct fc_block *fc_block_best_fit(struct fc_pool *pool, size_t size, struct fc_stream *s,
				   bool waiting);

/* fc_block_cut - the front @size bytes of @b become a block of their own; without memory for
 * that, all of it. */
void fc_block_cut(struct fc_block *b, size_t size);

/* fc_block_make_free - free for all, joined with its neighbours: @b may be gone. */
void fc_block_make_free(struct fc_block *b);

/* fc_block_pending - the first block whose free is @op, or NULL: it may have been handed out since,
 * or cut. */
struct fc_block *fc_block_pending(struct fc_pool *pool, const struct fc_op *op);

int fc_pool_check_segments(const struct fc_pool *pool);

#endif
