/*
 * cache_heap.h - the cache's heaps (allocator/heap.h), whose records lie in the journal.
 *
 * What is served from a heap is recorded in the same step: under the domain's lock, in one
 * transaction, with the heap's change, the statistics, the usage rows and the events; or, where a
 * thread gets a block that it freed itself, in its own thread cache without the domain's lock
 * (thread_cache.c). A reader of a dead process's journal sees each of these operations wholly or
 * not at all.
 *
 *   op = gm_op_begin(GM_ACTION_ALLOC, ...)
 *   r = gm_cache_heap_alloc(heap, op, &alloc, &block)          from a free block, else -EAGAIN
 *   r = gm_cache_heap_grow(heap, op, &alloc, &block)           with the driver; the growth lock held
 *   gm_op_end(op)
 *
 *   r = gm_cache_heap_free(heap, op, block, address, &how)     pending, and free if @how says so
 *   gm_cache_heap_complete(blocks, count)                      pending ones become free
 *
 * Events: alloc; free_requested at the free and free_completed when it may be handed out again;
 * segment_alloc, segment_free; segment_map, segment_unmap of a pages heap.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's, or none; given up
 * around the backend's calls.
 */
#ifndef GM_PRELOAD_CACHE_HEAP_H
#define GM_PRELOAD_CACHE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "allocator/heap.h"
#include "recorder/journal/recorder.h"

struct gm_page_map;
struct gm_section;

struct gm_cache_pages;

struct gm_cache_heap_setup {
	const struct gm_heap_config *config;
	struct gm_page_map *map;	/* NULL: none is kept */
	const struct gm_heap_ops *ops;	/* whose arg is the heap; gm_cache_heap_records has filled in its part */
	uint32_t context;		/* id of the context with which its segments die; 0: none */
	uint32_t home;			/* id of the context of @handle */
	CUcontext handle;		/* made current for its driver calls */
	struct gm_cache_pages *pages;	/* of a pages heap (cache_pages.h); NULL: of any other */
	uint8_t domain, kind;		/* GM_KIND_DEVICE or GM_KIND_POOL */
	bool thread_cache;		/* a block just freed may go into its thread's cache */
};

/* Memory that is given back all at once, or never. */
struct gm_arena { struct gm_arena_chunk *chunks; uint8_t *at; size_t left; };

/* A private stream that waits for what was freed on the stream of @key. */
#define GM_CACHE_BEHIND 8u
struct gm_cache_behind { CUstream stream; uint64_t key; };

/* The private streams that a heap has in a context (id). */
struct gm_cache_home {
	uint32_t id;
	CUstream back;			/* segments go back to the driver in its order */
	struct gm_cache_behind behind[GM_CACHE_BEHIND];	/* what was freed and is not complete; growth lock */
};

/* Where calls of the driver for a heap are made, and what it was given back there (cache_context.c). */
struct gm_cache_at {
	_Atomic(uint32_t) home;		/* id of the context that @handle is */
	_Atomic(CUcontext) handle;	/* made current for the calls; NULL: to be found anew */
	struct gm_cache_home own;	/* the heap's private streams there; the id is unused */
	struct gm_cache_home left;	/* of a pool's heap: those in the context that it left before that ended */
	_Atomic(uint32_t) going_back, came_back;	/* segments freed on @own.back so far; of these, complete */
};

/* Of a pages heap: how its pages may move (cache_points.c, cache_pages.c, cache_await.c). */
struct gm_cache_moving {
	_Atomic(uint64_t) freed_at;	/* the point of the last free that the host has not seen complete */
	_Atomic(uint64_t) spent_ns;	/* what moving pages and waiting for them took lately */
	_Atomic(bool) impatient;	/* it grows rather than wait (gm_cache_await_pages) */
};

/* What is idle goes back, in turns of the option idle_time (cache_flush.c). */
struct gm_cache_unused {
	_Atomic(uint32_t) turns;	/* how many of them a period has; 0: one */
	_Atomic(uint32_t) gave_turn;	/* in which unused memory went back that may be missed; 0: in none */
	uint32_t turn;			/* of the period, for the helper thread */
};

#define GM_CACHE_KEPT 16u

struct gm_cache_heap {
	/* What hits read, on a line that is seldom written. */
	uint32_t number;		/* 1 .., the owner of its blocks in reuse.h; never used again */
	uint8_t domain, kind;
	bool plain;			/* sizes are rounded up to GM_GRANULE, no more */
	bool thread_cache_wanted;	/* as in its setup */
	_Atomic(bool) thread_cache;	/* a block just freed may go into its thread's cache */
	_Atomic(bool) dead;		/* dropped, or being so */
	bool suspended;			/* gm_cache_heap_suspend */
	bool put_off;			/* while it was suspended some block could have become free, and did not */
	bool seen;			/* the host has seen the GPU past the free under way; lock: the domain's */
	_Atomic(bool) ending;		/* the context @home is ending: nothing goes back to the driver any more */
	_Atomic(uint32_t) faulted;	/* the driver's sticky error: nothing is served; 0: none */
	uint32_t context;		/* as in its setup */
	uint32_t place;			/* among the living ones */

	struct gm_heap *heap __attribute__((aligned(64)));
	struct gm_heap_ops ops;
	struct gm_undo undo;
	/* Of active blocks and those in thread caches: their bytes; bytes asked for, and the peak
	 * of these. Read without the lock. */
	uint64_t live, used, used_high;
	struct gm_section *section;	/* the locked section under way; NULL: none */
	struct gm_section *grower;	/* that of the thread with the growth lock, also over its driver calls */
	/* The usage rows that were found last. */
	uint16_t module;
	bool rows_known;
	struct gm_usage *rows[3];
	struct gm_arena arena;		/* of the free sets */
	struct gm_cache_heap *next;	/* of those that were dropped; lock: heaps */
	/* Of a pages heap: unused records of blocks. Where the tables have no other left, parts of a free block can
	 * still go back to the driver. Lock: the domain's. */
	uint32_t kept[GM_CACHE_KEPT], kept_count;

	_Atomic(uint64_t) segments;	/* bytes got from the driver */
	_Atomic(uint64_t) segments_high;	/* of pages: the most of it since that was reset */
	_Atomic(uint64_t) live_lately;	/* bytes: a peak of what was live, which fades (cache_alloc.c) */
	struct gm_cache_pages *pages;	/* as in its setup; lock: growth */
	struct gm_cache_at at;
	struct gm_cache_moving moving;
	struct gm_cache_unused unused;
};

/* Is its memory in pages? It stays so when the pages are gone with its context. */
static inline bool gm_cache_heap_in_pages(const struct gm_cache_heap *heap)
{
	return heap->heap->class == &gm_pages_heap;
}

/* For a new journal: no heap yet. gm_tcache_begin comes next. */
void gm_cache_heap_begin(void);

/* Fill in the members of @ops that are the same for every heap: the tables, the lock, the events. */
void gm_cache_heap_records(struct gm_heap_ops *ops);

/* Returns 0; -ENOMEM, also where there are too many; -ENODEV (nothing is recorded), -EINVAL. */
int gm_cache_heap_new(const struct gm_cache_heap_setup *setup, struct gm_cache_heap **ret);
struct gm_cache_heap *gm_cache_heap_by_number(uint32_t number);	/* NULL: dropped */

/* The living ones, of @domain or, with GM_CACHE_ALL, of all: the first after @after, NULL to begin with.
 * NULL: that was the last. */
#define GM_CACHE_ALL 0xffu
struct gm_cache_heap *gm_cache_heap_next(const struct gm_cache_heap *after, uint8_t domain);

/* Serve a request from a thread cache or a free block. @alloc: requested, stream (its key),
 * context, stack, module, stack_of_block_only are read; address, size, tsc are filled in. Returns 0
 * and the block; -EAGAIN: no free block serves it; -ENOMEM: tables or limits; -ETIMEDOUT, -ENODEV
 * as gm_record_alloc; -E2BIG. */
int gm_cache_heap_alloc(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block);
/* The same with PyTorch's whole order of collection, growth, release and retry. -ENOMEM: out of
 * memory, or over the limit (gm_record_failure counts it in num_ooms, not this); -ENOSPC: the
 * tables are full, or there is no memory for free sets; or what driver_alloc returned. */
int gm_cache_heap_grow(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		   uint32_t *ret_block);

/* The heap that @block belongs to, and a copy of its record; NULL: @block is no cached one. */
struct gm_cache_heap *gm_cache_heap_of(uint32_t block, struct gm_block *ret_copy);

/* The same for a free: what must be known of @block before it, read without a lock. It is true of a
 * block that the caller owns and frees; whether that is so, gm_cache_heap_free finds out. */
struct gm_cache_view {
	uint64_t address, stream, requested;
	uint16_t module;		/* for which it was allocated */
	uint8_t state;
};
struct gm_cache_heap *gm_cache_heap_peek(uint32_t block, struct gm_cache_view *ret);

/* A copy of the segment that a cached block lies in; false: it is none. */
bool gm_cache_heap_segment(uint32_t block, struct gm_segment *ret_copy);

/* When a freed block may be handed out again: LATER, when the GPU is past the free; NOW; SEEN: now,
 * and the host has seen the GPU past the free; ASK: not decided yet. */
enum gm_cache_when { GM_FREE_LATER, GM_FREE_NOW, GM_FREE_SEEN, GM_FREE_ASK };

struct gm_cache_free {
	uint64_t tsc, stream;		/* @tsc 0: now, if anything is written */
	uint32_t stack;			/* GM_STACK_OF_BLOCK: the allocation's */
	/* When may it be handed out again? Called once, under no lock, when only the caller can use
	 * the block. After GM_FREE_LATER gm_cache_heap_complete may be called for it at any
	 * time. */
	enum gm_cache_when (*when)(void *arg, uint32_t block, uint32_t number, uint64_t bytes);
	void *arg;
};
/* @block, active and beginning at @address, is freed. Returns 0; -ENOENT: it is not active or
 * begins elsewhere (freed already, an interior pointer): nothing changed; -ENODEV. Where a lock cannot be had the free
 * is queued: whoever has the domain's lock next does it (recorder/record/tables.h). */
int gm_cache_heap_free(struct gm_cache_heap *heap, uint64_t op, uint32_t block, uint64_t address,
		   const struct gm_cache_free *how);

/* The same from inside another hook of the same thread, perhaps in a signal handler. The free is always queued. Returns
 * false where gm_cache_heap_free returned -ENOENT. Takes no lock. */
bool gm_cache_heap_free_inside(uint32_t block, uint64_t address);

/* Whoever does such a free asks @fn when the block may be handed out again: as gm_cache_free.when, under the domain's
 * lock. */
typedef enum gm_cache_when gm_cache_ask_fn(uint32_t block, uint32_t number, uint64_t bytes);
void gm_cache_heap_ask(gm_cache_ask_fn *fn);

/* Pending blocks, of any heaps, become free. Returns how many did, from the first on: less than
 * @count where a lock could not be had. The others stay pending until it is called for them
 * again. */
struct gm_reuse_item;
size_t gm_cache_heap_complete(const struct gm_reuse_item *items, size_t count);

/* Give idle segments back to the driver (ops.synchronize first): bytes given back. The growth lock held. */
uint64_t gm_cache_heap_empty(struct gm_cache_heap *heap);
/* The same without ops.synchronize. */
uint64_t gm_cache_heap_release(struct gm_cache_heap *heap);
/* Give back what nobody has used since gm_cache_heap_begin_period: @most bytes at most, or one segment. Returns the
 * bytes. The growth lock held. */
uint64_t gm_cache_heap_release_unused(struct gm_cache_heap *heap, uint64_t most);
void gm_cache_heap_begin_period(struct gm_cache_heap *heap);
/* Of a pages heap: has @stream a free block of its own of @least bytes? */
bool gm_cache_heap_freed_on(struct gm_cache_heap *heap, uint64_t stream, uint64_t least);
/* Of a pages heap: free blocks of stream @from that were freed up to the moment @until are @to's from
 * now on, whose work comes after that. Returns the bytes. */
uint64_t gm_cache_heap_take_over(struct gm_cache_heap *heap, uint64_t from, uint64_t to, uint64_t until);
/* Bytes of segments that are wholly free now, which gm_cache_heap_empty would give back. O(1),
 * unless thread caches have to be flushed first. */
uint64_t gm_cache_heap_idle_bytes(const struct gm_cache_heap *heap);
uint64_t gm_cache_heap_live_bytes(const struct gm_cache_heap *heap);	/* active blocks, and cached ones */
uint64_t gm_cache_heap_largest_free(struct gm_cache_heap *heap);	/* largest free block */
/* Bytes that were asked for, of what is active now, and their peak since the last reset: as the
 * driver's pools count theirs. */
void gm_cache_heap_used(const struct gm_cache_heap *heap, uint64_t *ret_used, uint64_t *ret_high);
void gm_cache_heap_reset_high(struct gm_cache_heap *heap);
/* As in struct gm_heap_config, whose names these are. */
void gm_cache_heap_set_limit(struct gm_cache_heap *heap, uint64_t limit, uint64_t shared_most);

/* @on: the heap's context is about to end. From then on the driver may give its addresses to
 * others, so that nothing is handed out (-ENODEV) and nothing becomes free, although frees succeed.
 * Else: it did not end. */
void gm_cache_heap_suspend(struct gm_cache_heap *heap, bool on);

/* The driver gave [@address, +@bytes) of @domain's device to the program while some heap is
 * suspended: blocks of such a heap there leave @map. */
void gm_cache_heap_address_reused(struct gm_page_map *map, uint8_t domain, uint64_t address, uint64_t bytes);

/* The heap's context ended, with all its segments: their records end, with events whose stack is
 * @stack as in gm_record_free_stack, and so does the heap (calls with its pointer return -ENODEV).
 * gm_record_context_end leaves a heap's segments to this. Returns how many blocks were live. */
unsigned int gm_cache_heap_drop(struct gm_cache_heap *heap, uint64_t tsc, uint32_t stack);

#endif
