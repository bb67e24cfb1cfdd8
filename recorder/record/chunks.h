/*
 * chunks.h - the chunk pool: who may write events where.
 *
 *   fresh ──> open: a thread's ─────────┬──> closed, in a queue ──> recycled: open again
 *         └─> open: shared by the rest ─┘
 *
 * Threads own at most half of all chunks; a thread that gets none writes into the one shared
 * chunk (slot 0's). When no fresh chunk is left, the oldest closed one is recycled, and the horizon
 * rises to its last stamp.
 *
 * A thread that wants a chunk holds the lock of a domain, or its own thread cache, so that
 * everything here is short: it gets memory for 16 chunks at most. Thread context: the holder of the
 * journal lock, who also writes through the slot, or knows that no thread does.
 */
#ifndef GM_RECORDER_CHUNKS_H
#define GM_RECORDER_CHUNKS_H

#include "recorder/journal/state.h"

#define GM_CHUNK_FULL (GM_CHUNK_EVENTS + 1)

/* Set the pool up for a new journal (0 or -errno); and give its private memory back. */
int gm_chunks_begin(uint32_t chunks);
void gm_chunks_end(void);

/* Close the chunk of @slot, if it has one. */
void gm_chunk_close_locked(struct gm_slot *slot);

/* Memory for coming chunks: as much again as is in use, so that threads seldom wait for the kernel.
 * gm_chunks_ask: ask the helper thread for it, where little is left. gm_chunks_join: where none is
 * left, take part in getting it, because several threads are faster than one that holds the lock.
 * Both: any thread, without the lock. gm_chunks_ahead, by the helper thread: get a part of it;
 * false when nothing is left to do. */
void gm_chunks_ask(struct gm_header *header);
void gm_chunks_join(struct gm_header *header);
bool gm_chunks_ahead(struct gm_header *header);

/* gm_chunk_take_locked: take a chunk out of the pool for @slot, which has none; false: there is
 * none. Then gm_chunk_open_locked: make it the slot's. */
bool gm_chunk_take_locked(const struct gm_slot *slot, uint32_t *ret_index);
void gm_chunk_open_locked(struct gm_slot *slot, uint32_t index);

#endif
