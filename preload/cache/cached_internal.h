/*
 * cached_internal.h - what the files of the cached heaps share: see cached.h.
 *
 *   cached.c          made; usage rows
 *   cached_alloc.c    alloc, grow: one operation each
 *   cached_free.c     free, complete; which heap a block is of
 *   cached_whole.c    empty, drop, limits, counters
 *   thread_cache.h    blocks just freed, for their thread's next request of the size
 *   cached_section.h  the lock and the transactions of an operation
 *   cached_heap.c     the heap's backend: records in the tables, the driver, segment events
 *   cached_memory.c   the heaps by number; private memory (free sets, links)
 *   cached_check.c    every structural rule, counted
 *
 * A locked section is the time that the domain's lock is held without a break: one change, and within it
 * one transaction with an operation number of its own. The heap stores through gm_undo into that
 * transaction's undo area.
 *
 * Thread context: the holder of the domain's lock unless a function says otherwise.
 */
#ifndef GM_CACHED_INTERNAL_H
#define GM_CACHED_INTERNAL_H

#include <errno.h>

#include "preload/cache/cached.h"
#include "recorder/record/tables.h"

/* Memory that is given back all at once, or never. */
struct gm_arena { struct gm_arena_chunk *chunks; uint8_t *at; size_t left; };

/* One operation on a heap, by one thread. */
struct gm_section {
	struct gm_change change;
	struct gm_txn txn;
	const struct gm_alloc *alloc;	/* for which segments come; NULL: none */
	uint64_t op;			/* the operation's own number; 0 none */
	uint64_t tsc;			/* of events; 0: each its own moment */
	uint64_t last_op;		/* of the slot, before the locked section */
	uint32_t stack;			/* of who drops the heap */
	bool held;			/* the lock */
	bool drops;			/* the heap: nothing else is done with it any more */
	bool moves_nothing;		/* no address changes hands: also while the heap is held */
	bool got;			/* the driver gave memory: the next locked section hands it out */
};

struct gm_cached {
	/* What hits read, on a line that is seldom written. */
	uint32_t number;
	uint8_t domain;			/* as in @setup */
	bool plain;			/* sizes are rounded up to GM_GRANULE, no more */
	_Atomic(bool) thread_cache;	/* a block just freed may go into its thread's cache */
	_Atomic(bool) dead;		/* dropped, or being so */
	bool held;			/* gm_cached_hold */
	bool put_off;			/* since then some block could have become free */

	struct gm_heap heap __attribute__((aligned(64)));
	struct gm_heap_ops ops;
	struct gm_undo undo;
	struct gm_cached_setup setup;
	/* Of active blocks, and of those in thread caches: their bytes; bytes asked for, and their peak.
	 * Read without the lock. */
	uint64_t live, used, used_high;
	struct gm_section *section;	/* the one under way; NULL: the lock is free */
	struct gm_section *grower;	/* who holds the growth lock, over its driver calls */
	/* The usage rows looked up last. */
	uint16_t module;
	bool rows_known;
	struct gm_usage *rows[3];
	struct gm_arena arena;		/* of the free sets */
	struct gm_cached *next;		/* of those that were dropped; lock: heaps */
};

/* What the heap calls, into heap->ops. */
void gm_cached_ops(struct gm_cached *heap);

/* ---- cached.c, cached_alloc.c, cached_free.c ---- */

/* The result @r of a call that recorded nothing, counted if it was for want of a lock. */
static inline int gm_cached_lost(int r)
{
	if (r == -ETIMEDOUT)
		gm_count(&gm_header_get()->operations_lost, 1);
	return r;
}

static inline bool gm_cached_is_live(const struct gm_block *block)
{
	uint8_t state = gm_get(&block->state);

	return state == GM_BLOCK_ACTIVE || state == GM_BLOCK_FREEING;
}

/* Events of one block, that differ in the action only, its free's or its allocation's. */
static inline __attribute__((always_inline)) void
gm_cached_trace_at(const struct gm_change *change, const struct gm_block *block, uint64_t tsc,
		   uint64_t stream, uint32_t stack, const enum gm_action *actions,
		   unsigned int count)
{
	const struct gm_segment *segment = &gm_rec.segments[block->segment];
	struct gm_traced list[2];
	struct gm_segment like;

	if (gm_unlikely(block->flags & GM_BLOCK_UNTRACED)) {
		gm_change_untraced(change, count);
		return;
	}
	if (!gm_rec.history)
		return;
	like.context = segment->context;
	like.kind = segment->kind;
	like.module = block->module;	/* not the one for which the segment was made */
	for (unsigned int i = 0; i < count; i++)
		list[i] = (struct gm_traced){ actions[i], block->address, block->requested };
	gm_change_trace(change, &like, tsc, stream, stack, list, count);
}

static inline __attribute__((always_inline)) void
gm_cached_trace(const struct gm_change *change, const struct gm_block *block,
		const struct gm_cached_free *how, const enum gm_action *actions,
		unsigned int count)
{
	uint32_t stack = how->stack == GM_STACK_OF_BLOCK ? block->stack : how->stack;

	if (!gm_rec.history && !(block->flags & GM_BLOCK_UNTRACED))
		return;
	gm_cached_trace_at(change, block, how->tsc ? how->tsc : gm_stamp_before(), how->stream,
			   stack, actions, count);
}

/* Block @id has been handed out, at @tsc: its record and the event. What a record says besides its
 * place means nothing before it is active, and needs no undo. */
static inline __attribute__((always_inline)) void
gm_cached_describe(const struct gm_change *change, struct gm_alloc *alloc, uint32_t id,
		   uint64_t tsc)
{
	static const enum gm_action actions[] = { GM_ACTION_ALLOC };
	struct gm_block *block = &gm_rec.blocks[id];

	block->tsc = tsc;
	block->op = change->op;
	block->stack = alloc->stack;
	block->thread = gm_writer_tid(&change->writer);
	block->module = alloc->module;
	/* in the word of the state, which is logged */
	block->flags = gm_untraced(alloc->requested) ? GM_BLOCK_UNTRACED : 0;
	alloc->tsc = tsc;
	alloc->address = block->address;
	alloc->size = block->size;
	gm_cached_trace_at(change, block, tsc, alloc->stream,
			   alloc->stack_of_block_only ? GM_NONE : alloc->stack, actions, 1);
}

/* Blocks come to live, or go: live bytes and rows, and the heap's own counts, where @used is what was
 * asked for them. Within a locked section; the rows are known. */
void gm_cached_move(struct gm_cached *heap, const struct gm_flow *flow, uint64_t used);

/* The usage rows of @module, in heap->rows. False when it cannot be told now. */
bool gm_cached_find_rows(struct gm_cached *heap, uint16_t module, bool nested);
static inline bool gm_cached_rows(struct gm_cached *heap, uint16_t module, bool nested)
{
	return gm_likely(heap->rows_known && heap->module == module) ||
	       gm_cached_find_rows(heap, module, nested);
}

/* A live block is free; a pending one is. Within a locked section. */
void gm_cached_free_now(struct gm_cached *heap, struct gm_section *section, uint32_t id,
			const struct gm_cached_free *how);
void gm_cached_complete_pending(struct gm_cached *heap, struct gm_section *section, uint32_t id,
				uint64_t tsc);

/* ---- cached_memory.c ---- */

void *gm_cached_memory(size_t bytes);	/* zeroed, never given back; NULL: none left */
void *gm_arena_take(struct gm_arena *arena, size_t bytes);	/* the same, of @arena */
void gm_arena_free(struct gm_arena *arena);

/* A zeroed heap with a number, not yet to be found by it; NULL: no memory. Takes its own lock. */
struct gm_cached *gm_cached_make(struct gm_free_link **ret_links);
void gm_cached_publish(struct gm_cached *heap);
void gm_cached_retire(struct gm_cached *heap);
/* It is dropped, with all it had: its struct may be another heap's, some thousand heaps later. */
void gm_cached_again(struct gm_cached *heap);

uint32_t gm_cached_count(void);		/* numbers given out */

#endif
