/*
 * events.h - write events into the history; choose which events are written.
 *
 * A thread writes into its own chunk (chunks.h), or into the shared chunk under the lock of that chunk.
 *
 * An event that options or the program have switched off is only counted; the check is one load of a mask.
 * Switching the history on or off drops all earlier events, because a trace with a gap would not add up.
 *
 * Thread context: any thread that has entered its slot (threads.h), and either holds the lock of the event's
 * domain or owns its thread cache there. Signal context: as threads.h.
 */
#ifndef GM_RECORDER_EVENTS_H
#define GM_RECORDER_EVENTS_H

#include "recorder/record/chunks.h"
#include "recorder/record/threads.h"

/* Set which events the options leave out, in a new journal. */
void gm_history_begin(struct gm_header *header, const struct gm_recorder_config *config);

/* Return a slot with room for one event: the writer's own with a new chunk, or the shared slot with its lock held.
 * Returns NULL when there is no room (counted), or no history. */
struct gm_slot *gm_event_slot_slow(const struct gm_writer *writer);

/* An event that is being written. */
struct gm_event_place {
	struct gm_slot *slot;
	struct gm_event *event;
	struct gm_event_counts *counts;
};

/* Count an event that is not written because an option or the program has switched it off. */
void gm_event_left_out(struct gm_event_counts *counts, enum gm_action action);

/* Find a place for one event. The caller holds the lock of @counts, fills all of @event except the commit word, and
 * calls gm_event_commit. @event is NULL when there is no room, or @action is switched off. */
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

/* Publish an event that is filled in, and count it. Releases the shared chunk's lock if gm_event_open took it. */
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
