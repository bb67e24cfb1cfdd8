/*
 * cache_heap.h - the cache's heaps (allocator/heap.h), whose records lie in the journal.
 *
 * An allocation or free is recorded in the same step in which the heap serves it. Usually that is one transaction
 * under the domain's lock: it contains the heap's change, the statistics, the usage rows and the events. If a thread
 * gets a block that it freed itself, the step happens in its own thread cache, without the domain's lock
 * (thread_cache.c). A reader of a dead process's journal sees each of these operations wholly or not at all.
 *
 *   op = gm_op_begin(GM_ACTION_ALLOC, ...)
 *   r = gm_cache_heap_alloc(heap, op, &alloc, &block)          from a free block, else -EAGAIN
 *   r = gm_cache_heap_grow(heap, op, &alloc, &block)           with the driver; the growth lock held
 *   gm_op_end(op)
 *
 *   r = gm_cache_heap_free(heap, op, block, address, &how)     pending, or free at once if @how says so
 *   gm_cache_heap_complete(blocks, count)                      pending blocks become free
 *
 * Events: alloc; free_requested at the free, and free_completed when the block may be handed out again;
 * segment_alloc, segment_free; segment_map, segment_unmap of a pages heap.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's, or none; released during the
 * backend's calls.
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
	struct gm_page_map *map;	/* NULL: no map */
	const struct gm_heap_ops *ops;	/* copied, with the heap as @arg; filled in by gm_cache_heap_records */
	uint32_t context;		/* id of the context with which its segments end; 0: none */
	uint32_t home;			/* id of the context of @handle */
	CUcontext handle;		/* made current for the heap's driver calls */
	struct gm_cache_pages *pages;	/* its pages (cache_pages.h); NULL: not a pages heap */
	uint8_t domain, kind;		/* GM_KIND_DEVICE or GM_KIND_POOL */
	bool thread_cache;		/* a block just freed may go into its thread's cache */
};

/* Memory whose parts are never freed singly, but all at once or never. */
struct gm_arena { struct gm_arena_chunk *chunks; uint8_t *at; size_t left; };

/* A private stream that waits for the frees on the stream of @key. */
#define GM_CACHE_BEHIND 8u
struct gm_cache_behind { CUstream stream; uint64_t key; };

/* The private streams that a heap has in a context (id). */
struct gm_cache_home {
	uint32_t id;
	CUstream back;			/* segments are freed in its order */
	struct gm_cache_behind behind[GM_CACHE_BEHIND];	/* may have incomplete frees; lock: growth */
};

/* The context in which a heap's driver calls are made, and the segments that were freed there (cache_context.c). */
struct gm_cache_at {
	_Atomic(uint32_t) home;		/* id of the context @handle */
	_Atomic(CUcontext) handle;	/* made current for the calls; NULL: choose another (gm_cache_home_find) */
	struct gm_cache_home own;	/* private streams in @home; its id is unused */
	struct gm_cache_home left;	/* pool's heap: those in the context that it left before that ended */
	_Atomic(uint32_t) going_back, came_back;	/* segments freed on @own.back; of these, complete */
};

/* Of a pages heap: when its pages may move (cache_points.c, cache_pages.c, cache_await.c). */
struct gm_cache_moving {
	_Atomic(uint64_t) freed_at;	/* point of the last free that the host has not seen complete */
	_Atomic(uint64_t) spent_ns;	/* time spent lately on moving pages and waiting for them */
	_Atomic(bool) impatient;	/* it grows instead of waiting (gm_cache_await_pages) */
};

/* How idle memory goes back, in turns of the option idle_time (cache_flush.c). */
struct gm_cache_unused {
	_Atomic(uint32_t) turns;	/* turns in a period; 0: one */
	_Atomic(uint32_t) gave_turn;	/* turn in which unused memory went back, which may be missed; 0: none */
	uint32_t turn;			/* turns since the period began; helper thread only */
};

#define GM_CACHE_KEPT 16u

struct gm_cache_heap {
	/* Read by cache hits, on a cache line that is seldom written. */
	uint32_t number;		/* 1, 2, ...: the owner of its blocks in reuse.h; never used again */
	uint8_t domain, kind;
	bool plain;			/* sizes are rounded up to GM_GRANULE and no further */
	bool thread_cache_wanted;	/* as in its setup */
	_Atomic(bool) thread_cache;	/* a block just freed may go into its thread's cache */
	_Atomic(bool) dead;		/* dropped, or being dropped */
	bool suspended;			/* gm_cache_heap_suspend */
	bool put_off;			/* a block that could become free stayed pending while the heap was suspended */
	bool seen;			/* the GPU is known to have passed the free under way; lock: the domain's */
	_Atomic(bool) ending;		/* context @home is ending: nothing goes back to the driver */
	_Atomic(uint32_t) faulted;	/* the driver's sticky error, because of which nothing is served; 0: none */
	uint32_t context;		/* as in its setup */
	uint32_t place;			/* index among the living heaps */

	struct gm_heap *core __attribute__((aligned(64)));	/* places blocks; knows no locks, no driver */
	struct gm_heap_ops ops;
	struct gm_undo undo;
	/* Of active blocks and blocks in thread caches: their bytes; the bytes requested for them, and the peak of
	 * these. Read without the lock. */
	uint64_t live, used, used_high;
	struct gm_section *section;	/* the locked section under way; NULL: none */
	struct gm_section *grower;	/* section of the thread with the growth lock, also during its driver calls */
	/* The usage rows that were found last, and their module. */
	uint16_t module;
	bool rows_known;
	struct gm_usage *rows[3];
	struct gm_arena arena;		/* memory of the free sets */
	struct gm_cache_heap *next;	/* in the list of dropped heaps; lock: heaps */
	/* Of a pages heap: unused block records in reserve. When the tables have no other record left, parts of a
	 * free block can still go back to the driver. Lock: the domain's. */
	uint32_t kept[GM_CACHE_KEPT], kept_count;

	_Atomic(uint64_t) segments;	/* bytes from the driver */
	_Atomic(uint64_t) segments_high;	/* pages heap: peak of @segments since its last reset */
	_Atomic(uint64_t) live_lately;	/* bytes: a fading peak of @live (cache_alloc.c) */
	struct gm_cache_pages *pages;	/* as in its setup; lock: growth */
	struct gm_cache_at at;
	struct gm_cache_moving moving;
	struct gm_cache_unused unused;
};

/* Is its memory in pages? Stays true when the pages are gone with the heap's context. */
static inline bool gm_cache_heap_in_pages(const struct gm_cache_heap *heap)
{
	return heap->core->class == &gm_pages_class;
}

/* Forget all heaps, for a new journal. Call gm_tcache_begin next. */
void gm_cache_heap_begin(void);

/* Fill in the members of @ops that are the same for every heap: the tables, the lock, the events. */
void gm_cache_heap_records(struct gm_heap_ops *ops);

/* Make a heap. Returns 0; -ENOMEM: no memory, or too many heaps; -ENODEV: nothing is recorded; -EINVAL. */
int gm_cache_heap_new(const struct gm_cache_heap_setup *setup, struct gm_cache_heap **ret);
struct gm_cache_heap *gm_cache_heap_by_number(uint32_t number);	/* NULL: dropped */

/* Return the first living heap of @domain (GM_CACHE_ALL: of any domain) after @after; NULL: there is none. Begin with
 * @after NULL. */
#define GM_CACHE_ALL 0xffu
struct gm_cache_heap *gm_cache_heap_next(const struct gm_cache_heap *after, uint8_t domain);

/* Serve a request from a thread cache or a free block. Reads of @alloc: requested, stream (its key), context, stack,
 * module, stack_of_block_only; fills in address, size, tsc. Returns 0 and the block; -EAGAIN: no free block serves
 * it; -ENOMEM: tables or limits; -ETIMEDOUT, -ENODEV as gm_record_alloc; -E2BIG. */
int gm_cache_heap_alloc(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block);
/* Serve it as gm_heap_alloc does: with PyTorch's whole order of collection, growth, release and retry. Returns also
 * -ENOMEM: out of memory, or over the limit (not counted in num_ooms, because gm_record_failure does that); -ENOSPC:
 * the tables are full, or there is no memory for free sets; or the error of driver_alloc. */
int gm_cache_heap_grow(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		   uint32_t *ret_block);

/* Return the heap of @block, and a copy of the block's record; NULL: @block is in no heap of the cache. */
struct gm_cache_heap *gm_cache_heap_of(uint32_t block, struct gm_block *ret_copy);

/* The same before a free, without a lock and only with the members that a free needs. The view is true if the caller
 * owns the block and frees it; gm_cache_heap_free finds out whether that is so. */
struct gm_cache_view {
	uint64_t address, stream, requested;
	uint16_t module;		/* the module that allocated it */
	uint8_t state;
};
struct gm_cache_heap *gm_cache_heap_peek(uint32_t block, struct gm_cache_view *ret);

/* Copy the segment of a block of the cache. Returns false if @block is in no heap of the cache. */
bool gm_cache_heap_segment(uint32_t block, struct gm_segment *ret_copy);

/* When may a freed block be handed out again? LATER: when the GPU has passed the free. NOW. SEEN: now, and the host
 * knows that the GPU has passed the free. ASK: not decided yet. */
enum gm_cache_when { GM_FREE_LATER, GM_FREE_NOW, GM_FREE_SEEN, GM_FREE_ASK };

struct gm_cache_free {
	uint64_t tsc, stream;		/* @tsc 0: now, if an event is written */
	uint32_t stack;			/* GM_STACK_OF_BLOCK: the stack of the allocation */
	/* When may the block be handed out again? Called once, under no lock, when only the caller can use the block.
	 * If it returns GM_FREE_LATER, gm_cache_heap_complete may be called for the block at any time from then
	 * on. */
	enum gm_cache_when (*when)(void *arg, uint32_t block, uint32_t number, uint64_t bytes);
	void *arg;
};
/* Free @block, which must be active and begin at @address. Returns 0; -ENOENT, with nothing changed: it is not active
 * (freed already), or begins elsewhere (an interior pointer); -ENODEV. If a lock cannot be taken, queue the free: the
 * next thread that takes the domain's lock does it (recorder/record/tables.h). */
int gm_cache_heap_free(struct gm_cache_heap *heap, uint64_t op, uint32_t block, uint64_t address,
		   const struct gm_cache_free *how);

/* Free the block from inside another hook of the same thread, perhaps in a signal handler. Always queues the free.
 * Returns false where gm_cache_heap_free returns -ENOENT. Takes no lock. */
bool gm_cache_heap_free_inside(uint32_t block, uint64_t address);

/* Set @fn, which the thread that does such a free asks when the block may be handed out again: as gm_cache_free.when,
 * but under the domain's lock. */
typedef enum gm_cache_when gm_cache_ask_fn(uint32_t block, uint32_t number, uint64_t bytes);
void gm_cache_heap_ask(gm_cache_ask_fn *fn);

/* Free pending blocks of any heaps. Returns how many, counted from the first: fewer than @count if a lock could not
 * be taken. The others stay pending until a later call for them. */
struct gm_reuse_item;
size_t gm_cache_heap_complete(const struct gm_reuse_item *items, size_t count);

/* Give idle segments of at most @most bytes in all back to the driver, after ops.synchronize. Returns the bytes. The
 * growth lock is held. */
uint64_t gm_cache_heap_empty(struct gm_cache_heap *heap, uint64_t most);
/* Give all idle segments back without ops.synchronize. */
uint64_t gm_cache_heap_release(struct gm_cache_heap *heap);
/* Give back memory that nobody has used since gm_cache_heap_begin_period: one segment, or at most @most bytes if that
 * is more. Returns the bytes. The growth lock is held. */
uint64_t gm_cache_heap_release_unused(struct gm_cache_heap *heap, uint64_t most);
void gm_cache_heap_begin_period(struct gm_cache_heap *heap);
/* Of a pages heap: has @stream a free block of its own with @least bytes? */
bool gm_cache_heap_freed_on(struct gm_cache_heap *heap, uint64_t stream, uint64_t least);
/* Of a pages heap: give stream @to the free blocks that stream @from freed up to the point @until. All later work of
 * @to comes after these frees. Returns the bytes. */
uint64_t gm_cache_heap_take_over(struct gm_cache_heap *heap, uint64_t from, uint64_t to, uint64_t until);
/* Return the bytes of segments that are wholly free now, which gm_cache_heap_empty would give back. O(1), unless
 * thread caches have to be flushed first. */
uint64_t gm_cache_heap_idle_bytes(const struct gm_cache_heap *heap);
uint64_t gm_cache_heap_live_bytes(const struct gm_cache_heap *heap);	/* with blocks in thread caches */
uint64_t gm_cache_heap_largest_free(struct gm_cache_heap *heap);	/* of the largest free block */
/* Return the bytes requested for the active blocks, and their peak since the last reset, as the driver's pools count
 * them. */
void gm_cache_heap_used(const struct gm_cache_heap *heap, uint64_t *ret_used, uint64_t *ret_high);
void gm_cache_heap_reset_high(struct gm_cache_heap *heap);
/* Set the members of these names in the heap's configuration (struct gm_heap_config). */
void gm_cache_heap_set_limit(struct gm_cache_heap *heap, uint64_t limit, uint64_t shared_most);

/* @on: suspend the heap, because its context is about to end, and the driver may give its addresses to others from
 * then on. No block is handed out (-ENODEV), and none becomes free, although frees succeed. Else: resume, because the
 * context did not end. */
void gm_cache_heap_suspend(struct gm_cache_heap *heap, bool on);

/* Remove the blocks of suspended heaps in [@address, +@bytes) from @map, because the driver gave that memory of
 * @domain's device to the program. */
void gm_cache_heap_address_reused(struct gm_page_map *map, uint8_t domain, uint64_t address, uint64_t bytes);

/* Drop the heap, because its context ended with all its segments. Their records end, with events whose stack is
 * @stack as in gm_record_free_stack; calls with the heap's pointer return -ENODEV from now on. gm_record_context_end
 * leaves a heap's segments to this function. Returns how many blocks were live. */
unsigned int gm_cache_heap_drop(struct gm_cache_heap *heap, uint64_t tsc, uint32_t stack);

#endif
