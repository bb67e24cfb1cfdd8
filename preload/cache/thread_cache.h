/*
 * thread_cache.h - the thread caches of threads (thread_cache.c), as those who fill them, empty them
 * (thread_cache_flush.c) and count them see them.
 *
 * Thread context: who holds the slot's @tcache_owner; what is atomic is read without. Fork: forgotten with
 * the journal.
 */
#ifndef GM_RECORDER_CACHED_KEEP_H
#define GM_RECORDER_CACHED_KEEP_H

#include "preload/cache/cached_internal.h"

#define GM_BIN_BLOCKS 32u
#define GM_BIN_BYTES (UINT64_C(4) << 20)
#define GM_BIN_MISSES 8u		/* frees of other sizes before a thread cache is flushed */

/* To keep a block costs a sixth of what it saves if it is handed out again: one in five must be. */
#define GM_VAIN_HIT 4u
#define GM_VAIN_FULL 16u
#define GM_VAIN_TRY 32u			/* one free of so many is kept all the same, to see */

/* Kept blocks that are alike; its tally is the one of the same place. */
struct gm_bin {
	struct gm_cached *heap;		/* NULL: unused, and so is the tally */
	uint64_t stream, size;
	uint16_t module;
	uint32_t count, misses;
	uint32_t ids[GM_BIN_BLOCKS];
} __attribute__((aligned(64)));

struct gm_tcache {
	struct gm_tcache_record *record;
	struct gm_slot *slot;
	struct gm_tcache *next;		/* of the domain */
	struct gm_tcache *next_of_slot;
	uint8_t domain;
	/* Read by others. */
	_Atomic(uint32_t) kept;		/* blocks in all its bins */
	_Atomic(uint32_t) bins_used;
	_Atomic(uint32_t) less;		/* less was asked for than the statistics take for live */
	_Atomic(uint32_t) stale;	/* some bin has missed too often */
	/* Its thread's own, without @tcache_owner too. */
	_Atomic(uint32_t) vain;		/* how much of late was cached for nothing */
	_Atomic(uint32_t) tries;	/* frees since that was too much */
	struct gm_bin bins[GM_TALLIES];
};

/* The thread cache of @slot in @domain; NULL: there is none yet. */
struct gm_tcache *gm_tcache_find(struct gm_slot *slot, uint8_t domain);
/* The thread caches of @domain, a list. */
struct gm_tcache *gm_tcache_first(uint8_t domain);
/* Make this thread's. No lock held. False: it cannot have one. */
bool gm_tcache_make(uint8_t domain);

/* This thread's thread cache, if it was in that of @domain last: for a look at what may be read without
 * @tcache_owner. NULL: it is not known. */
static inline struct gm_tcache *gm_tcache_last(uint8_t domain)
{
	const struct gm_slot *slot = gm_tls.slot;
	struct gm_tcache *keep;

	if (gm_unlikely(!slot))
		return NULL;
	keep = gm_get(&slot->keep);
	return gm_likely(keep && keep->domain == domain) ? keep : NULL;
}

/* Is it to be emptied: do the statistics take more for live than is? @stale: or does it ask for it? */
static inline bool gm_tcache_is_due(const struct gm_tcache *keep, bool stale)
{
	return stale ? gm_get(&keep->stale) != 0 : gm_get(&keep->kept) || gm_get(&keep->less);
}

/* gm_tcache_empty_own, where it may have something to do. */
static inline void gm_tcache_tidy_own(struct gm_section *section, bool stale)
{
	const struct gm_slot *slot = section->change.writer.slot;
	const struct gm_tcache *keep = gm_likely(slot) ? gm_get(&slot->keep) : NULL;

	if (!keep || keep->domain != section->change.number || gm_tcache_is_due(keep, stale))
		gm_tcache_empty_own(section, stale);
}

/* May there be something for this thread? */
static inline bool gm_tcache_has(uint8_t domain)
{
	const struct gm_slot *slot = gm_tls.slot;
	const struct gm_tcache *keep;

	if (gm_unlikely(!slot))
		return false;
	keep = gm_get(&slot->keep);
	if (gm_likely(keep && keep->domain == domain))
		return gm_get(&keep->kept);
	return gm_get(&slot->keeps) != NULL;
}

/* Is a block of @size that is being freed of those that may be cached? Where sizes do not come again,
 * what is cached goes to its neighbours at the next request, at some cost: then it goes there at once. */
static inline bool gm_tcache_wants(const struct gm_cached *heap, uint64_t size)
{
	struct gm_tcache *keep;
	uint32_t tries;

	if (gm_heap_pool_of(size) || !gm_get(&heap->keeps))
		return false;
	keep = gm_tcache_last(heap->domain);
	if (gm_likely(!keep || gm_get(&keep->vain) < GM_VAIN_FULL))
		return true;
	tries = gm_get(&keep->tries) + 1;
	gm_set(&keep->tries, tries % GM_VAIN_TRY);
	return tries == GM_VAIN_TRY;
}

#endif
