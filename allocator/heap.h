/*
 * heap.h - heaps: blocks of the driver's memory, cut to size, handed out again and given back.
 *
 * What a heap does is its class's (struct gm_heap_class); what every heap has is in struct gm_heap.
 * There are two classes: the segments heap (segments_heap.h), which is PyTorch's caching algorithm,
 * to the last counter; and the pages heap (pages_heap.h), which moves memory between addresses
 * instead of keeping it idle. Callers use the functions below and need not know the class, which
 * the heap's configuration names.
 *
 * A heap knows no CUDA: segments come from a backend; records come from the owner of the tables;
 * every store to a record goes through gm_undo. Nothing here takes a lock, calls malloc or waits.
 *
 * Context: the caller holds the lock of the domain for every function, but gm_heap_alloc and
 * gm_heap_release give it up (ops->unlock) while they call the backend.
 */
#ifndef GM_ALLOCATOR_HEAP_H
#define GM_ALLOCATOR_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/free_set.h"
#include "allocator/page_map.h"
#include "allocator/table.h"
#include "allocator/undo.h"

#define GM_HEAP_UNLIMITED UINT64_MAX
#define GM_HEAP_SMALL_REQUEST (UINT64_C(1) << 20)	/* PyTorch's kSmallSize */
#define GM_HEAP_SMALL_SEGMENT (UINT64_C(2) << 20)	/* kSmallBuffer */
#define GM_HEAP_LARGE_SEGMENT (UINT64_C(20) << 20)	/* kLargeBuffer: the default */
#define GM_HEAP_LARGE_REQUEST (UINT64_C(10) << 20)	/* kMinLargeAlloc */
#define GM_HEAP_ROUND_LARGE (UINT64_C(2) << 20)		/* kRoundLarge */
#define GM_HEAP_REQUEST_LIMIT (UINT64_C(1) << 60)	/* "more than 1EB" */
#define GM_HEAP_DIVISION_BINS 16u
#define GM_HEAP_PAGE (UINT64_C(2) << 20)		/* of the pages heap: the driver's granularity */
#define GM_HANDLE_REST 0x80000000u			/* see reserve of struct gm_heap_ops */

struct gm_heap_class;

struct gm_heap_config {			/* bytes; PyTorch's keys of the same names */
	const struct gm_heap_class *class;
	uint64_t large_segment_size;
	uint64_t max_split_size;	/* GM_HEAP_UNLIMITED: off */
	uint64_t max_non_split_rounding;
	double garbage_collection_threshold;	/* 0: off; needs @limit */
	uint64_t limit;			/* reserved bytes at most; GM_HEAP_UNLIMITED: none set */
	uint64_t shared_most;		/* not PyTorch's (segments_heap.h); GM_HEAP_UNLIMITED: off */
	uint32_t roundup_power2_divisions[GM_HEAP_DIVISION_BINS];	/* 0: off */
};

/* PyTorch's defaults. */
void gm_heap_config_default(struct gm_heap_config *config);

/* What a request of @bytes takes: PyTorch's round_size. @bytes < GM_HEAP_REQUEST_LIMIT. */
uint64_t gm_heap_round(const struct gm_heap_config *config, uint64_t bytes);

/* Are requests rounded up to GM_GRANULE and no further (no roundup_power2_divisions)? */
bool gm_heap_rounds_plainly(const struct gm_heap_config *config);

/* The segment that a rounded request of @size bytes is cut from, when none has room. */
uint64_t gm_heap_segment_bytes(const struct gm_heap_config *config, uint64_t size);

struct gm_heap_ops {
	/* A zeroed record linked into its domain, by id; GM_NONE: the table is full. @goes_back: the block is cut so
	 * that memory can go back to the driver, and its record may be one of those that are kept for that. */
	uint32_t (*segment_new)(void *arg);
	void (*segment_drop)(void *arg, uint32_t segment);
	uint32_t (*block_new)(void *arg, bool goes_back);
	void (*block_drop)(void *arg, uint32_t block);
	/* The driver: 0 and the address, -ENOMEM out of memory, or -errno. Called unlocked. */
	int (*driver_alloc)(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address);
	void (*driver_free)(void *arg, uint64_t address, uint64_t bytes, uint64_t stream);
	/* May a segment of @stream go back to the driver now? If not it stays cached. Locked; NULL:
	 * any may. */
	bool (*may_go)(void *arg, uint64_t stream);
	/* Either may be NULL. @grown: the driver has just given memory for the request. A lock that cannot
	 * be had again (false) ends the call: -ETIMEDOUT. */
	bool (*lock)(void *arg, bool grown);
	void (*unlock)(void *arg);
	/* Wait for what was freed and is not reusable yet, and complete it; NULL: nothing. Unlocked. */
	void (*synchronize)(void *arg);
	/* Of the pages heap, in place of driver_alloc and driver_free. Called unlocked; addresses
	 * and bytes are multiples of GM_HEAP_PAGE. reserve: @bytes of addresses, or fewer; once in
	 * a heap's life; and an array that says, for each page from the first address on that has memory, behind which
	 * handle of the driver's it is: of a handle's first page how many pages it has, of its others
	 * how many are before it, and GM_HANDLE_REST. map: memory behind addresses, beginning with what unmap
	 * took; 0, or with nothing changed -ENOMEM, or -EAGAIN: no longer costly, decide again. unmap: the memory
	 * is taken from behind the addresses, which are of whole handles, and kept. trim: what is kept
	 * so goes back to the driver. */
	int (*reserve)(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes,
		       const uint32_t **ret_handles);
	int (*map)(void *arg, uint64_t address, uint64_t bytes);
	void (*unmap)(void *arg, uint64_t address, uint64_t bytes);
	void (*trim)(void *arg);
	/* Called locked, where a request would make the heap grow past what is live and a little more: does it
	 * rather wait for memory that was freed, and is not passed? Then gm_heap_alloc returns -EBUSY. NULL: no. */
	bool (*waits)(void *arg);
	/* Called locked: has moving pages taken too much time lately, and is there memory to spare? Then the heap
	 * gets more of it before it moves any. NULL: no. */
	bool (*costly)(void *arg);
	/* Called locked. moment: a number that never falls, for a free that is complete now in the
	 * order of its stream; 0: every stream and the host are past that free already. passed: the
	 * last moment of which they are, of frees in the order of @stream; UINT64_MAX: of any. */
	uint64_t (*moment)(void *arg);
	uint64_t (*passed)(void *arg, uint64_t stream);
	/* True: only pages whose frees every stream and the host are past may be unmapped, since
	 * mapping is no work of a stream. False: a request may also move the pages that its stream
	 * could use. */
	bool moves_passed;
	/* Called locked, within the change, when pages come (@mapped) or go; may be NULL. */
	void (*page_event)(void *arg, bool mapped, uint32_t segment, uint64_t address, uint64_t bytes);
	/* Called locked, within the change, when a segment comes or goes; may be NULL. */
	void (*segment_event)(void *arg, bool allocated, uint32_t segment);
	void *arg;
};

struct gm_heap_setup {
	const struct gm_heap_config *config;
	const struct gm_heap_ops *ops;
	struct gm_undo *undo;
	struct gm_stats *stats;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_free_link *links;	/* one for each block id */
	void *(*memory)(void *arg, size_t bytes);	/* zeroed, never given back */
	void *memory_arg;
	struct gm_page_map *map;		/* NULL: none is kept */
	uint32_t number;		/* stored in its segments; 0: no other heap has these tables and statistics */
	struct gm_heap *place;		/* zeroed room for one of its class; NULL: from @memory */
	uint8_t domain;
};

struct gm_heap_request {
	uint64_t bytes;			/* as asked for, 1 or more */
	uint64_t stream;
	bool whole;			/* it gets a segment of its own, of its own size (segments heap, above 1 MiB) */
};

/* The functions of a class; what each does is said at the inline function of its name below. */
struct gm_heap_class {
	const char *name;
	size_t bytes;			/* of its struct, which begins with struct gm_heap */
	int (*init)(struct gm_heap *heap, const struct gm_heap_setup *setup);
	int (*alloc)(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
	int (*find)(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
	void (*free_requested)(struct gm_heap *heap, uint32_t block);
	void (*free_completed)(struct gm_heap *heap, uint32_t block);
	void (*free)(struct gm_heap *heap, uint32_t block);
	void (*put_back)(struct gm_heap *heap, uint32_t block);
	void (*detach)(struct gm_heap *heap, uint32_t block);
	int (*release)(struct gm_heap *heap, bool synchronize, uint64_t *ret_bytes);
	uint64_t (*largest)(struct gm_heap *heap);
};

extern const struct gm_heap_class gm_segments_heap __attribute__((visibility("hidden")));
extern const struct gm_heap_class gm_pages_heap __attribute__((visibility("hidden")));

/* What every heap has. */
struct gm_heap {
	const struct gm_heap_class *class;
	struct gm_heap_config config;
	const struct gm_heap_ops *ops;
	struct gm_undo *undo;
	struct gm_stats *stats;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_free_link *links;
	struct gm_page_map *map;	/* told where blocks begin; NULL: none */
	uint32_t number;		/* as in its setup */
	uint64_t reserved;		/* bytes got from the driver */
	uint64_t idle;			/* bytes of segments that are wholly free; read without the lock */
	uint8_t domain;
	bool plain;			/* sizes are rounded up to GM_GRANULE, no more */
};

/* A heap of the configuration's class; NULL: no memory. */
struct gm_heap *gm_heap_new(const struct gm_heap_setup *setup);

/* Serve a request: from a free block, else after PyTorch's order of collection, growth, release of
 * oversize blocks, growth, release of everything cached, growth. Returns 0 and the block, active;
 * -ENOMEM: out of memory or over the limit; -ENOSPC: the tables are full; -E2BIG: 1 EiB or more;
 * -EBUSY: ops->waits says so, and the heap has not grown;
 * -ETIMEDOUT: the lock could not be had again, and is not held now; or what the backend
 * returned. */
static inline int gm_heap_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
				uint32_t *ret_block)
{
	return heap->class->alloc(heap, request, ret_block);
}

/* Serve it from a free block or not at all, and then nothing has changed: -EAGAIN; -ENOSPC: a free block is large
 * enough, but no record is left for its rest. Never calls the backend. */
static inline int gm_heap_find(struct gm_heap *heap, const struct gm_heap_request *request,
			       uint32_t *ret_block)
{
	return heap->class->find(heap, request, ret_block);
}

/* The program has freed an active block, which the GPU may still use: it becomes pending. */
static inline void gm_heap_free_requested(struct gm_heap *heap, uint32_t block)
{
	heap->class->free_requested(heap, block);
}

/* Nothing can use a pending block any more: it is free, and merged with its neighbours. */
static inline void gm_heap_free_completed(struct gm_heap *heap, uint32_t block)
{
	heap->class->free_completed(heap, block);
}

/* Both at once. */
static inline void gm_heap_free(struct gm_heap *heap, uint32_t block)
{
	heap->class->free(heap, block);
}

/* A block leaves a thread cache (GM_BLOCK_CACHED) and is free. The statistics have counted its free
 * already. */
static inline void gm_heap_put_back(struct gm_heap *heap, uint32_t block)
{
	heap->class->put_back(heap, block);
}

/* A wholly free block and its segment leave the heap; the driver is not called. */
static inline void gm_heap_detach(struct gm_heap *heap, uint32_t block)
{
	heap->class->detach(heap, block);
}

/* Give every segment that is wholly free (of a pages heap: every page) back to the driver; with
 * @synchronize after ops->synchronize, as empty_cache does. Returns 0 and how many bytes these
 * were, or -ETIMEDOUT as gm_heap_alloc. */
static inline int gm_heap_release(struct gm_heap *heap, bool synchronize, uint64_t *ret_bytes)
{
	return heap->class->release(heap, synchronize, ret_bytes);
}

/* Bytes of the largest free block. */
static inline uint64_t gm_heap_largest(struct gm_heap *heap)
{
	return heap->class->largest(heap);
}

/* Block @id is about to be freed: fetch what that reads, which is in no cache of the processor
 * where many blocks are live. */
static inline void gm_heap_prefetch(const struct gm_heap *heap, uint32_t id)
{
	const struct gm_block *block = &heap->blocks[id];
	const uint32_t beside[] = { block->prev, block->next };

	for (unsigned int i = 0; i < 2; i++) {
		__builtin_prefetch(&heap->blocks[beside[i]]);
		__builtin_prefetch(&heap->blocks[beside[i]].requested);
		__builtin_prefetch(&heap->links[beside[i]]);
	}
	__builtin_prefetch(&heap->links[id]);
}

/* ---- for the classes (segments_heap.c) ---- */

/* Cut @size bytes off the front of free block @rest: a new block before it, active. @goes_back as in block_new.
 * GM_NONE: no record is left, and nothing has changed. */
uint32_t gm_heap_cut(struct gm_heap *heap, uint32_t rest, uint64_t size, bool goes_back);

/* Two neighbours, which are in no free set, become one block. Returns its id. */
uint32_t gm_heap_join(struct gm_heap *heap, uint32_t first, uint32_t second);

static inline uint64_t gm_heap_rounded(const struct gm_heap *heap, uint64_t bytes)
{
	if (__builtin_expect(heap->plain && bytes, 1))
		return (bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
	return gm_heap_round(&heap->config, bytes);
}

/* ---- heap_stats.c ---- */

/* A segment comes from the driver, or goes back; or only bytes of one do. */
void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes);
void gm_heap_count_reserved(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes);
/* A block of @size bytes is handed out; its free is asked for; its free is complete. */
void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, uint64_t size,
		       uint64_t requested);
void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, uint64_t size);
void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, uint64_t size,
			uint64_t requested);
/* @blocks free blocks more, of @bytes in all, share their segment with others; negative: fewer. */
void gm_heap_count_splits(struct gm_heap *heap, unsigned int pool, int64_t blocks, int64_t bytes);
void gm_heap_count_oversize(struct gm_heap *heap, struct gm_stat *stat, int by);
void gm_heap_count_one(struct gm_heap *heap, int64_t *counter);

/* The pool of a size: 0 small, 1 large. */
static inline unsigned int gm_heap_pool_of(uint64_t size)
{
	return size > GM_HEAP_SMALL_REQUEST;
}

/* The pool that a block lies in. */
static inline unsigned int gm_heap_pool_of_block(const struct gm_heap *heap, const struct gm_block *block)
{
	return !(heap->segments[block->segment].flags & GM_SEGMENT_SMALL);
}

/* Logged by gm_undo. A reader that sees the new state sees what was written to the block before
 * it. */
static inline void gm_heap_set_state(struct gm_heap *heap, struct gm_block *block, enum gm_block_state state)
{
	gm_undo_note(heap->undo, &block->state);
	__atomic_store_n((uint8_t *)&block->state, (uint8_t)state, __ATOMIC_RELEASE);
}

/* @bytes more could go back to the driver; negative: fewer. */
static inline void gm_heap_count_idle(struct gm_heap *heap, int64_t bytes)
{
	__atomic_store_n(&heap->idle, heap->idle + (uint64_t)bytes, __ATOMIC_RELAXED);
}

/* Bytes of the largest block in the free sets of both pools. */
static inline uint64_t gm_heap_largest_of(struct gm_free_set pool[2])
{
	uint64_t small = gm_free_set_largest(&pool[0]), large = gm_free_set_largest(&pool[1]);

	return small > large ? small : large;
}

static inline bool gm_heap_collects(const struct gm_heap *heap)
{
	return heap->config.limit != GM_HEAP_UNLIMITED &&
	       heap->config.garbage_collection_threshold > 0;
}

#endif
