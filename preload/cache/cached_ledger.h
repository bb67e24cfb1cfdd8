/*
 * cached_ledger.h - what heaps did since their domain's statistics were last brought up to date.
 *
 * An operation of a heap stores to one line of its domain's ledger (struct gm_ledger in
 * allocator/table.h); who wants the statistics, or would pass a peak, folds it into them first. So
 * that no peak is ever missed, the ledger takes only what stays below all of them (struct gm_room).
 *
 * Thread context: the holder of the domain's lock. Fork: forgotten with the journal.
 */
#ifndef GM_RECORDER_CACHED_LEDGER_H
#define GM_RECORDER_CACHED_LEDGER_H

#include "allocator/heap.h"
#include "recorder/record/tables.h"

/* Within a transaction whose undo area is @undo's: the ledger is empty, and one of @key (0: of
 * nothing; the next who wants it says of what). With a key, the room is known. */
void gm_ledger_fold(struct gm_undo *undo, uint8_t domain, uint32_t key);

/* The room of each class, while the ledger is one of some key. */
struct gm_room *gm_ledger_room(uint8_t domain);

/* The undo area of a domain, nothing in it. */
void gm_ledger_undo(struct gm_undo *undo, uint8_t domain);

#endif
