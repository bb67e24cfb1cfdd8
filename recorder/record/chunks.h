/*
 * chunks.h - the chunk pool: gives each thread a chunk of the history to write its events into.
 *
 *   fresh ──> open: a thread's ─────────┬──> closed, in a queue ──> recycled: open again
 *         └─> open: shared by the rest ─┘
 *
 * Threads own at most half of all chunks. A thread without a chunk of its own writes into the one shared
 * chunk, which belongs to slot 0. When no fresh chunk is left, the oldest closed chunk is recycled, and
 * the horizon rises to that chunk's last stamp.
 *
 * A thread that takes a chunk holds a domain's lock or its own thread cache, so every function here is
 * short: it backs at most 16 chunks by memory.
 *
 * Thread context: functions named _locked: the holder of the journal lock, which also writes through the
 * slot or knows that no thread does. Signal context: none.
 */
#ifndef GM_RECORDER_CHUNKS_H
#define GM_RECORDER_CHUNKS_H

#include "recorder/journal/state.h"

#define GM_CHUNK_FULL (GM_CHUNK_EVENTS + 1)

/* Set up the pool for a new journal of at most @chunks chunks. Returns 0 or -errno. gm_chunks_end frees the
 * pool's private memory. */
int gm_chunks_begin(uint32_t chunks);
void gm_chunks_end(void);

/* Close the chunk of @slot, if it has one. */
void gm_chunk_close_locked(struct gm_slot *slot);

/* Back chunks by memory ahead of need: as much again as is in use, so that threads seldom wait for the kernel.
 * gm_chunks_ask: ask the helper thread to do it when little backed memory is left. gm_chunks_join: help with
 * it when none is left, because several threads are faster than one that holds the lock. Both: any thread
 * that does not hold the journal lock. gm_chunks_ahead: back one part; called by the helper thread. Returns
 * false when there is nothing more to do. */
void gm_chunks_ask(struct gm_header *header);
void gm_chunks_join(struct gm_header *header);
bool gm_chunks_ahead(struct gm_header *header);

/* gm_chunk_take_locked: take a chunk for @slot, which has none, out of the pool. Returns false when @slot can get
 * none. gm_chunk_open_locked: open that chunk for @slot. */
bool gm_chunk_take_locked(const struct gm_slot *slot, uint32_t *ret_index);
void gm_chunk_open_locked(struct gm_slot *slot, uint32_t index);

#endif
