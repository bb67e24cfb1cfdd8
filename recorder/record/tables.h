/*
 * tables.h - what the files that change the tables share.
 *
 * A record is one gm_change: enter (slot, domain lock), a transaction, events, leave.
 * Thread context: any. Signal context: a handler that interrupts a record finds everything taken,
 * waits for nothing, and is counted as lost.
 */
#ifndef GM_RECORDER_TABLES_H
#define GM_RECORDER_TABLES_H

#include "recorder/journal/journal.h"
#include "recorder/record/counts.h"
#include "recorder/record/events.h"
#include "recorder/record/threads.h"
#include "recorder/record/txn.h"

struct gm_change {
	struct gm_writer writer;
	struct gm_domain *domain;
	struct gm_event_counts *counts;	/* the domain's, or a thread cache's */
	uint64_t op;			/* of the transaction, never 0 */
	uint8_t number;			/* of the domain */
};

/* Enter a record of @domain under operation @op (0: a number of its own). Returns 0; -ENODEV
 * when nothing is recorded, -ETIMEDOUT when the lock could not be had (counted): then nothing is
 * held. */
int gm_change_enter(struct gm_change *change, uint8_t domain, uint64_t op);

/* The same for a change of block @id, which is its segment's one block. -ENOENT: there is none. */
int gm_change_enter_block(struct gm_change *change, uint32_t id, uint64_t op,
			  struct gm_block **ret_block);

static inline void gm_change_leave(struct gm_change *change)
{
	gm_unlock(&gm_rec.domain[change->number].lock);
	gm_writer_leave(&change->writer);
}

static inline __attribute__((always_inline)) void gm_change_place(struct gm_change *change, uint8_t domain)
{
	change->number = domain;
	change->domain = &gm_rec.domains[domain];
	change->counts = &change->domain->counts;
}

/* A segment has come, or has another address now: see gm_record_comings in pools.h. */
static inline void gm_change_comes(const struct gm_change *change)
{
	_Atomic(uint32_t) *comings = &gm_rec.domain[change->number].comings;

	gm_set(comings, gm_get(comings) + 1);
}

/* Begin a transaction. Every one has a number of its own: if this thread's last one had the
 * change's, a new one is taken. */
static inline void gm_change_begin(struct gm_change *change, struct gm_txn *txn)
{
	struct gm_slot *slot = change->writer.slot;

	if (gm_likely(slot)) {
		if (gm_unlikely(slot->last_op == change->op))
			change->op = gm_writer_op(&change->writer);
		slot->last_op = change->op;
	}
	gm_txn_begin(txn, change->domain, change->op);
}

/* The thread caches of a floor above (preload/cache/thread_cache.c), which sets @ops in gm_rec when
 * it begins. Their blocks count as live in the statistics until they are flushed. */
struct gm_caches {
	void (*flush)(uint8_t domain);
	void (*flush_locked)(const struct gm_change *change);
	/* Free block @id of a heap, which was queued by gm_late_add. False: a lock could not be had. */
	bool (*free_late)(const struct gm_change *change, uint32_t id);
};

/* ---- frees that come while the domain's lock cannot be had ----
 *
 * The lock may be given up (allocator/lock.h), or this thread may hold the lock itself, below a signal handler. The
 * freer queues the block, without a lock. Whoever takes the domain's lock next frees what is queued first. A copy of
 * the journal does so, too. Until then a reader finds the block live. The events of a heap's block are stamped, and
 * their thread is known, as of the moment when the block is freed in fact. Signal context: gm_late_add only.
 * */

/* Queue the free of @block, whose id is @id. @stream and @stack are those of the free. @late: the stamp of the free;
 * for a heap's block whatever gm_caches.free_late makes of it. Nothing happens when the block is queued already. */
void gm_late_add(struct gm_block *block, uint32_t id, uint64_t stream, uint32_t stack, uint64_t late);

/* Is anything queued in @domain? Without a lock. */
static inline bool gm_late_any(uint8_t domain)
{
	return gm_get(&gm_rec.domain[domain].late) != GM_NONE;
}

/* With the lock, between transactions: free what is queued. Returns true when there may be more that can be freed. */
bool gm_late_do(struct gm_change *change);

/* An operation that was counted as lost is done later. */
static inline void gm_late_not_lost(void)
{
	struct gm_header *header = gm_header_get();

	if (header)
		gm_count(&header->operations_lost, UINT64_MAX);
}

/* Put the blocks in the thread caches of @domain, and the counts of these caches, into its
 * statistics. No lock is held. */
static inline void gm_caches_flush(uint8_t domain)
{
	const struct gm_caches *caches = gm_get_acquire(&gm_rec.caches);

	if (caches)
		caches->flush(domain);
}

/* The same with the lock of @change, before a transaction of it that may raise a peak. */
static inline void gm_caches_flush_locked(const struct gm_change *change)
{
	const struct gm_caches *caches = gm_get_acquire(&gm_rec.caches);

	if (caches)
		caches->flush_locked(change);
}

/* The segment and the one block that a free, change or end of context is about. */
struct gm_pair_ids { uint32_t segment, block; };

/* Take a segment and its block out of the tables, with its events, in a transaction of its own. */
int gm_remove_locked(struct gm_change *change, struct gm_pair_ids ids, uint64_t tsc,
		     uint64_t stream, uint32_t stack);

/* The record of block @id; NULL where no block has had that id. */
static inline struct gm_block *gm_block_at(struct gm_header *header, uint32_t id)
{
	uint64_t used = gm_get_acquire(&header->regions[GM_REGION_BLOCKS].used);

	return id && id < used / sizeof(struct gm_block) ? &gm_rec.blocks[id] : NULL;
}

/* Is a block for which @requested bytes were asked too small to be in the trace? */
static inline bool gm_untraced(uint64_t requested)
{
	return gm_unlikely(requested < gm_rec.min_size);
}

/* Count @count events that were not written, because their block is too small for the trace. */
static inline void gm_change_untraced(const struct gm_change *change, unsigned int count)
{
	_Atomic(uint64_t) *small = &change->counts->small;

	gm_set(small, gm_get(small) + count);
}

/* Write one event of a change; without room it is counted. */
static inline __attribute__((always_inline)) void
gm_change_event(const struct gm_change *change, const struct gm_segment *segment,
		enum gm_action action, uint64_t tsc, uint64_t address, uint64_t size, uint64_t stream,
		uint32_t stack)
{
	struct gm_event_place at = gm_event_open(&change->writer, change->counts, action);
	struct gm_event *event = at.event;

	if (gm_unlikely(!event))
		return;
	event->tsc = tsc;
	event->op = change->op;
	event->address = address;
	event->size = size;
	event->stream = stream;
	event->stack = stack;
	event->context = segment->context;
	event->module = segment->module;
	event->domain = change->number;
	event->action = (uint8_t)action;
	event->kind = segment->kind;
	event->flags = 0;
	event->reserved16 = 0;
	gm_event_commit(&change->writer, at);
}

/* Events of one change, that differ in these only. */
struct gm_traced { enum gm_action action; uint64_t address, size; };

/* Write them all. */
static inline void gm_change_trace(const struct gm_change *change, const struct gm_segment *segment,
				   uint64_t tsc, uint64_t stream, uint32_t stack,
				   const struct gm_traced *list, unsigned int count)
{
	for (unsigned int i = 0; i < count && gm_rec.history; i++)
		gm_change_event(change, segment, list[i].action, tsc, list[i].address, list[i].size,
				stream, stack);
}

#endif
