/*
 * history.c - which events are written: all, none, or those that the options want.
 *
 * An event that is not wanted costs its writer one look at a mask, and is counted. A change is made
 * with every domain locked, so that no operation leaves half of its events, and drops what was
 * written before it wherever events begin or end: a trace with a gap would not add up.
 *
 * Thread context: any. Signal context: none. Fork: none. Locks: all domains, then journal.
 */
#include "recorder/record/tables.h"

#include <errno.h>

#define LOCK_NS UINT64_C(1000000000)	/* for each domain */
#define LEAST_CHUNKS 256u		/* of the pool, however few events are asked for */
#define ALL_ACTIONS ((1u << GM_ACTION_COUNT) - 1)

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

/* Chunks for @newest events: twice of them, since a chunk goes as a whole, and threads keep some
 * that are not full. */
static uint32_t chunks_for(uint64_t newest)
{
	uint64_t chunks = newest / GM_CHUNK_EVENTS * 2 + 2;

	if (chunks < LEAST_CHUNKS)
		chunks = LEAST_CHUNKS;
	return newest && chunks < gm_rec.pool.chunks ? (uint32_t)chunks : gm_rec.pool.chunks;
}

static void set_locked(struct gm_header *header, const struct gm_history *history)
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
		set_locked(header, history);
		gm_unlock(&gm_rec.journal);
		r = 0;
	}
	gm_recorder_unlock_all(&held);
	return r;
}
