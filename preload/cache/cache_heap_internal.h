/*
 * cache_heap_internal.h - what the files of the cached heaps share: see cache_heap.h.
 *
 *   cache_heap.c           the heaps by number and by place; their private memory; usage rows
 *   cache_heap_alloc.c     alloc, grow: one operation each
 *   cache_heap_free.c      free, complete; which heap a block is of
 *   cache_heap_whole.c     empty, drop, limits, counters, segments
 *   cache_heap_records.c   what a heap calls: records in the tables, the lock, segment events
 *   thread_cache.h         blocks just freed, for their thread's next request of the size
 *
 * A locked section is the time that the domain's lock is held without a break: one change, and within it
 * one transaction with an operation number of its own. The heap stores through gm_undo into that
 * transaction's undo area.
 *
 * Thread context: the holder of the domain's lock unless a function says otherwise.
 */
#ifndef GM_PRELOAD_CACHE_HEAP_INTERNAL_H
#define GM_PRELOAD_CACHE_HEAP_INTERNAL_H

#include <errno.h>

#include "preload/cache/cache_heap.h"
#include "recorder/record/tables.h"

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
	bool moves_nothing;		/* no address changes hands: also while the heap is suspended */
};

/* ---- locked sections ----
 *
 * Between enter and end the thread holds the domain's lock. Inlined: of what a block costs that comes from
 * the heap they were a fifth.
 */

/* A locked section that has not begun. Field by field: to clear all of it takes longer than it is used. */
static inline void gm_section_make(struct gm_section *section, bool moves_nothing)
{
	section->alloc = NULL;
	section->op = 0;
	section->tsc = 0;
	section->last_op = 0;
	section->held = false;
	section->drops = false;
	section->moves_nothing = moves_nothing;
}

/* Begin a locked section under @op (0: a number of its own), in two steps: the lock; the transaction. 0; as
 * gm_change_enter; -ENODEV: dropped, or held. */
static inline __attribute__((always_inline)) int
gm_section_enter(struct gm_cache_heap *heap, struct gm_section *section, uint64_t op)
{
	int r = gm_change_enter(&section->change, heap->domain, op);

	section->held = false;
	if (gm_unlikely(r < 0))
		return r;
	if (gm_unlikely(gm_get(&heap->dead) || heap->suspended) && !section->drops &&
	    (gm_get(&heap->dead) || !section->moves_nothing)) {
		gm_change_leave(&section->change);
		return -ENODEV;
	}
	section->held = true;
	return 0;
}

static inline __attribute__((always_inline)) void
gm_section_open(struct gm_cache_heap *heap, struct gm_section *section)
{
	if (gm_likely(section->change.writer.slot))
		section->last_op = section->change.writer.slot->last_op;
	gm_change_begin(&section->change, &section->txn);
	heap->undo.used = 0;
	__asm__("" : "+r"(section));	/* it goes when the locked section ends: gcc warns that it may not */
	heap->section = section;
}

/* Both. */
static inline __attribute__((always_inline)) int
gm_section_begin(struct gm_cache_heap *heap, struct gm_section *section, uint64_t op)
{
	int r = gm_section_enter(heap, section, op);

	if (gm_likely(r == 0))
		gm_section_open(heap, section);
	return r;
}

/* Between transactions, with the lock: one of @heap's, with a number of its own; and its end. */
static inline void gm_section_turn(struct gm_cache_heap *heap, struct gm_section *section)
{
	section->change.op = gm_writer_op(&section->change.writer);
	gm_section_open(heap, section);
}

static inline void gm_section_close(struct gm_cache_heap *heap, struct gm_section *section)
{
	heap->section = NULL;
	gm_txn_end(&section->txn);
}

static inline void gm_section_end(struct gm_cache_heap *heap, struct gm_section *section)
{
	heap->section = NULL;
	section->held = false;
	gm_txn_end(&section->txn);
	gm_change_leave(&section->change);
}

/* The same for one in which nothing was stored and no event written: its number is free again. */
static inline void gm_section_cancel(struct gm_cache_heap *heap, struct gm_section *section)
{
	if (gm_likely(section->change.writer.slot))
		section->change.writer.slot->last_op = section->last_op;
	gm_section_end(heap, section);
}

/* End the transaction and begin another one with a number of its own, under the same lock. */
static inline void gm_section_next(struct gm_cache_heap *heap, struct gm_section *section)
{
	gm_txn_end(&section->txn);
	section->change.op = gm_writer_op(&section->change.writer);
	gm_change_begin(&section->change, &section->txn);
	heap->undo.used = 0;
}

/* ---- cache_heap_records.c ---- */

/* What the heap calls, into heap->ops. */
void gm_cache_heap_ops(struct gm_cache_heap *heap, const struct gm_cache_driver *driver);

/* ---- cache_heap_alloc.c, cache_heap_free.c ---- */

/* The result @r of a call that recorded nothing, counted if it was for want of a lock. */
static inline int gm_cache_heap_lost(int r)
{
	if (r == -ETIMEDOUT)
		gm_count(&gm_header_get()->operations_lost, 1);
	return r;
}

static inline bool gm_cache_heap_is_live(const struct gm_block *block)
{
	uint8_t state = gm_get(&block->state);

	return state == GM_BLOCK_ACTIVE || state == GM_BLOCK_FREEING;
}

/* Events of one block, that differ in the action only, its free's or its allocation's. */
static inline __attribute__((always_inline)) void
gm_cache_heap_trace_at(const struct gm_change *change, const struct gm_block *block, uint64_t tsc,
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
gm_cache_heap_trace(const struct gm_change *change, const struct gm_block *block,
		const struct gm_cache_free *how, const enum gm_action *actions,
		unsigned int count)
{
	uint32_t stack = how->stack == GM_STACK_OF_BLOCK ? block->stack : how->stack;

	if (!gm_rec.history && !(block->flags & GM_BLOCK_UNTRACED))
		return;
	gm_cache_heap_trace_at(change, block, how->tsc ? how->tsc : gm_stamp_before(), how->stream,
			   stack, actions, count);
}

/* Block @id has been handed out, at @tsc: its record and the event. What a record says besides its
 * place means nothing before it is active, and needs no undo. */
static inline __attribute__((always_inline)) void
gm_cache_heap_describe(const struct gm_change *change, struct gm_alloc *alloc, uint32_t id,
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
	gm_cache_heap_trace_at(change, block, tsc, alloc->stream,
			   alloc->stack_of_block_only ? GM_NONE : alloc->stack, actions, 1);
}

/* Blocks come to live, or go: live bytes and rows, and the heap's own counts, where @used is what was
 * asked for them. Within a locked section; the rows are known. */
void gm_cache_heap_move(struct gm_cache_heap *heap, const struct gm_flow *flow, uint64_t used);

/* The usage rows of @module, in heap->rows. False when it cannot be told now. */
bool gm_cache_heap_find_rows(struct gm_cache_heap *heap, uint16_t module, bool nested);
static inline bool gm_cache_heap_rows(struct gm_cache_heap *heap, uint16_t module, bool nested)
{
	return gm_likely(heap->rows_known && heap->module == module) ||
	       gm_cache_heap_find_rows(heap, module, nested);
}

/* A live block is free; a pending one is. Within a locked section. */
void gm_cache_heap_free_now(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
			const struct gm_cache_free *how);
void gm_cache_heap_complete_pending(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
				uint64_t tsc, bool seen);

/* ---- cache_heap.c ---- */

void *gm_cache_heap_memory(size_t bytes);	/* zeroed, never given back; NULL: none left */
void gm_arena_free(struct gm_arena *arena);

/* It is found by nobody any more who has it not yet. */
void gm_cache_heap_retire(struct gm_cache_heap *heap);
/* It is dropped, with all it had: its struct may be another heap's, some thousand heaps later. */
void gm_cache_heap_recycle(struct gm_cache_heap *heap);

#endif
