/*
 * cached_keep.h - the shards of threads (cached_keep.c), as those who fill them, empty them
 * (cached_flush.c) and count them see them.
 *
 * Thread context: who holds the slot's @keeping; what is atomic is read without. Fork: forgotten with
 * the journal.
 */
#ifndef GM_RECORDER_CACHED_KEEP_H
#define GM_RECORDER_CACHED_KEEP_H

#include "recorder/cached_internal.h"

#define GM_BIN_BLOCKS 32u
#define GM_BIN_BYTES (UINT64_C(4) << 20)
#define GM_BIN_MISSES 8u		/* frees of other sizes before a shard is flushed */

/* To keep a block costs a sixth of what it saves if it is handed out again: one in five must be. */
#define GM_VAIN_HIT 4u
#define GM_VAIN_FULL 16u
#define GM_VAIN_TRY 16u			/* one free of so many is kept all the same, to see */

/* Kept blocks that are alike; its tally is the one of the same place. */
struct gm_bin {
	struct gm_cached *heap;		/* NULL: unused, and so is the tally */
	uint64_t stream, size;
	uint16_t module;
	uint32_t count, misses;
	uint32_t ids[GM_BIN_BLOCKS];
} __attribute__((aligned(64)));

struct gm_keep {
	struct gm_shard *record;
	struct gm_slot *slot;
	struct gm_keep *next;		/* of the domain */
	struct gm_keep *next_of_slot;
	uint8_t domain;
	/* Read by others. */
	_Atomic(uint32_t) kept;		/* blocks in all its bins */
	_Atomic(uint32_t) bins_used;
	_Atomic(uint32_t) less;		/* less was asked for than the statistics take for live */
	_Atomic(uint32_t) stale;	/* some bin has missed too often */
	/* Its thread's own, without @keeping too. */
	_Atomic(uint32_t) vain;		/* how much of late was kept for nothing */
	_Atomic(uint32_t) tries;	/* frees since that was too much */
	struct gm_bin bins[GM_TALLIES];
};

/* The shard of @slot in @domain; NULL: there is none yet. */
struct gm_keep *gm_keep_find(struct gm_slot *slot, uint8_t domain);
/* The shards of @domain, a list. */
struct gm_keep *gm_keep_first(uint8_t domain);
/* Make this thread's. No lock held. False: it cannot have one. */
bool gm_keep_make(uint8_t domain);

#endif
