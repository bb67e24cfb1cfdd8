/*
 * heap.h - heaps, which cut the driver's memory into blocks, hand blocks out again and give memory back.
 *
 * A class (struct gm_heap_class) implements a heap; struct gm_heap has the members that all heaps share. There are
 * two classes: the segments heap (segments_heap.h), which is PyTorch's caching algorithm, to the last counter;
 * and the pages heap (pages_heap.h), which moves memory between addresses instead of keeping it idle. Callers
 * use the functions below. They need not know the class, which the configuration of the heap names.
 *
 * A heap knows no CUDA. Segments come from a backend, records come from the owner of the tables, and every
 * store to a record goes through gm_undo. Nothing here takes a lock, calls malloc or waits.
 *
 * Context: the caller holds the lock of the domain for every function. gm_heap_alloc and gm_heap_release
 * release it (ops->unlock) while they call the backend.
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
#define GM_HEAP_PAGE (UINT64_C(2) << 20)		/* pages heap: the driver's granularity */
#define GM_HANDLE_REST 0x80000000u			/* see @reserve in struct gm_heap_ops */

struct gm_heap_class;

struct gm_heap_config {			/* bytes; PyTorch's keys of the same names */
	const struct gm_heap_class *class;
	uint64_t large_segment_size;
	uint64_t max_split_size;	/* GM_HEAP_UNLIMITED: off */
	uint64_t max_non_split_rounding;
	double garbage_collection_threshold;	/* 0: off; needs @limit */
	uint64_t limit;			/* the most reserved bytes; GM_HEAP_UNLIMITED: no limit */
	uint64_t shared_most;		/* not PyTorch's (segments_heap.h); GM_HEAP_UNLIMITED: off */
	uint32_t roundup_power2_divisions[GM_HEAP_DIVISION_BINS];	/* 0: off */
};

/* Fill in PyTorch's defaults. */
void gm_heap_config_default(struct gm_heap_config *config);

/* Return the bytes of the block for a request of @bytes, which are less than GM_HEAP_REQUEST_LIMIT. This is
 * PyTorch's round_size. */
uint64_t gm_heap_round(const struct gm_heap_config *config, uint64_t bytes);

/* Are requests rounded up to GM_GRANULE and no further (no roundup_power2_divisions)? */
bool gm_heap_rounds_plainly(const struct gm_heap_config *config);

/* Return the bytes of the new segment from which a rounded request of @size bytes is cut. */
uint64_t gm_heap_segment_bytes(const struct gm_heap_config *config, uint64_t size);

struct gm_heap_ops {
	/* Return the id of a zeroed record that is linked into its domain; GM_NONE: the table is full. @goes_back:
	 * the block is cut so that memory can go back to the driver, and may use a record kept for that purpose. */
	uint32_t (*segment_new)(void *arg);
	void (*segment_drop)(void *arg, uint32_t segment);
	uint32_t (*block_new)(void *arg, bool goes_back);
	void (*block_drop)(void *arg, uint32_t block);
	/* Call the driver. driver_alloc returns 0 and the address; -ENOMEM: out of memory; or -errno. Called
	 * unlocked. */
	int (*driver_alloc)(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address);
	void (*driver_free)(void *arg, uint64_t address, uint64_t bytes, uint64_t stream);
	/* May a segment of @stream go back to the driver now? If not, it stays cached. Called locked; NULL: any
	 * may. */
	bool (*may_go)(void *arg, uint64_t stream);
	/* Take and release the lock of the domain; either may be NULL. @grown: the driver has just given memory for
	 * the request. If the lock cannot be taken again (false), the call ends with -ETIMEDOUT. */
	bool (*lock)(void *arg, bool grown);
	void (*unlock)(void *arg);
	/* Complete the frees of blocks that the GPU no longer uses; may wait for the GPU. NULL: there are no such
	 * blocks. Called unlocked. */
	void (*synchronize)(void *arg);
	/* The pages heap uses these in place of driver_alloc and driver_free. Called unlocked. Addresses and bytes
	 * are multiples of GM_HEAP_PAGE.
	 * reserve: reserve @bytes of addresses, or fewer; once in the life of a heap. @ret_handles is an array with
	 * an entry for each page from the first address on. For a page with memory, the entry tells its place in
	 * the driver's handle: for the first page of a handle, how many pages the handle has; for any other page,
	 * GM_HANDLE_REST plus how many pages of the handle precede it.
	 * map: put memory behind addresses, first the memory that unmap kept. Returns 0; or, with nothing changed,
	 * -ENOMEM, or -EAGAIN: moving is no longer costly, so decide again.
	 * unmap: take the memory from behind addresses of whole handles, and keep it.
	 * trim: give the memory that unmap kept back to the driver. */
	int (*reserve)(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes,
		       const uint32_t **ret_handles);
	int (*map)(void *arg, uint64_t address, uint64_t bytes);
	void (*unmap)(void *arg, uint64_t address, uint64_t bytes);
	void (*trim)(void *arg);
	/* A request would make the heap grow past its live memory and the slack (GM_PAGES_SLACK). Shall it wait for
	 * freed memory that is not passed yet? If so, gm_heap_alloc returns -EBUSY. Called locked; NULL: no. */
	bool (*waits)(void *arg);
	/* Has moving pages taken too much time lately, while there is memory to spare? If so, the heap gets more
	 * memory before it moves pages. Called locked; NULL: no. */
	bool (*costly)(void *arg);
	/* point: return the point of a free that is complete now in the order of its stream: a number that never
	 * falls; 0: every stream and the host are already past that free. passed: return the last point such that
	 * every stream and the host are past all frees up to it. @stream: count only the frees in the order of that
	 * stream; UINT64_MAX: the frees of all streams. Called locked. */
	uint64_t (*point)(void *arg);
	uint64_t (*passed)(void *arg, uint64_t stream);
	/* True: only pages whose frees every stream and the host are past may be unmapped, because mapping is not
	 * ordered by streams. False: a request may also move pages that its own stream could use. */
	bool moves_passed;
	/* Called locked, within the change, when pages are mapped or unmapped; may be NULL. */
	void (*page_event)(void *arg, bool mapped, uint32_t segment, uint64_t address, uint64_t bytes);
	/* Called locked, within the change, when a segment is added or removed; may be NULL. */
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
	void *(*memory)(void *arg, size_t bytes);	/* returns zeroed memory for good */
	void *memory_arg;
	struct gm_page_map *map;		/* NULL: no map */
	uint32_t number;		/* stored in its segments; 0: the only heap of these tables */
	struct gm_heap *place;		/* zeroed room for a heap of the class; NULL: take @memory */
	uint8_t domain;
};

struct gm_heap_request {
	uint64_t bytes;			/* as the program requested, 1 or more */
	uint64_t stream;
	bool whole;			/* serve it only from a segment of its own size (segments heap, above 1 MiB) */
};

/* The functions of a class. The inline functions of the same names below describe them. */
struct gm_heap_class {
	const char *name;
	size_t bytes;			/* of the class's struct, which begins with struct gm_heap */
	int (*init)(struct gm_heap *heap, const struct gm_heap_setup *setup);
	int (*alloc)(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
	int (*find)(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
	void (*free_requested)(struct gm_heap *heap, uint32_t block);
	void (*free_completed)(struct gm_heap *heap, uint32_t block);
	void (*free)(struct gm_heap *heap, uint32_t block);
	void (*put_back)(struct gm_heap *heap, uint32_t block);
	void (*detach)(struct gm_heap *heap, uint32_t block);
	int (*release)(struct gm_heap *heap, uint64_t most, bool synchronize, uint64_t *ret_bytes);
	void (*begin_period)(struct gm_heap *heap);
	int (*release_unused)(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes);
	uint64_t (*largest)(struct gm_heap *heap);
};

extern const struct gm_heap_class gm_segments_class __attribute__((visibility("hidden")));
extern const struct gm_heap_class gm_pages_class __attribute__((visibility("hidden")));

/* The part that all heaps have. */
struct gm_heap {
	const struct gm_heap_class *class;
	struct gm_heap_config config;
	const struct gm_heap_ops *ops;
	struct gm_undo *undo;
	struct gm_stats *stats;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_free_link *links;
	struct gm_page_map *map;	/* knows where blocks begin; NULL: no map */
	uint32_t number;		/* as in the setup */
	uint64_t reserved;		/* bytes taken from the driver */
	uint64_t idle;			/* bytes of wholly free segments; read without the lock */
	uint8_t domain;
	bool plain;			/* sizes are rounded up to GM_GRANULE and no further */
};

/* Make a heap of the configuration's class. Returns NULL when there is no memory. */
struct gm_heap *gm_heap_new(const struct gm_heap_setup *setup);

/* Serve a request from a free block. If there is none, follow PyTorch's order: collection, growth, release of
 * oversize blocks, growth, release of everything cached, growth. Returns 0 and the active block; -ENOMEM: out of
 * memory or over the limit; -ENOSPC: the tables are full; -E2BIG: 1 EiB or more; -EBUSY: the request shall wait
 * (ops->waits), and the heap has not grown; -ETIMEDOUT: the lock could not be taken again, and is not held; or
 * the error of the backend. */
static inline int gm_heap_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
				uint32_t *ret_block)
{
	return heap->class->alloc(heap, request, ret_block);
}

/* Serve a request from a free block only. Returns 0 and the block; -EAGAIN: no free block serves it; -ENOSPC: a free
 * block is large enough, but no record is left for its rest. After an error nothing has changed. Never calls the
 * backend. */
static inline int gm_heap_find(struct gm_heap *heap, const struct gm_heap_request *request,
			       uint32_t *ret_block)
{
	return heap->class->find(heap, request, ret_block);
}

/* Make an active block pending: the program has freed it, but the GPU may still use it. */
static inline void gm_heap_free_requested(struct gm_heap *heap, uint32_t block)
{
	heap->class->free_requested(heap, block);
}

/* Free a pending block, because nothing can use it any more, and merge it with free neighbours. */
static inline void gm_heap_free_completed(struct gm_heap *heap, uint32_t block)
{
	heap->class->free_completed(heap, block);
}

/* Do gm_heap_free_requested and gm_heap_free_completed at once. */
static inline void gm_heap_free(struct gm_heap *heap, uint32_t block)
{
	heap->class->free(heap, block);
}

/* Free a block that leaves a thread cache (GM_BLOCK_CACHED). The statistics have already counted its free. */
static inline void gm_heap_put_back(struct gm_heap *heap, uint32_t block)
{
	heap->class->put_back(heap, block);
}

/* Remove a block that is a wholly free segment from the heap, with its segment. Does not call the driver. */
static inline void gm_heap_detach(struct gm_heap *heap, uint32_t block)
{
	heap->class->detach(heap, block);
}

/* Give wholly free segments (in a pages heap: wholly free pages) of at most @most bytes in all back to the driver.
 * @synchronize: call ops->synchronize first, as empty_cache does. Returns 0 and the number of bytes; -ETIMEDOUT as
 * gm_heap_alloc. */
static inline int gm_heap_release(struct gm_heap *heap, uint64_t most, bool synchronize, uint64_t *ret_bytes)
{
	return heap->class->release(heap, most, synchronize, ret_bytes);
}

/* Begin a period. Memory that stays idle from now until gm_heap_release_unused is called is "unused". A segments heap
 * that collects has no periods, because it counts the age of its blocks in requests. */
static inline void gm_heap_begin_period(struct gm_heap *heap)
{
	heap->class->begin_period(heap);
}

/* Give unused memory back to the driver: at most @most bytes, but always one segment if there is one. Before the first
 * period no memory is unused. Returns as gm_heap_release; 0 bytes: no unused memory is left. */
static inline int gm_heap_release_unused(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes)
{
	return heap->class->release_unused(heap, most, ret_bytes);
}

/* Return the bytes of the largest free block. */
static inline uint64_t gm_heap_largest(struct gm_heap *heap)
{
	return heap->class->largest(heap);
}

/* Prefetch the records that a free of block @id reads. With many live blocks they are not in the processor's caches. */
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

/* Cut @size bytes off the front of free block @rest into a new active block. @goes_back as in block_new. Returns the
 * new block; GM_NONE: no record is left, and nothing has changed. */
uint32_t gm_heap_cut(struct gm_heap *heap, uint32_t rest, uint64_t size, bool goes_back);

/* Join two neighbours, which must be in no free set, into one block. Returns its id. */
uint32_t gm_heap_join(struct gm_heap *heap, uint32_t first, uint32_t second);

static inline uint64_t gm_heap_rounded(const struct gm_heap *heap, uint64_t bytes)
{
	if (__builtin_expect(heap->plain && bytes, 1))
		return (bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
	return gm_heap_round(&heap->config, bytes);
}

/* ---- heap_stats.c ---- */

/* Count a segment that comes from the driver (@comes) or goes back; the second function: only bytes of a segment. */
void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes);
void gm_heap_count_reserved(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes);
/* Count a block of @size bytes: out: it is handed out; asked: its free is requested; done: its free is complete. */
void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, uint64_t size,
		       uint64_t requested);
void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, uint64_t size);
void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, uint64_t size,
			uint64_t requested);
/* Count @blocks more free blocks, of @bytes in total, in segments with several blocks; negative: fewer. */
void gm_heap_count_splits(struct gm_heap *heap, unsigned int pool, int64_t blocks, int64_t bytes);
void gm_heap_count_oversize(struct gm_heap *heap, struct gm_stat *stat, int by);
void gm_heap_count_one(struct gm_heap *heap, int64_t *counter);

/* Return the pool of a size: 0 small, 1 large. */
static inline unsigned int gm_heap_pool_of(uint64_t size)
{
	return size > GM_HEAP_SMALL_REQUEST;
}

/* Return the pool of a block. */
static inline unsigned int gm_heap_pool_of_block(const struct gm_heap *heap, const struct gm_block *block)
{
	return !(heap->segments[block->segment].flags & GM_SEGMENT_SMALL);
}

/* Set the state of a block, logged by gm_undo. A reader that sees the new state also sees the earlier stores to the
 * block. */
static inline void gm_heap_set_state(struct gm_heap *heap, struct gm_block *block, enum gm_block_state state)
{
	gm_undo_note(heap->undo, &block->state);
	__atomic_store_n((uint8_t *)&block->state, (uint8_t)state, __ATOMIC_RELEASE);
}

/* Count @bytes more as idle, because they could go back to the driver; negative: fewer. */
static inline void gm_heap_count_idle(struct gm_heap *heap, int64_t bytes)
{
	__atomic_store_n(&heap->idle, heap->idle + (uint64_t)bytes, __ATOMIC_RELAXED);
}

/* Return the bytes of the largest block in the free sets of both pools. */
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
