/*
 * cache_section.h - locked sections of a cached heap: the domain's lock and, within it, transactions.
 *
 * Inlined: of what a block costs that comes from the heap they were a fifth.
 *
 * Thread context: any, inside a hook; between enter and end the holder of the domain's lock. Signal
 * context: none. Lock: the domain's.
 */
#ifndef GM_PRELOAD_CACHE_SECTION_H
#define GM_PRELOAD_CACHE_SECTION_H

#include <errno.h>

#include "preload/cache/cache_heap_internal.h"

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

#endif
