/*
 * thread_cache.h - the thread caches of a domain: filled and used (thread_cache.c), made and flushed
 * (thread_cache_flush.c).
 *
 * Thread context: the thread that holds @tcache_owner of the slot; atomic members are also read without it.
 */
#ifndef GM_THREAD_CACHE_H
#define GM_THREAD_CACHE_H

#include "preload/cache/cache_heap_internal.h"

#define GM_BIN_BLOCKS 32u
#define GM_BIN_BYTES (UINT64_C(4) << 20)

#define GM_TCACHE_MOVES 128u

/* Caching a block costs a sixth of what a later hit saves, so at least one in five cached blocks must be hit. */
#define GM_VAIN_HIT 4u
#define GM_VAIN_FULL 16u
#define GM_VAIN_TRY 32u			/* as a trial, one free of this many is cached nevertheless */

/* Cached blocks of one heap, stream, size and module, counted by @tally, which has the same index. */
struct gm_bin {
	struct gm_cache_heap *heap;		/* NULL: bin and tally are unused */
	struct gm_tally *tally;
	uint64_t stream, size;
	uint16_t module;
	uint32_t count;
	uint32_t ids[GM_BIN_BLOCKS];
} __attribute__((aligned(64)));

struct gm_moved { uint64_t op; uint32_t id; };

struct gm_tcache {
	struct gm_tcache_record *record;
	struct gm_slot *slot;
	struct gm_tcache *next;		/* next thread cache of the domain */
	struct gm_tcache *next_of_slot;
	struct gm_domain *record_of;	/* the record of @domain */
	uint8_t domain;
	/* Other threads read these. */
	_Atomic(uint32_t) blocks;	/* blocks in all its bins */
	_Atomic(uint32_t) bins_used;
	_Atomic(uint64_t) seen;		/* operations of its thread at the last gm_tcache_flush_unused */
	_Atomic(uint32_t) moves;	/* entries of @moved */
	/* Only its own thread uses these, without @tcache_owner. */
	_Atomic(uint32_t) vain;		/* rises with cached blocks that were flushed unused, falls with hits */
	_Atomic(uint32_t) tries;	/* frees since @vain reached GM_VAIN_FULL */
	struct gm_bin bins[GM_TALLIES];
	/* Blocks that were handed out to another stack than the one they count for (recorder/record/sites.h), or for
	 * fewer bytes, with the number of that operation. An entry is stale if its block has another number by
	 * now. */
	struct gm_moved moved[GM_TCACHE_MOVES];
};

/* ---- thread_cache.c ---- */

/* Serve @alloc from this thread's cache: hand out, record and describe a block. Takes no lock. @op as in
 * gm_cache_heap_alloc. GM_NONE: the cache has none. */
uint32_t gm_tcache_take(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc);
/* Put a block that the caller is freeing (GM_BLOCK_FREEING) and that may be handed out (gm_tcache_wants) into this
 * thread's cache. Takes no lock, unless the thread has no cache in the domain yet. Returns false if nothing was
 * done. */
bool gm_tcache_put(struct gm_cache_heap *heap, uint32_t id, uint64_t op,
		   const struct gm_cache_free *how);

/* ---- thread_cache_flush.c ---- */

/* Begin with no thread caches, for a new journal. Readers of its statistics flush the caches through struct
 * gm_caches. @free_late does the frees that could not take their lock (tables.h). */
typedef bool gm_free_late_fn(const struct gm_change *change, uint32_t id);
void gm_tcache_begin(gm_free_late_fn *free_late);

/* Put cached blocks into the free sets, each in a transaction of its own: those of this thread's cache; of all
 * threads' caches; those of @heap. The domain's lock is held, and no transaction is open. A thread that cannot be
 * kept out of its cache keeps its blocks. */
void gm_tcache_empty_own(struct gm_section *section);
void gm_tcache_empty_all(struct gm_section *section);
void gm_tcache_drop(struct gm_cache_heap *heap, struct gm_section *section);

/* Empty all thread caches of @domain. gm_tcache_flush is called without a lock, and also does the frees that wait for
 * the domain's lock. gm_tcache_flush_locked is called with the lock of @change, before a transaction of it. */
void gm_tcache_flush(uint8_t domain);
void gm_tcache_flush_locked(const struct gm_change *change);
/* Do the same for the caches whose threads have begun no operation since the last call. Called without a lock. */
void gm_tcache_flush_unused(uint8_t domain);

/* Has any other thread a thread cache in the domain? */
bool gm_tcache_others(const struct gm_section *section);
/* Is anything cached in the domain, or does a free wait for its lock? Needs no lock. */
bool gm_tcache_any(uint8_t domain);

/* Return the thread cache of @slot in @domain; NULL: there is none yet. */
struct gm_tcache *gm_tcache_find(struct gm_slot *slot, uint8_t domain);
/* Return the first of the list of thread caches of @domain. */
struct gm_tcache *gm_tcache_first(uint8_t domain);
/* Make this thread's thread cache in @domain. No lock held. Returns false if the thread cannot have one. */
bool gm_tcache_make(uint8_t domain);

/* Return this thread's thread cache in @domain if the thread used it last, else NULL. For members that need no
 * @tcache_owner. */
static inline struct gm_tcache *gm_tcache_last(uint8_t domain)
{
	const struct gm_slot *slot = gm_tls.slot;
	struct gm_tcache *tcache;

	if (gm_unlikely(!slot))
		return NULL;
	tcache = gm_get(&slot->tcache);
	return gm_likely(tcache && tcache->domain == domain) ? tcache : NULL;
}

/* Is the block of @moved still handed out by that operation? Other threads may change other blocks meanwhile; that is
 * no data race, because any answer will do for them. */
__attribute__((no_sanitize_thread))
static inline bool gm_tcache_is_moved(const struct gm_moved *moved)
{
	return __atomic_load_n(&gm_rec.blocks[moved->id].op, __ATOMIC_RELAXED) == moved->op;
}

/* Does the cache have blocks or moves, so that it must be emptied before the statistics are exact? */
static inline bool gm_tcache_is_due(const struct gm_tcache *tcache)
{
	return gm_get(&tcache->blocks) || gm_get(&tcache->moves);
}

/* Call gm_tcache_empty_own if it may have something to do. */
static inline void gm_tcache_tidy_own(struct gm_section *section)
{
	const struct gm_slot *slot = section->change.writer.slot;
	const struct gm_tcache *tcache = gm_likely(slot) ? gm_get(&slot->tcache) : NULL;

	if (!tcache || tcache->domain != section->change.number || gm_tcache_is_due(tcache))
		gm_tcache_empty_own(section);
}

/* May this thread's cache in @domain contain a block? */
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

/* Shall a block of @size that is being freed go into the thread cache? If sizes do not recur, the next request
 * flushes the cached blocks at some cost, so such a thread caches none, but for a trial now and then. */
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
