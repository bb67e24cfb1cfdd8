/*
 * chunks.h - the chunk pool: who may write events where.
 *
 *   fresh ──> open: a thread's ─────────┬──> closed, in a queue ──> recycled: open again
 *         └─> open: shared by the rest ─┘
 *
 * Threads own at most half of the chunks there may be; who gets none writes into the one shared
 * chunk (slot 0's). When nothing is fresh the oldest closed chunk is recycled, and the horizon
 * rises to its last stamp.
 *
 * Who wants a chunk holds the lock of a domain, or its own thread cache, so that everything here is
 * brief: memory for 16 chunks at most. Thread context: the holder of the journal lock, who also
 * writes through the slot, or knows that nobody does.
 */
#ifndef GM_RECORDER_CHUNKS_H
#define GM_RECORDER_CHUNKS_H

#include "recorder/journal/state.h"

#define GM_CHUNK_FULL (GM_CHUNK_EVENTS + 1)

/* Set the pool up for a new journal (0 or -errno), and give its private memory back. */
int gm_chunks_begin(uint32_t chunks);
void gm_chunks_end(void);

/* Close the chunk of @slot, if it has one. */
void gm_chunk_close_locked(struct gm_slot *slot);

/* Memory for the chunks to come: as much again as is used, so that threads seldom wait for the kernel.
 * Ask the helper thread for it, if little is left; where none is left take part in getting it, because
 * threads together are faster than one under the lock: any thread, without the lock. By the helper
 * thread: a part of it; false when none is left to do. */
void gm_chunks_ask(struct gm_header *header);
void gm_chunks_join(struct gm_header *header);
bool gm_chunks_ahead(struct gm_header *header);

/* Take a chunk for @slot, which has none, out of the pool, and let it write there. */
bool gm_chunk_take_locked(const struct gm_slot *slot, uint32_t *ret_index);
void gm_chunk_open_locked(struct gm_slot *slot, uint32_t index);

#endif
