/*
 * state.h - the private state of the writer: the mapping of the journal, locks, slots, the chunk pool.
 *
 * The state is one static struct, zero until gm_recorder_start, which a process calls once.
 *
 * Locks, lowest first: domain (in order) < a slot's @tcache_owner < shared chunk <
 * intern < journal.
 *   domain     the domain's tables, statistics and usage rows
 *   tcache_owner  the thread's thread caches: their blocks, tallies and events
 *   shared     the chunk of threads that have no chunk of their own
 *   intern     strings, stacks, frames, modules, settings
 *   journal    @used and @populated of the regions, thread slots, the chunk pool
 * Every event is written under a domain's lock or a @tcache_owner. Each wait has a limit: a thread whose
 * wait runs out counts the loss and goes on without recording.
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

/* A thread's slot: the private side of struct gm_thread. Slot 0 is for threads without a slot. */
struct gm_slot {
	_Atomic(uint32_t) busy;		/* 1: an event is being written through the slot */
	uint32_t index;
	uint32_t place;			/* next place in @chunk, 1..63; 64: full */
	struct gm_thread *thread;	/* its record in the journal */
	struct gm_chunk *chunk;		/* NULL: none; changes under the lock journal */
	uint64_t commit;		/* generation of the chunk << 8 */
	uint32_t chunk_wait;		/* events until the thread asks for its own chunk again */
	uint64_t last_op;		/* number of the last transaction, so that the next one differs */
	_Atomic(uint32_t) tcache_owner;	/* enum gm_tcache_owner: who uses the thread caches now */
	_Atomic(uint32_t) tcache_stuck;	/* 1: a wait for @tcache_owner has run out */
	_Atomic(struct gm_tcache *) tcache;	/* of the last domain; lock: @tcache_owner */
	_Atomic(struct gm_tcache *) tcaches;	/* list of all; never shrinks */
} __attribute__((aligned(128)));	/* two lines, because processors fetch lines in pairs */

enum gm_tcache_owner { GM_TCACHE_NOBODY, GM_TCACHE_OWNER, GM_TCACHE_OTHER };

struct gm_domain_state {
	struct gm_lock lock;
	uint32_t spare_segment;		/* an id that was taken but not used; lock: @lock */
	uint32_t last_key;		/* key of the latest lookup of usage rows; 0: none; */
	struct gm_usage *last_rows[3];	/* the rows found for it; lock of both: @lock */
	_Atomic(uint32_t) outside_generation;	/* of the segments outside heaps; written under @lock */
	_Atomic(uint32_t) late;		/* head of the queue of late frees (gm_late_add), lock-free; 0: empty */
	_Atomic(uint32_t) sites;	/* row of SITES: the newest one without a stack; 0: none */
} __attribute__((aligned(64)));

struct gm_chunk_pool {			/* lock: journal */
	uint32_t chunks;		/* the most chunks that the journal can have */
	uint32_t limit;			/* the most chunks now, because memory for more was refused */
	uint32_t wanted;		/* the most chunks wanted (gm_record_history) */
	uint32_t fresh;			/* index of the first chunk that was never opened */
	uint32_t owned;			/* how many open chunks threads have */
	_Atomic(uint64_t) ahead;	/* bytes of the region to back by memory ahead of need */
	_Atomic(uint32_t) asked;	/* 1: the helper thread has been asked to back them */
	uint32_t *closed;		/* ring of @chunks indices, oldest first; private memory */
	uint32_t closed_first, closed_count;
};

/* Growth of the region of events by several threads at once, each backing a part. Lock: journal. */
struct gm_growth {
	uint64_t from, next, upto;	/* bytes of the region; no thread has the parts from @next on yet */
	_Atomic(uint32_t) working;	/* threads that are backing a part */
	bool failed;			/* the kernel refused a part */
};

/* The three usage rows in which one (domain, module, kind) counts; 0: none. */
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
	_Atomic(struct gm_header *) header;	/* set last of all; NULL: nothing is recorded */
	uint8_t *base;
	uint64_t bytes;
	struct gm_domain *domains;
	struct gm_thread *threads;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_usage *usage;
	struct gm_tcache_record *tcaches;
	struct gm_live *lives;
	struct gm_site *sites;
	uint8_t *stack_area;		/* start of the region STACKS, to which ids are offsets */
	_Atomic(uint32_t) sites_full;	/* 1: a row of @sites found no room */
	uint8_t *events;
	uint64_t min_size;		/* blocks smaller than this leave no events */
	_Atomic(uint32_t) left_out;	/* bits (1 << enum gm_action) of events that are not written */
	uint32_t history;		/* 1: the journal has room for events */
	_Atomic(uint32_t) lost;		/* enum gm_lost; set before any table is empty */
	_Atomic(uint32_t) domain_count;	/* domains in use; a pool's domain is added with the pool */

	uint64_t budget __attribute__((aligned(128)));	/* bytes that may be backed by memory; */
	uint64_t populated;		/* bytes that are; lock of both: journal */
	uint64_t review_at;		/* @populated at which the next review is due; lock: journal */
	uint32_t patience[GM_REGION_COUNT];	/* requests to refuse before the next attempt to grow */
	uint64_t aside[GM_REGION_COUNT];	/* reserve: bytes to back beyond the present need; lock: journal */
	_Atomic(uint32_t) slots_used;	/* slots ever used, slot 0 included; lock: journal */
	uint64_t slots_swept_ns;	/* lock: journal */
	_Atomic(uint32_t) copies;	/* calls of gm_recorder_lock_all without their gm_recorder_unlock_all yet */

	struct gm_lock journal, intern, shared;
	struct gm_domain_state domain[GM_DOMAINS];
	struct gm_chunk_pool pool;
	struct gm_growth growth;
	struct gm_slot shared_slot;	/* owns the shared chunk; lock: shared */
	struct gm_intern_table strings, stacks, frames;
	_Atomic(uint64_t) last_failure;
	_Atomic(uint64_t) undo_overflows;	/* words that did not fit into an undo area: a bug */
	struct gm_usage_entry *lookup;	/* GM_USAGE_LOOKUP entries; private memory */
	struct gm_slot *slots;		/* GM_MAX_THREADS slots; private memory */
	uint32_t tids[GM_MAX_THREADS];	/* by slot, 0: the slot is free; lock: journal */

	_Atomic(const struct gm_caches *) caches;	/* NULL: no thread caches (tables.h) */

	/* the control group's limit */
	bool limited;			/* there is a limit */
	uint64_t budget_most;		/* bytes: the budget as computed at the start */
	_Atomic(uint64_t) left;		/* bytes left at the last review; UINT64_MAX: no limit */
	_Atomic(uint32_t) review;	/* 1: the helper thread shall call gm_recorder_review */

	struct gm_region layout[GM_REGION_COUNT];	/* for gm_recorder_lose: somebody has truncated the file */

	/* where the file is, to remove it */
	char directory[1024];
	char name[256];			/* "" no file, or removed */
	uint64_t device, inode;
};

/* Hidden, so that code reaches it without the GOT. */
extern struct gm_recorder gm_rec __attribute__((visibility("hidden")));

static inline struct gm_header *gm_header_get(void)
{
	return gm_get_acquire(&gm_rec.header);
}

static inline struct gm_region *gm_region(enum gm_region_id id)
{
	return &gm_get(&gm_rec.header)->regions[id];
}

/* The locks that gm_recorder_lock_all holds: domain locks, and one bit for each slot's thread caches. */
struct gm_held { bool counted, domain[GM_DOMAINS]; uint64_t slots[GM_MAX_THREADS / 64]; };

/* Take a lock of the journal. With @nested do not wait, because this thread may hold the lock itself. */
static inline bool gm_lock_unless_nested(struct gm_lock *lock, bool nested)
{
	return nested ? gm_lock_within(lock, 0) : gm_lock(lock);
}

#endif
