/*
 * events.h - where events are written, and which of them.
 *
 * A thread writes into its own chunk (chunks.h), or into the shared one under its lock.
 *
 * An event that is not wanted costs its writer one load of a mask, and is counted. Where the
 * history is switched on or off, the events so far are dropped: a trace with a gap would not add
 * up.
 *
 * Thread context: any, inside a record (threads.h), with the lock of the event's domain held, or in
 * the thread's thread cache of it. Signal context: as there.
 */
#ifndef GM_RECORDER_EVENTS_H
#define GM_RECORDER_EVENTS_H

#include "recorder/record/chunks.h"
#include "recorder/record/threads.h"

/* For a new journal: which events the options leave out. */
void gm_history_begin(struct gm_header *header, const struct gm_recorder_config *config);

/* A slot with room for one event: the writer's, or the shared one, whose lock is held then.
 * NULL: there is no room, which is counted; or there is no history. */
struct gm_slot *gm_event_slot_slow(const struct gm_writer *writer);

/* One event under way. */
struct gm_event_place {
	struct gm_slot *slot;
	struct gm_event *event;
	struct gm_event_counts *counts;
};

/* An event that is not wanted: count it. */
void gm_event_left_out(struct gm_event_counts *counts, enum gm_action action);

/* Find a place for an event that counts in @counts, whose lock is held. Fill @event but for its
 * commit word, then gm_event_commit. @event is NULL when there is no room, or such events are not
 * wanted. */
static inline struct gm_event_place gm_event_open(const struct gm_writer *writer,
						  struct gm_event_counts *counts,
						  enum gm_action action)
{
	struct gm_slot *slot = writer->slot;

	if (gm_unlikely(gm_get(&gm_rec.left_out) >> action & 1)) {
		gm_event_left_out(counts, action);
		return (struct gm_event_place){ NULL, NULL, NULL };
	}
	if (gm_unlikely(!slot || slot->place >= GM_CHUNK_FULL))
		slot = gm_event_slot_slow(writer);
	if (gm_unlikely(!slot))
		return (struct gm_event_place){ NULL, NULL, NULL };
	return (struct gm_event_place){ slot, (struct gm_event *)slot->chunk + slot->place, counts };
}

/* The event is filled in: make it part of the history. */
static inline void gm_event_commit(const struct gm_writer *writer, struct gm_event_place at)
{
	struct gm_chunk *chunk = at.slot->chunk;
	uint32_t index = writer->slot ? writer->slot->index : 0;
	struct gm_thread *thread = &gm_rec.threads[index];

	if (gm_likely(at.event->tsc > gm_get(&chunk->last_tsc)))
		gm_set(&chunk->last_tsc, at.event->tsc);
	gm_set_release(&at.event->commit, at.slot->commit | at.slot->place);
	at.slot->place++;
	gm_set(&at.counts->events, gm_get(&at.counts->events) + 1);
	if (gm_likely(index)) {
		gm_set(&thread->events, gm_get(&thread->events) + 1);
	} else {
		gm_count(&thread->events, 1);
	}
	if (gm_unlikely(at.slot == &gm_rec.shared_slot))
		gm_unlock(&gm_rec.shared);
}

#endif
