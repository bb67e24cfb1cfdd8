/*
 * tables.h - functions that the files which change the tables share.
 *
 * A record is made with one gm_change: enter (slot, domain lock), a transaction, events, leave.
 * Thread context: any. Signal context: a handler that interrupts a record finds the slot busy, does not
 * wait for a lock, and is counted as lost if it gets none.
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

/* Enter a record of @domain under operation @op (0: take a new number): enter the slot, take the domain's lock, do
 * queued frees. Returns 0; -ENODEV when nothing is recorded; -EINVAL when @domain does not exist; -ETIMEDOUT when the
 * lock was not free in time (counted). After an error nothing is held. */
int gm_change_enter(struct gm_change *change, uint8_t domain, uint64_t op);

/* As gm_change_enter, for a change of block @id, the only block of its segment. -ENOENT: there is no such block, or it
 * belongs to a heap. */
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

/* Note that a segment was added or changed: see gm_record_outside_generation in pools.h. */
static inline void gm_change_comes(const struct gm_change *change)
{
	_Atomic(uint32_t) *generation = &gm_rec.domain[change->number].outside_generation;

	gm_set(generation, gm_get(generation) + 1);
}

/* Begin a transaction. Every transaction has its own operation number: take a new one if this thread's last
 * transaction had the number of @change. */
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

/* The thread caches, which belong to a floor above (preload/cache/thread_cache.c). That floor sets @caches in gm_rec
 * at its start. Cached blocks count as live in the statistics until they are flushed. */
struct gm_caches {
	void (*flush)(uint8_t domain);
	void (*flush_locked)(const struct gm_change *change);
	/* Free block @id of a heap, which gm_late_add has queued. Returns false when a lock was not free in time. */
	bool (*free_late)(const struct gm_change *change, uint32_t id);
};

/* ---- frees that cannot get the domain's lock ----
 *
 * The lock may be given up (allocator/lock.h), or this thread may hold the lock itself, below a signal handler. The
 * freeing thread then queues the block without a lock. The next thread that takes the domain's lock frees the queued
 * blocks before it does anything else, and so does a copy of the journal. Until then readers see the block as live.
 * The events of a queued free carry the thread that frees the block in the end; for a block of a heap they also carry
 * the stamp of that time. Signal context: gm_late_add only.
 */

/* Queue the free of @block, whose id is @id. @stream and @stack are those of the free. @late: the stamp of the free;
 * for a block of a heap, a word that only gm_caches.free_late reads. Does nothing when the block is already queued. */
void gm_late_add(struct gm_block *block, uint32_t id, uint64_t stream, uint32_t stack, uint64_t late);

/* Is a free queued in @domain? Takes no lock. */
static inline bool gm_late_any(uint8_t domain)
{
	return gm_get(&gm_rec.domain[domain].late) != GM_NONE;
}

/* Free queued blocks, up to a limit. The caller holds the domain's lock, between transactions. Returns true when the
 * limit was reached: call again. Returns false when the queue is empty, or a lock was not free in time. */
bool gm_late_do(struct gm_change *change);

/* Take back the count of one lost operation, because the operation is queued and will be done. */
static inline void gm_late_not_lost(void)
{
	struct gm_header *header = gm_header_get();

	if (header)
		gm_count(&header->operations_lost, UINT64_MAX);
}

/* Flush the thread caches of @domain: their blocks become free blocks, and their counts go into the domain's
 * statistics. The caller holds no lock. */
static inline void gm_caches_flush(uint8_t domain)
{
	const struct gm_caches *caches = gm_get_acquire(&gm_rec.caches);

	if (caches)
		caches->flush(domain);
}

/* As gm_caches_flush, for the holder of the domain's lock, before a transaction that may raise a peak. */
static inline void gm_caches_flush_locked(const struct gm_change *change)
{
	const struct gm_caches *caches = gm_get_acquire(&gm_rec.caches);

	if (caches)
		caches->flush_locked(change);
}

/* The segment and the one block that a free, change or end of context is about. */
struct gm_pair_ids { uint32_t segment, block; };

/* Remove a segment and its block from the tables and write their events, in one transaction. @tsc: stamp of the events.
 * Returns 0; -ETIMEDOUT when the journal lock was not free in time, and nothing has changed. */
int gm_remove_locked(struct gm_change *change, struct gm_pair_ids ids, uint64_t tsc,
		     uint64_t stream, uint32_t stack);

/* Return the record of block @id; NULL: no block has ever had this id. */
static inline struct gm_block *gm_block_at(struct gm_header *header, uint32_t id)
{
	uint64_t used = gm_get_acquire(&header->regions[GM_REGION_BLOCKS].used);

	return id && id < used / sizeof(struct gm_block) ? &gm_rec.blocks[id] : NULL;
}

/* Is a block of @requested bytes too small for the trace (history_min_size)? */
static inline bool gm_untraced(uint64_t requested)
{
	return gm_unlikely(requested < gm_rec.min_size);
}

/* Count @count events that are not written because their block is too small for the trace. */
static inline void gm_change_untraced(const struct gm_change *change, unsigned int count)
{
	_Atomic(uint64_t) *small = &change->counts->small;

	gm_set(small, gm_get(small) + count);
}

/* Write one event of a change. An event that finds no room is counted. */
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

/* The members in which the events of one change differ. */
struct gm_traced { enum gm_action action; uint64_t address, size; };

/* Write the @count events of @list. */
static inline void gm_change_trace(const struct gm_change *change, const struct gm_segment *segment,
				   uint64_t tsc, uint64_t stream, uint32_t stack,
				   const struct gm_traced *list, unsigned int count)
{
	for (unsigned int i = 0; i < count && gm_rec.history; i++)
		gm_change_event(change, segment, list[i].action, tsc, list[i].address, list[i].size,
				stream, stack);
}

#endif
