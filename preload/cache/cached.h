/*
 * cached.h - a heap of cached segments (allocator/heap.h) whose records lie in the journal.
 *
 * What is served from a cache is recorded where it is decided: one lock of the domain, one
 * transaction, the heap's change, the statistics, the usage rows and the events together; or, where
 * a thread gets what it freed last, its own thread cache and no lock of the domain (thread_cache.c). A
 * reader of a dead process's journal sees each of these operations wholly or not at all.
 *
 *   op = gm_op_begin(GM_ACTION_ALLOC, ...)
 *   r = gm_cached_alloc(heap, op, &alloc, &block)          from a free block, else -EAGAIN
 *   r = gm_cached_grow(heap, op, &alloc, &block)           with the driver; the growth lock held
 *   gm_op_end(op)
 *
 *   r = gm_cached_free(heap, op, block, address, &how)     pending, and free if @how says so
 *   gm_cached_complete(blocks, count)                      pending ones become free
 *
 * Events: alloc; free_requested at the free and free_completed when it may be handed out again;
 * segment_alloc, segment_free. Thread context: any, inside a hook. Signal context: none. Lock:
 * the domain's, or none; given up around the backend's calls.
 */
#ifndef GM_CACHED_H
#define GM_CACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/heap.h"
#include "recorder/journal/recorder.h"

struct gm_cached;
struct gm_page_map;

struct gm_cached_setup {
	const struct gm_heap_config *config;
	struct gm_page_map *map;	/* NULL: none is filled in */
	/* The driver, called without the domain's lock; as struct gm_heap_ops. */
	int (*driver_alloc)(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address);
	void (*driver_free)(void *arg, uint64_t address, uint64_t bytes, uint64_t stream);
	bool (*may_go)(void *arg, uint64_t stream);	/* with the domain's lock; NULL: any may */
	void (*settle)(void *arg);
	void *arg;
	uint64_t handle;		/* pool of its segments; 0 none */
	uint32_t context;		/* context that its segments die with; 0: outlives contexts */
	uint8_t domain, kind;		/* GM_KIND_DEVICE or GM_KIND_POOL */
	bool thread_cache;		/* a block just freed may go into its thread's cache */
};

/* For a new journal: no heap yet. */
void gm_cached_begin(void);

/* Returns 0; -ENOMEM, -ENODEV (nothing is recorded), -EINVAL. Its number (1 ..) is the owner of
 * its blocks in reuse.h, never used again. */
int gm_cached_new(const struct gm_cached_setup *setup, struct gm_cached **ret);
uint32_t gm_cached_number(const struct gm_cached *heap);
uint32_t gm_cached_context(const struct gm_cached *heap);	/* as in its setup */
struct gm_cached *gm_cached_by_number(uint32_t number);	/* NULL: gone */

/* @alloc: requested, stream (the heap's key), context, stack, module, stack_of_block_only are
 * read; address, size, tsc are filled in. Returns 0 and the block; -EAGAIN: no free block serves
 * it; -ENOMEM: tables or limits; -ETIMEDOUT, -ENODEV as gm_record_alloc; -E2BIG. */
int gm_cached_alloc(struct gm_cached *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block);
/* The same with PyTorch's whole order of collection, growth, release and retry. -ENOMEM: out of
 * memory, or over the limit (gm_record_failure counts it in num_ooms, not this); -ENOSPC: the
 * tables are full, or there is no memory for free sets; or what driver_alloc returned. */
int gm_cached_grow(struct gm_cached *heap, uint64_t op, struct gm_alloc *alloc,
		   uint32_t *ret_block);

/* The heap that @block belongs to, and a copy of its record; NULL: @block is no cached one.
 * Without a place for the copy no lock is taken: for the free of a live block, whose heap does not
 * change. */
struct gm_cached *gm_cached_of(uint32_t block, struct gm_block *ret_copy);

/* The same for a free: what must be known of @block before it, read without a lock. It is true of
 * a block that is the caller's; of any other gm_cached_free decides. */
struct gm_cached_view {
	uint64_t address, stream, requested;
	void *arg;			/* of the heap's setup */
	uint32_t number;		/* the heap's */
	uint8_t state;
};
struct gm_cached *gm_cached_look(uint32_t block, struct gm_cached_view *ret);

/* A copy of the segment that a cached block lies in; false: it is none. */
bool gm_cached_segment(uint32_t block, struct gm_segment *ret_copy);

struct gm_cached_free {
	uint64_t tsc, stream;		/* @tsc 0: now, if anything is written */
	uint32_t stack;			/* GM_STACK_OF_BLOCK: the allocation's */
	/* May it be handed out again at once? Asked under no lock, once, when the block is the
	 * caller's alone. If not, gm_cached_complete may be called for it from then on. */
	bool (*now)(void *arg, uint32_t block, uint32_t number, uint64_t bytes);
	void *arg;
};
/* @block, active and beginning at @address, is freed. Returns 0; -ENOENT: it is not active or
 * begins elsewhere (freed already, an interior pointer): nothing changed; -ETIMEDOUT, -ENODEV. */
int gm_cached_free(struct gm_cached *heap, uint64_t op, uint32_t block, uint64_t address,
		   const struct gm_cached_free *how);

/* Pending blocks, of any heaps, become free. Returns how many of the first: less than @count where a
 * lock could not be had. The others stay pending until it is called for them again. */
struct gm_reuse_item;
size_t gm_cached_complete(const struct gm_reuse_item *items, size_t count);

/* Give idle segments back to the driver (settle first): bytes given back. The growth lock held. */
uint64_t gm_cached_empty(struct gm_cached *heap);
/* The same of what may go by what is known already. */
uint64_t gm_cached_release(struct gm_cached *heap);
/* Bytes of segments that are wholly free now: what gm_cached_empty would give back. O(1), or the
 * thread caches are flushed first. */
uint64_t gm_cached_idle_bytes(const struct gm_cached *heap);
uint64_t gm_cached_live_bytes(const struct gm_cached *heap);	/* of active and cached blocks */
uint64_t gm_cached_largest_free(struct gm_cached *heap);	/* largest free block */
/* Bytes asked for by what is active now, and their peak since the last reset: as the driver's
 * pools count theirs. */
void gm_cached_used(const struct gm_cached *heap, uint64_t *ret_used, uint64_t *ret_high);
void gm_cached_reset_high(struct gm_cached *heap);
void gm_cached_set_limit(struct gm_cached *heap, uint64_t limit_bytes);

/* Its context is about to end (@on): from then on the driver may give its addresses to others, and what
 * the heap has changes no hands any more, though frees succeed. Nothing is handed out (-ENODEV). Or it
 * did not end. */
void gm_cached_hold(struct gm_cached *heap, bool on);

/* The driver gave [@address, +@bytes) of @domain's device to somebody while some heap is held: what that
 * had there in @map it has no more. */
void gm_cached_address_reused(struct gm_page_map *map, uint8_t domain, uint64_t address, uint64_t bytes);

/* Its context ended, with all its segments: records go, with their events, that have @stack as
 * gm_record_free_stack has it; the heap with them (its
 * pointer stays good: -ENODEV). gm_record_context_end leaves a heap's segments alone. Returns how
 * many blocks were live. */
unsigned int gm_cached_drop(struct gm_cached *heap, uint64_t op, uint64_t tsc, uint32_t stack);

/* Count violations, of one or of all there are; 0 if sound. */
int gm_cached_check(struct gm_cached *heap);
int gm_cached_check_all(void);

#endif
