/*
 * journal.h - the journal's file as memory: its layout, its mapping, its growth.
 *
 *   header | domains | threads | segments | blocks | usage | modules | strings | stacks | frames |
 *   settings | failures | events | thread caches | lives | sites
 *
 * Each region is page aligned, and sparse until it is needed.
 *
 * Thread context: the one thread in gm_recorder_start; growth under the journal lock.
 * Signal context: none. A forked child does not have the mapping (MADV_DONTFORK).
 */
#ifndef GM_RECORDER_JOURNAL_H
#define GM_RECORDER_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

struct gm_plan {
	uint64_t offset[GM_REGION_COUNT], capacity[GM_REGION_COUNT];
	uint64_t file_bytes;
	uint32_t chunks;		/* of events */
};

/* Lay out a journal of at most @span bytes, with room for at most @history_events. When @span is too
 * short for everything, interned areas shrink to an eighth of it and the history shrinks next; the
 * tables keep half. Returns 0; -ENOSPC when @span is too short for the smallest journal. */
int gm_plan_make(uint64_t span, uint64_t history_events, struct gm_plan *ret_plan);

/* Return the most bytes that a region has in any journal; the bytes of one record (0: they vary). */
uint64_t gm_plan_most(enum gm_region_id region);
uint32_t gm_plan_item_bytes(enum gm_region_id region);

struct gm_journal_map {
	uint8_t *base;
	struct gm_plan plan;
	bool whole;			/* fully backed from the start, because this kernel cannot report failures */
};

/* Make @fd as long as the journal needs and map it, within the host's limits. Returns 0; -errno, and
 * nothing is mapped. */
int gm_journal_map(int fd, uint64_t budget_bytes, uint64_t history_events,
		   struct gm_journal_map *ret_map);

/* Fill in the header's regions in a new mapping and the pointers in gm_rec, and back the first part of
 * each region by memory. Returns 0 or -errno. */
int gm_journal_format(const struct gm_journal_map *map, uint64_t budget_bytes);

/* Back a region by memory up to @bytes. The caller holds the journal lock. Returns 0; -errno, and the
 * refusal is counted, except for GM_REGION_LIVES. */
int gm_region_reserve_locked(struct gm_header *header, enum gm_region_id id, uint64_t bytes);

/* Count a record that found no room in region @id. The first refused segment, block or line of a pool wakes the helper
 * thread, which tells the user (gm_recorder_is_short). */
void gm_region_refuse(struct gm_header *header, enum gm_region_id id);

/* Back one more part of region @id, the events, towards @bytes (a multiple of pages). No lock is held while the kernel
 * works, so several threads can back parts at once. @populated rises when all parts are backed. Returns false when
 * there was nothing to do, the journal lock was not free in time, or the kernel refused. */
bool gm_region_reserve_ahead(struct gm_header *header, enum gm_region_id id, uint64_t bytes);

/* Wake the helper thread, if there is one, without asking for a snapshot. */
void gm_helper_wake(struct gm_header *header);

#define GM_LIVES_LEVEL_BITS 3u		/* each level (lives.h) has 8 times the lines of the level before */

/* Take @count new, adjacent items of a table that is not append-only. Returns the index of the first; 0 when
 * there is no room. Takes the journal lock; with @nested it gives up rather than wait for the lock. */
uint32_t gm_region_take_many(enum gm_region_id id, uint32_t count, bool nested);

static inline uint32_t gm_region_take(enum gm_region_id id, bool nested)
{
	return gm_region_take_many(id, 1, nested);
}

#endif
