/*
 * cached_stretch.h - stretches of a cached heap: the domain's lock and, within it, transactions.
 *
 * Inlined: of what a block costs that comes from the heap they were a fifth.
 *
 * Thread context: any, inside a hook; between enter and end the holder of the domain's lock. Signal
 * context: none. Fork: forgotten with the journal. Lock: the domain's.
 */
#ifndef GM_RECORDER_CACHED_STRETCH_H
#define GM_RECORDER_CACHED_STRETCH_H

#include <errno.h>

#include "recorder/cache/cached_internal.h"

/* A stretch that has not begun. Field by field: to clear all of it takes longer than it is used. */
static inline void gm_stretch_make(struct gm_stretch *stretch, bool moves_nothing)
{
	stretch->alloc = NULL;
	stretch->op = 0;
	stretch->tsc = 0;
	stretch->last_op = 0;
	stretch->held = false;
	stretch->drops = false;
	stretch->moves_nothing = moves_nothing;
	stretch->got = false;
}

/* Begin a stretch under @op (0: a number of its own), in two steps: the lock; the transaction. 0; as
 * gm_change_enter; -ENODEV: dropped, or held. */
static inline __attribute__((always_inline)) int
gm_stretch_enter(struct gm_cached *heap, struct gm_stretch *stretch, uint64_t op)
{
	int r = gm_change_enter_fast(&stretch->change, heap->domain, op);

	stretch->held = false;
	if (gm_unlikely(r < 0))
		return r;
	if (gm_unlikely(gm_get(&heap->dead) || heap->held) && !stretch->drops &&
	    (gm_get(&heap->dead) || !stretch->moves_nothing)) {
		gm_change_leave(&stretch->change);
		return -ENODEV;
	}
	stretch->held = true;
	return 0;
}

static inline __attribute__((always_inline)) void
gm_stretch_open(struct gm_cached *heap, struct gm_stretch *stretch)
{
	if (gm_likely(stretch->change.writer.slot))
		stretch->last_op = stretch->change.writer.slot->last_op;
	gm_change_begin(&stretch->change, &stretch->txn);
	heap->undo.used = 0;
	__asm__("" : "+r"(stretch));	/* it goes when the stretch ends: gcc warns that it may not */
	heap->stretch = stretch;
}

/* Both. */
static inline __attribute__((always_inline)) int
gm_stretch_begin(struct gm_cached *heap, struct gm_stretch *stretch, uint64_t op)
{
	int r = gm_stretch_enter(heap, stretch, op);

	if (gm_likely(r == 0))
		gm_stretch_open(heap, stretch);
	return r;
}

/* Between transactions, with the lock: one of @heap's, with a number of its own; and its end. */
static inline void gm_stretch_turn(struct gm_cached *heap, struct gm_stretch *stretch)
{
	stretch->change.op = gm_writer_op(&stretch->change.writer);
	gm_stretch_open(heap, stretch);
}

static inline void gm_stretch_close(struct gm_cached *heap, struct gm_stretch *stretch)
{
	heap->stretch = NULL;
	gm_txn_end(&stretch->txn);
}

static inline void gm_stretch_end(struct gm_cached *heap, struct gm_stretch *stretch)
{
	heap->stretch = NULL;
	stretch->held = false;
	gm_txn_end(&stretch->txn);
	gm_change_leave(&stretch->change);
}

/* The same for one in which nothing was stored and no event written: its number is free again. */
static inline void gm_stretch_cancel(struct gm_cached *heap, struct gm_stretch *stretch)
{
	if (gm_likely(stretch->change.writer.slot))
		stretch->change.writer.slot->last_op = stretch->last_op;
	gm_stretch_end(heap, stretch);
}

/* End the transaction and begin another one with a number of its own, under the same lock. */
static inline void gm_stretch_next(struct gm_cached *heap, struct gm_stretch *stretch)
{
	gm_txn_end(&stretch->txn);
	stretch->change.op = gm_writer_op(&stretch->change.writer);
	gm_change_begin(&stretch->change, &stretch->txn);
	heap->undo.used = 0;
}

#endif
