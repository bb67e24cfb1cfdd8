/*
 * tables.h - what the files that change the tables share.
 *
 * A record is one gm_change: enter (slot, domain lock), a transaction, events, leave.
 * Thread context: any. Signal context: a handler that interrupts a record finds everything taken,
 * waits for nothing, and is counted as lost. Fork: none.
 */
#ifndef GM_RECORDER_TABLES_H
#define GM_RECORDER_TABLES_H

#include "recorder/counts.h"
#include "recorder/events.h"
#include "recorder/threads.h"
#include "recorder/txn.h"

struct gm_change {
	struct gm_writer writer;
	struct gm_domain *domain;
	uint64_t op;			/* of the transaction, never 0 */
	uint8_t number;			/* of the domain */
};

/* Enter a record of @domain under operation @op (0: a number of its own). Returns 0; -ENODEV when
 * nothing is recorded, -ETIMEDOUT when the lock could not be had (counted): then nothing is held. */
int gm_change_enter(struct gm_change *change, uint8_t domain, uint64_t op);
void gm_change_leave(struct gm_change *change);

/* Begin a transaction. Every one has a number of its own: if this thread's last one had the
 * change's, a new one is taken. */
void gm_change_begin(struct gm_change *change, struct gm_txn *txn);

/* The segment and the one block that a free, change or end of context is about. */
struct gm_pair_ids { uint32_t segment, block; };

/* Take a segment and its block out of the tables, with its events, in a transaction of its own. */
int gm_remove_locked(struct gm_change *change, struct gm_pair_ids ids, uint64_t tsc,
		     uint64_t stream, uint32_t stack);

/* Is @id a block that was handed out? Returns its record, NULL when it never was. */
static inline struct gm_block *gm_block_at(struct gm_header *header, uint32_t id)
{
	uint64_t used = gm_get_acquire(&header->regions[GM_REGION_BLOCKS].used);

	return id && id < used / sizeof(struct gm_block) ? &gm_rec.blocks[id] : NULL;
}

/* A block for which @requested bytes were asked: is it too small to be in the trace? */
static inline bool gm_untraced(uint64_t requested)
{
	return gm_unlikely(requested < gm_rec.min_size);
}

/* @count events of a change were of a block too small for the trace. */
static inline void gm_change_untraced(const struct gm_change *change, unsigned int count)
{
	_Atomic(uint64_t) *small = &change->domain->events_small;

	gm_set(small, gm_get(small) + count);
}

/* Write one event of a change; without room it is counted. */
static inline void gm_change_event(const struct gm_change *change, const struct gm_segment *segment,
				   enum gm_action action, uint64_t tsc, uint64_t address,
				   uint64_t size, uint64_t stream, uint32_t stack)
{
	struct gm_event_place at = gm_event_open(&change->writer, change->domain, action);
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

#endif
