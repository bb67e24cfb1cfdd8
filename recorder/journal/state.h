/*
 * state.h - the writing side's own state: where the journal is mapped, locks, slots, pools.
 *
 * All of it is one static struct, zero until gm_recorder_start, which a process calls once.
 *
 * Locks, lowest first: domain (in order) < a slot's @tcache_owner < shared chunk <
 * intern < journal.
 *   domain     the domain's tables, statistics, usage rows; every event is written under one, or
 *   tcache_owner  the thread's thread caches: their blocks, tallies and events
 *   shared     the chunk of threads that have none of their own
 *   intern     strings, stacks, frames, modules, settings
 *   journal    @used and @populated of the regions, thread slots, the chunk pool
 * Each wait has a limit; a thread whose wait runs out counts it and goes on without recording.
 */
#ifndef GM_RECORDER_STATE_H
#define GM_RECORDER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/lock.h"
#include "recorder/journal/atomic.h"
#include "recorder/journal/format.h"
#include "recorder/journal/recorder.h"

#define GM_USAGE_LOOKUP 16384u		/* power of two, twice the rows */

/* A thread's slot, the private side of struct gm_thread; slot 0 is for threads that have none. */
struct gm_slot {
	_Atomic(uint32_t) busy;		/* 1: somebody is writing through it */
	uint32_t index;
	uint32_t place;			/* next place in @chunk, 1..63; 64: full */
	struct gm_chunk *chunk;		/* NULL: none; changes under the lock journal */
	uint64_t commit;		/* generation of the chunk << 8 */
	uint32_t chunk_wait;		/* events until it asks for a chunk of its own again */
	uint64_t last_op;		/* of the last transaction: none may have the same number */
	_Atomic(uint32_t) tcache_owner;	/* enum gm_tcache_owner: who is in its thread caches */
	_Atomic(uint32_t) tcache_stuck;	/* 1: a wait for @tcache_owner has run out */
	_Atomic(struct gm_tcache *) tcache;	/* of the domain it was in last; lock: @tcache_owner */
	_Atomic(struct gm_tcache *) tcaches;	/* all its thread caches, for ever */
} __attribute__((aligned(128)));	/* two lines: processors fetch them in pairs */

enum gm_tcache_owner { GM_TCACHE_NOBODY, GM_TCACHE_OWNER, GM_TCACHE_OTHER };

struct gm_domain_state {
	struct gm_lock lock;
	uint32_t spare_segment;		/* an id taken and not used; lock: @lock */
	uint32_t last_key;		/* whose usage rows were looked up last, 0 none; */
	struct gm_usage *last_rows[3];	/* lock: @lock */
	_Atomic(uint32_t) comings;	/* how often a segment that is no heap's came or moved; written under @lock */
	_Atomic(uint32_t) late;		/* the block that was queued last (gm_late_add), without @lock; 0: none */
} __attribute__((aligned(64)));

struct gm_chunk_pool {			/* lock: journal */
	uint32_t chunks;		/* how many there may ever be */
	uint32_t limit;			/* how many there may be now: memory for more was refused */
	uint32_t wanted;		/* how many are wanted now (gm_record_history) */
	uint32_t fresh;			/* index of the first chunk that was never opened */
	uint32_t owned;			/* open chunks that threads have */
	_Atomic(uint64_t) ahead;	/* bytes of events that shall be backed by memory, needed yet or not */
	_Atomic(uint32_t) asked;	/* 1: the helper thread is asked to get memory ahead of need */
	uint32_t *closed;		/* ring of @chunks indices, oldest first; private memory */
	uint32_t closed_first, closed_count;
};

/* Memory for events that several threads get at once, a part each. Lock: journal. */
struct gm_growth {
	uint64_t from, next, upto;	/* bytes of the region; the parts from @next on are nobody's yet */
	_Atomic(uint32_t) working;	/* threads that are getting a part */
	bool failed;			/* the kernel refused a part */
};

/* The three rows that one (domain, module, kind) counts in; 0 none. */
struct gm_usage_rows { uint32_t both, module, kind; };
struct gm_usage_entry { _Atomic(uint32_t) key; struct gm_usage_rows rows; };

/* A hash table from content to id, for one append-only region; lock: intern. */
struct gm_intern_table {
	uint32_t *ids;			/* 0 empty; private memory */
	uint32_t mask, count;
};

enum gm_lost { GM_LOST_NOT, GM_LOST_JUST_NOW, GM_LOST };

struct gm_caches;

struct gm_recorder {
	_Atomic(struct gm_header *) header;	/* set last; NULL: nothing is recorded */
	uint8_t *base;
	uint64_t bytes;
	struct gm_domain *domains;
	struct gm_thread *threads;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_usage *usage;
	struct gm_tcache_record *tcaches;
	struct gm_live *lives;
	uint8_t *events;
	uint64_t min_size;		/* blocks smaller than this leave no events */
	_Atomic(uint32_t) left_out;	/* bit (1 << enum gm_action): not written */
	uint32_t history;		/* 1: there is a place for events */
	_Atomic(uint32_t) domain_count;	/* domains so far: those of pools are made as the pools appear */

	uint64_t budget __attribute__((aligned(128)));	/* bytes that may be backed by memory; */
	uint64_t populated;		/* lock: journal, for both */
	uint64_t review_at;		/* bytes backed at the next review; lock: journal */
	uint32_t patience[GM_REGION_COUNT];	/* requests to refuse before trying to grow again */
	uint64_t aside[GM_REGION_COUNT];	/* bytes that are to be backed beyond what is needed; lock: journal */
	_Atomic(uint32_t) slots_used;	/* lock: journal; slots ever used, slot 0 among them */
	uint64_t slots_swept_ns;	/* lock: journal */

	struct gm_lock journal, intern, shared;
	struct gm_domain_state domain[GM_DOMAINS];
	struct gm_chunk_pool pool;
	struct gm_growth growth;
	struct gm_slot shared_slot;	/* lock: shared; has the shared chunk */
	struct gm_intern_table strings, stacks, frames;
	_Atomic(uint64_t) last_failure;
	_Atomic(uint64_t) undo_overflows;	/* words without a place in an undo area: a bug */
	struct gm_usage_entry *lookup;	/* GM_USAGE_LOOKUP of them, and of these */
	struct gm_slot *slots;		/* GM_MAX_THREADS: private memory */
	uint32_t tids[GM_MAX_THREADS];	/* of the slots, 0 free; lock: journal */

	_Atomic(const struct gm_caches *) caches;	/* NULL: no thread caches (tables.h) */

	/* the control group's limit */
	bool limited;			/* there is one */
	uint64_t budget_most;		/* bytes: the budget that was computed at the start */
	_Atomic(uint64_t) left;		/* bytes that were left at the last review; UINT64_MAX: no limit */
	_Atomic(uint32_t) review;	/* 1: the helper thread is asked for a review (gm_recorder_review) */

	/* the file was cut short by somebody: see gm_recorder_lose */
	struct gm_region layout[GM_REGION_COUNT];
	_Atomic(uint32_t) lost;		/* enum gm_lost */

	/* where the file is, to remove it */
	char directory[1024];
	char name[256];			/* "" no file, or removed */
	uint64_t device, inode;
};

/* Hidden: reached without a detour through the GOT. */
extern struct gm_recorder gm_rec __attribute__((visibility("hidden")));

static inline struct gm_header *gm_header_get(void)
{
	return gm_get_acquire(&gm_rec.header);
}

static inline struct gm_region *gm_region(enum gm_region_id id)
{
	return &gm_get(&gm_rec.header)->regions[id];
}

/* What gm_recorder_lock_all holds: domain locks, and the thread caches of slots (a bit each). */
struct gm_held { bool domain[GM_DOMAINS]; uint64_t slots[GM_MAX_THREADS / 64]; };

/* Take a lock of the journal; without a wait when this thread may hold it itself. */
static inline bool gm_lock_unless_nested(struct gm_lock *lock, bool nested)
{
	return nested ? gm_lock_within(lock, 0) : gm_lock(lock);
}

#endif
