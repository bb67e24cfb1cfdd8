/*
 * cached_internal.h - what the files of the cached heaps share: see cached.h.
 *
 *   cached.c          alloc, grow, free, complete: one operation each
 *   cached_whole.c    empty, drop, limits, counters
 *   cached_segment.c  the segment that a block lies in
 *   cached_keep.c     small blocks just freed, for the next of their size
 *   cached_heap.c     the heap's backend: records in the tables, the driver, segment events
 *   cached_memory.c   the heaps by number; private memory (free sets, links)
 *   cached_check.c    every structural rule, counted
 *
 * A stretch is the time that the domain's lock is held without a break: one change, and within it
 * one transaction with an operation number of its own. The heap stores through gm_undo into that
 * transaction's undo area.
 *
 * Thread context: the holder of the domain's lock unless a function says otherwise. Fork: all of it
 * is forgotten with the journal.
 */
#ifndef GM_RECORDER_CACHED_INTERNAL_H
#define GM_RECORDER_CACHED_INTERNAL_H

#include "recorder/cached.h"
#include "recorder/tables.h"

/* Memory that is given back all at once, or never. */
struct gm_arena { struct gm_arena_chunk *chunks; uint8_t *at; size_t left; };

/* One operation on a heap, by one thread. */
struct gm_stretch {
	struct gm_change change;
	struct gm_txn txn;
	const struct gm_alloc *alloc;	/* for which segments come; NULL: none */
	uint64_t op;			/* the operation's own number; 0 none */
	uint64_t tsc;			/* of events; 0: each its own moment */
	uint64_t last_op;		/* of the slot, before the stretch */
	bool held;			/* the lock */
	bool drops;			/* the heap: nothing else is done with it any more */
	bool got;			/* the driver gave memory: the next stretch hands it out */
};

struct gm_cached {
	struct gm_heap heap;
	struct gm_heap_ops ops;
	struct gm_undo undo;
	struct gm_cached_setup setup;
	uint32_t number;
	bool dead;			/* dropped, or being so */
	/* Of active blocks: their bytes; bytes asked for, and their peak. Read without the lock. */
	uint64_t live, used, used_high;
	struct gm_stretch *stretch;	/* the one under way; NULL: the lock is free */
	struct gm_stretch *grower;	/* who holds the growth lock, over its driver calls */
	/* The usage rows looked up last. */
	uint16_t module;
	bool rows_known;
	struct gm_usage *rows[3];
	struct gm_arena arena;		/* of the free sets */
};

/* Begin a stretch under @op (0: a number of its own). 0; as gm_change_enter;
 * -ENODEV: dropped. */
int gm_stretch_begin(struct gm_cached *heap, struct gm_stretch *stretch, uint64_t op);
void gm_stretch_end(struct gm_cached *heap, struct gm_stretch *stretch);
/* The same for one in which nothing was stored and no event written: its number is free again. */
void gm_stretch_cancel(struct gm_cached *heap, struct gm_stretch *stretch);
/* End the transaction and begin another one with a number of its own, under the same lock. */
void gm_stretch_next(struct gm_cached *heap, struct gm_stretch *stretch);

/* What the heap calls, into heap->ops. */
void gm_cached_ops(struct gm_cached *heap);

/* ---- cached.c ---- */

static inline bool gm_cached_is_live(const struct gm_block *block)
{
	uint8_t state = gm_get(&block->state);

	return state == GM_BLOCK_ACTIVE || state == GM_BLOCK_FREEING;
}

/* The usage rows of @module, in heap->rows. False when it cannot be told now. */
bool gm_cached_rows(struct gm_cached *heap, uint16_t module, bool nested);

/* A live block is free; a pending one is. Within a stretch. */
void gm_cached_free_now(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
			const struct gm_cached_free *how);
void gm_cached_complete_pending(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
				uint64_t tsc);

/* ---- cached_keep.c ---- */

/* Within a stretch: a kept block that serves @alloc, active now and counted; GM_NONE: there is
 * none. */
uint32_t gm_keep_take(struct gm_cached *heap, const struct gm_stretch *stretch,
		      const struct gm_alloc *alloc);
/* Within a stretch: keep a live block that is free now. False: nothing was done. */
bool gm_keep_put(struct gm_cached *heap, const struct gm_stretch *stretch, uint32_t id);
/* Within a stretch: what is kept of @heap goes into its free sets, in transactions of their own. */
void gm_keep_drop(struct gm_cached *heap, struct gm_stretch *stretch);

/* Without a lock: is anything kept in the domain? Should it be flushed? */
bool gm_keep_any(uint8_t domain);
bool gm_keep_stale(uint8_t domain);

void gm_keep_begin(void);

/* ---- cached_memory.c ---- */

void *gm_arena_take(struct gm_arena *arena, size_t bytes);	/* zeroed; NULL: none left */
void gm_arena_free(struct gm_arena *arena);

/* A zeroed heap with a number, not yet to be found by it; NULL: no memory. Takes its own lock. */
struct gm_cached *gm_cached_make(struct gm_free_link **ret_links);
void gm_cached_publish(struct gm_cached *heap);
void gm_cached_retire(struct gm_cached *heap);

uint32_t gm_cached_count(void);		/* numbers given out */

/* For a new journal: no heap yet. */
void gm_cached_begin(void);

#endif
