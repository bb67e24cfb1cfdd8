/*
 * thread_cache.h - the thread caches of a domain: filled and used (thread_cache.c), made and
 * emptied (thread_cache_flush.c).
 *
 * Thread context: the thread that holds the slot's @tcache_owner; atomic members are read without
 * it.
 */
#ifndef GM_THREAD_CACHE_H
#define GM_THREAD_CACHE_H

#include "preload/cache/cache_heap_internal.h"

#define GM_BIN_BLOCKS 32u
#define GM_BIN_BYTES (UINT64_C(4) << 20)

#define GM_TCACHE_MOVES 128u

/* To put a block into the cache costs a sixth of what is saved when it is handed out again: one in five
 * must be. */
#define GM_VAIN_HIT 4u
#define GM_VAIN_FULL 16u
#define GM_VAIN_TRY 32u			/* one free of so many is cached nevertheless, as a trial */

/* Cached blocks of one heap, stream, size and module; the tally with the same index counts them. */
struct gm_bin {
	struct gm_cache_heap *heap;		/* NULL: unused, and so is the tally */
	uint64_t stream, size;
	uint16_t module;
	uint32_t count;
	uint32_t ids[GM_BIN_BLOCKS];
} __attribute__((aligned(64)));

struct gm_moved { uint64_t op; uint32_t id; };

struct gm_tcache {
	struct gm_tcache_record *record;
	struct gm_slot *slot;
	struct gm_tcache *next;		/* of the domain */
	struct gm_tcache *next_of_slot;
	uint8_t domain;
	/* Read by others. */
	_Atomic(uint32_t) blocks;	/* blocks in all its bins */
	_Atomic(uint32_t) bins_used;
	_Atomic(uint64_t) seen;		/* operations of its thread when gm_tcache_flush_unused looked last */
	_Atomic(uint32_t) moves;	/* entries of @moved */
	/* For its thread alone, which needs no @tcache_owner for them. */
	_Atomic(uint32_t) vain;		/* rises with blocks that were cached and not used, lately */
	_Atomic(uint32_t) tries;	/* frees since that reached GM_VAIN_FULL */
	struct gm_bin bins[GM_TALLIES];
	/* Blocks that were handed out to another stack than the one for which they count (recorder/record/sites.h), or
	 * for fewer bytes, with the number of that operation. Stale where the block has another number by now. */
	struct gm_moved moved[GM_TCACHE_MOVES];
};

/* ---- thread_cache.c ---- */

/* Without a lock: a block of this thread's cache serves @alloc; it is handed out, recorded and described.
 * GM_NONE: there is none. @op as in gm_cache_heap_alloc. */
uint32_t gm_tcache_take(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc);
/* Without a lock: a block that the caller is freeing (GM_BLOCK_FREEING) and that may be handed out
 * (gm_tcache_wants) goes into its cache. False: nothing was done. */
bool gm_tcache_put(struct gm_cache_heap *heap, uint32_t id, uint64_t op,
		   const struct gm_cache_free *how);

/* ---- thread_cache_flush.c ---- */

/* For a new journal: there are none yet; and who reads its statistics has them flushed, and frees
 * that could not have their lock done by @free_late (tables.h). */
typedef bool gm_free_late_fn(const struct gm_change *change, uint32_t id);
void gm_tcache_begin(gm_free_late_fn *free_late);

/* With the domain's lock, between transactions: put cached blocks into the free sets, in
 * transactions of their own. Those of this thread's cache; of all threads' caches; those of @heap.
 * A thread that cannot be kept out of its cache keeps its blocks. */
void gm_tcache_empty_own(struct gm_section *section);
void gm_tcache_empty_all(struct gm_section *section);
void gm_tcache_drop(struct gm_cache_heap *heap, struct gm_section *section);

/* Empty all thread caches of @domain: called without a lock, also free what waits for its lock; with the lock of
 * @change, before a transaction of it. */
void gm_tcache_flush(uint8_t domain);
void gm_tcache_flush_locked(const struct gm_change *change);
/* Without a lock: the same for the caches whose threads have begun no operation since this was called last. */
void gm_tcache_flush_unused(uint8_t domain);

/* Has another thread a thread cache in the domain? */
bool gm_tcache_others(const struct gm_section *section);
/* Without a lock: is anything cached in the domain, or does a free wait for its lock? */
bool gm_tcache_any(uint8_t domain);

/* The thread cache of @slot in @domain; NULL: there is none yet. */
struct gm_tcache *gm_tcache_find(struct gm_slot *slot, uint8_t domain);
/* The thread caches of @domain, a list. */
struct gm_tcache *gm_tcache_first(uint8_t domain);
/* Make this thread's thread cache in @domain. No lock held. False: it cannot have one. */
bool gm_tcache_make(uint8_t domain);

/* This thread's thread cache in @domain, if that is the one it used last: to read what needs no
 * @tcache_owner. NULL: it is not. */
static inline struct gm_tcache *gm_tcache_last(uint8_t domain)
{
	const struct gm_slot *slot = gm_tls.slot;
	struct gm_tcache *tcache;

	if (gm_unlikely(!slot))
		return NULL;
	tcache = gm_get(&slot->tcache);
	return gm_likely(tcache && tcache->domain == domain) ? tcache : NULL;
}

/* Is the block of @moved still as it was handed out then? What others do with other blocks is no data race: any answer
 * will do. */
__attribute__((no_sanitize_thread))
static inline bool gm_tcache_is_moved(const struct gm_moved *moved)
{
	return __atomic_load_n(&gm_rec.blocks[moved->id].op, __ATOMIC_RELAXED) == moved->op;
}

/* Do the statistics count more as live than there is, so that the cache has to be emptied? */
static inline bool gm_tcache_is_due(const struct gm_tcache *tcache)
{
	return gm_get(&tcache->blocks) || gm_get(&tcache->moves);
}

/* gm_tcache_empty_own, where it may have something to do. */
static inline void gm_tcache_tidy_own(struct gm_section *section)
{
	const struct gm_slot *slot = section->change.writer.slot;
	const struct gm_tcache *tcache = gm_likely(slot) ? gm_get(&slot->tcache) : NULL;

	if (!tcache || tcache->domain != section->change.number || gm_tcache_is_due(tcache))
		gm_tcache_empty_own(section);
}

/* May this thread's cache have a block? */
static inline bool gm_tcache_has(uint8_t domain)
{
	const struct gm_slot *slot = gm_tls.slot;
	const struct gm_tcache *tcache;

	if (gm_unlikely(!slot))
		return false;
	tcache = gm_get(&slot->tcache);
	if (gm_likely(tcache && tcache->domain == domain))
		return gm_get(&tcache->blocks);
	return gm_get(&slot->tcaches) != NULL;
}

/* May a block of @size that is being freed go into the thread cache? Where sizes do not come again,
 * cached blocks are flushed at the next request, at some cost: then they are not cached in the
 * first place. */
static inline bool gm_tcache_wants(const struct gm_cache_heap *heap, uint64_t size)
{
	struct gm_tcache *tcache;
	uint32_t tries;

	if (gm_heap_pool_of(size) || !gm_get(&heap->thread_cache))
		return false;
	tcache = gm_tcache_last(heap->domain);
	if (gm_likely(!tcache || gm_get(&tcache->vain) < GM_VAIN_FULL))
		return true;
	tries = gm_get(&tcache->tries) + 1;
	gm_set(&tcache->tries, tries % GM_VAIN_TRY);
	return tries == GM_VAIN_TRY;
}

#endif
