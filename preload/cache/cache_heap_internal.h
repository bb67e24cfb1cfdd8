/*
 * cache_heap_internal.h - what the files of the cache's heaps share: see cache_heap.h.
 *
 *   cache_heap.c           heaps by number and by place; their private memory; usage rows
 *   cache_heap_alloc.c     alloc, grow: one operation each
 *   cache_heap_free.c      free, complete; the heap of a block
 *   cache_heap_whole.c     empty, drop, limits, counters, segments
 *   cache_heap_records.c   the ops of a heap: records in the tables, the lock, segment events
 *   thread_cache.h         blocks that were just freed, for the next request of the same thread and size
 *
 * In a locked section the thread holds the domain's lock without a break. A section is one change, and each of its
 * transactions has an operation number of its own. The heap stores through gm_undo into the transaction's undo area.
 *
 * Thread context: the holder of the domain's lock unless a function says otherwise.
 */
#ifndef GM_PRELOAD_CACHE_HEAP_INTERNAL_H
#define GM_PRELOAD_CACHE_HEAP_INTERNAL_H

#include <errno.h>

#include "preload/cache/cache_heap.h"
#include "recorder/record/sites.h"
#include "recorder/record/tables.h"

/* One operation on a heap, by one thread. */
struct gm_section {
	struct gm_change change;
	struct gm_txn txn;
	const struct gm_alloc *alloc;	/* the allocation that needs segments; NULL: none */
	uint64_t op;			/* number of the operation; 0: none */
	uint64_t tsc;			/* stamp of its events; 0: each is stamped when it is written */
	uint64_t last_op;		/* last_op of the slot before the section */
	uint32_t stack;			/* stack of the code that drops the heap */
	bool held;			/* the domain's lock is held */
	bool drops;			/* it drops the heap, which no other section may enter any more */
	bool moves_nothing;		/* it frees no block and hands none out, so it may enter a suspended heap */
};

/* ---- locked sections ----
 *
 * The thread holds the domain's lock from enter to end. These functions are inlined, because as calls they took a
 * fifth of the time of an allocation from the heap.
 */

/* Initialise a locked section member by member, because clearing all of it would take longer than the section
 * itself. */
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

/* Take the domain's lock for a section under @op (0: a number of its own); gm_section_open then begins the
 * transaction. Returns 0; the errors of gm_change_enter; -ENODEV: the heap is dropped or suspended. */
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
	__asm__("" : "+r"(section));	/* gcc would warn that this pointer may outlive @section */
	heap->section = section;
}

/* Enter and open. */
static inline __attribute__((always_inline)) int
gm_section_begin(struct gm_cache_heap *heap, struct gm_section *section, uint64_t op)
{
	int r = gm_section_enter(heap, section, op);

	if (gm_likely(r == 0))
		gm_section_open(heap, section);
	return r;
}

/* Begin a transaction of @heap with an operation number of its own, and end it (gm_section_close). The lock is held
 * and no transaction is open before. */
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

/* End a section that stored nothing and wrote no event, so that its operation number may be used again. */
static inline void gm_section_cancel(struct gm_cache_heap *heap, struct gm_section *section)
{
	if (gm_likely(section->change.writer.slot))
		section->change.writer.slot->last_op = section->last_op;
	gm_section_end(heap, section);
}

/* End the transaction and begin another one under the same lock, with an operation number of its own. */
static inline void gm_section_next(struct gm_cache_heap *heap, struct gm_section *section)
{
	gm_txn_end(&section->txn);
	section->change.op = gm_writer_op(&section->change.writer);
	gm_change_begin(&section->change, &section->txn);
	heap->undo.used = 0;
}

/* ---- cache_heap_records.c ---- */

/* Take some block records into the heap's reserve (@kept), in a transaction; give some of them back. */
void gm_cache_heap_keep_records(struct gm_cache_heap *heap);
void gm_cache_heap_drop_records(struct gm_cache_heap *heap);

/* ---- cache_heap_alloc.c, cache_heap_free.c ---- */

/* Return @r, the result of a call that recorded nothing. If a lock could not be taken, count the lost operation. */
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

/* Write the events of one free or one allocation of a block: they differ in the action only. */
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
	like.module = block->module;	/* not the module for which the segment was made */
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

/* Fill in the record of block @id, which has been handed out at @tsc, and write the event. The members that change
 * here mean nothing until the block is active, so they need no undo. */
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
	/* part of the word that contains the state, and that word is logged */
	block->flags = gm_untraced(alloc->requested) ? GM_BLOCK_UNTRACED : 0;
	alloc->tsc = tsc;
	alloc->address = block->address;
	alloc->size = block->size;
	gm_cache_heap_trace_at(change, block, tsc, alloc->stream,
			   alloc->stack_of_block_only ? GM_NONE : alloc->stack, actions, 1);
}

/* Count blocks that become live or end: in the live bytes, the usage rows, and the heap's own counters. @used: the
 * change of requested bytes. Within a locked section, after gm_cache_heap_rows. */
void gm_cache_heap_move(struct gm_cache_heap *heap, const struct gm_flow *flow, uint64_t used);

/* Find or make the usage rows of @module, and store them in heap->rows. Returns false if the lock for that could not
 * be taken. */
bool gm_cache_heap_find_rows(struct gm_cache_heap *heap, uint16_t module, bool nested);
static inline bool gm_cache_heap_rows(struct gm_cache_heap *heap, uint16_t module, bool nested)
{
	return gm_likely(heap->rows_known && heap->module == module) ||
	       gm_cache_heap_find_rows(heap, module, nested);
}

/* Remove @block from its row (recorder/record/sites.h), because nobody holds it any more. Within a locked section,
 * before the statistics change. */
static inline void gm_cache_heap_site_out(struct gm_cache_heap *heap, struct gm_block *block)
{
	gm_undo_note(&heap->undo, &gm_rec.sites[block->site].live);
	gm_site_out(&gm_rec.domains[heap->domain], block);
}

/* Count @block for the stack that it was handed out to, because a thread cache handed it out to another stack than
 * the one it counts for. */
void gm_cache_heap_site_move(struct gm_cache_heap *heap, struct gm_block *block, bool nested);

/* Free a live block; free a pending block. Within a locked section. @seen: the host knows that the GPU has passed the
 * free. */
void gm_cache_heap_free_now(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
			const struct gm_cache_free *how);
void gm_cache_heap_complete_pending(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
				uint64_t tsc, bool seen);

/* For gm_caches.free_late. */
bool gm_cache_heap_free_late(const struct gm_change *change, uint32_t id);

/* ---- cache_heap.c ---- */

void *gm_cache_heap_memory(size_t bytes);	/* zeroed, never given back; NULL: none left */
void gm_arena_free(struct gm_arena *arena);

/* Remove the heap from the tables, so that nothing finds it any more. Callers that already have its pointer may still
 * use it. */
void gm_cache_heap_retire(struct gm_cache_heap *heap);
/* Give back the memory of a heap that nothing uses any more. Its struct is reused for another heap some thousand
 * heaps later. */
void gm_cache_heap_recycle(struct gm_cache_heap *heap);

#endif
