/*
 * events.c - write events; choose which events are written: see events.h.
 */
#include "recorder/record/events.h"

#include <errno.h>

#define LOCK_NS UINT64_C(1000000000)	/* wait for each lock when the history is switched */
#define LEAST_CHUNKS 256u		/* chunks that the pool uses at least, however few events are wanted */
#define ALL_ACTIONS ((1u << GM_ACTION_COUNT) - 1)

/* Replace the full chunk of @slot. Returns false when the slot gets no chunk. */
static bool refill(struct gm_slot *slot, bool nested)
{
	uint32_t index;
	bool found;

	if (!nested)
		gm_chunks_join(gm_header_get());
	if (!gm_lock_unless_nested(&gm_rec.journal, nested))
		return false;
	gm_chunk_close_locked(slot);
	found = gm_chunk_take_locked(slot, &index);
	/* Threads that have ended may still own chunks: close those. */
	if (!found && slot != &gm_rec.shared_slot && gm_threads_sweep_locked())
		found = gm_chunk_take_locked(slot, &index);
	if (found)
		gm_chunk_open_locked(slot, index);
	gm_unlock(&gm_rec.journal);
	gm_chunks_ask(gm_header_get());
	return found;
}

struct gm_slot *gm_event_slot_slow(const struct gm_writer *writer)
{
	struct gm_slot *slot = writer->slot;

	if (!gm_rec.pool.chunks)
		return NULL;			/* no history */
	if (slot && slot->chunk_wait) {
		slot->chunk_wait--;
	} else if (slot) {
		if (refill(slot, false))
			return slot;
		slot->chunk_wait = GM_CHUNK_EVENTS;
	}
	if (!gm_lock_unless_nested(&gm_rec.shared, writer->nested))
		goto lost;
	if (gm_rec.shared_slot.place < GM_CHUNK_FULL || refill(&gm_rec.shared_slot, writer->nested))
		return &gm_rec.shared_slot;
	gm_unlock(&gm_rec.shared);
lost:
	gm_count(&gm_header_get()->events_lost, 1);
	return NULL;
}

/* ---- which events are written ---- */

void gm_history_begin(struct gm_header *header, const struct gm_recorder_config *config)
{
	uint32_t left_out = config->history_left_out & ALL_ACTIONS;

	header->history_left_out = left_out;
	header->history_min_size = config->history_min_size;
	gm_rec.min_size = config->history_min_size;
	gm_set(&gm_rec.left_out, left_out);
}

void gm_event_left_out(struct gm_event_counts *counts, enum gm_action action)
{
	bool by_option = gm_header_get()->history_left_out >> action & 1;
	_Atomic(uint64_t) *count = by_option ? &counts->left_out : &counts->paused;

	gm_set(count, gm_get(count) + 1);
}

/* Return how many chunks to use for @newest events (0: all): twice as many as these events fill, because chunks are
 * recycled whole, and the chunks of some threads are not full. */
static uint32_t chunks_for(uint64_t newest)
{
	uint64_t chunks = newest / GM_CHUNK_EVENTS * 2 + 2;

	if (chunks < LEAST_CHUNKS)
		chunks = LEAST_CHUNKS;
	return newest && chunks < gm_rec.pool.chunks ? (uint32_t)chunks : gm_rec.pool.chunks;
}

static void set_history_locked(struct gm_header *header, const struct gm_history *history)
{
	bool was_on = gm_get(&header->history_enabled) == GM_HISTORY_ALL;
	bool on = history->enabled == GM_HISTORY_ALL;
	uint64_t now = gm_stamp();

	if (on != was_on && now > gm_get(&header->horizon))
		gm_set_release(&header->horizon, now);
	gm_set(&gm_rec.left_out, on ? header->history_left_out : ALL_ACTIONS);
	gm_rec.pool.wanted = chunks_for(history->newest);
	gm_set(&header->history_newest, history->newest);
	gm_set(&header->history_context, history->context);
	gm_set(&header->history_stacks, history->stacks);
	gm_set(&header->history_enabled, history->enabled);
}

/* Holds every domain's lock, so that no operation leaves half of its events. */
int gm_record_history(const struct gm_history *history)
{
	struct gm_header *header = gm_header_get();
	struct gm_held held;
	int r = -ETIMEDOUT;

	if (!header)
		return -ENODEV;
	if (history->enabled >= GM_HISTORY_COUNT)
		return -EINVAL;
	if (gm_recorder_lock_all(LOCK_NS, &held) && gm_lock(&gm_rec.journal)) {
		set_history_locked(header, history);
		gm_unlock(&gm_rec.journal);
		r = 0;
	}
	gm_recorder_unlock_all(&held);
	return r;
}
