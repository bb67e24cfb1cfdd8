/*
 * heap.h - the segments heap: PyTorch's caching algorithm, to the last counter.
 *
 * Two pools (small: rounded requests up to 1 MiB; large), best fit by (stream, size, address),
 * splitting, merging, collection and release as PyTorch's CUDACachingAllocator does them, so that
 * with the driver's addresses given it hands out the same addresses and keeps the same statistics
 * (the traces under test/traces are the judge; gpumem replay --verify).
 *
 * The heap knows no CUDA: segments come from a backend; records come from the owner of the tables;
 * every store to a record goes through gm_undo. Nothing here takes a lock, calls malloc or waits.
 *
 * Context: the caller holds the lock of the domain for every function, but gm_heap_alloc and
 * gm_heap_empty give it up (ops->unlock) while they call the backend.
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

struct gm_heap_config {			/* bytes; PyTorch's keys of the same names */
	uint64_t large_segment_size;
	uint64_t max_split_size;	/* GM_HEAP_UNLIMITED: off */
	uint64_t max_non_split_rounding;
	double garbage_collection_threshold;	/* 0: off; needs @limit */
	uint64_t limit;			/* reserved bytes at most; GM_HEAP_UNLIMITED: none set */
	uint32_t roundup_power2_divisions[GM_HEAP_DIVISION_BINS];	/* 0: off */
};

/* PyTorch's defaults. */
void gm_heap_config_default(struct gm_heap_config *config);

/* What a request of @bytes takes: PyTorch's round_size. @bytes < GM_HEAP_REQUEST_LIMIT. */
uint64_t gm_heap_round(const struct gm_heap_config *config, uint64_t bytes);

/* No request takes more than it is rounded up to. */
bool gm_heap_rounds_plainly(const struct gm_heap_config *config);

/* The segment that a rounded request of @size bytes is cut from, when none has room. */
uint64_t gm_heap_segment_bytes(const struct gm_heap_config *config, uint64_t size);

/* Apply settings in the grammar of PYTORCH_CUDA_ALLOC_CONF ("key:value,key:[a:b,>:c]") to @config,
 * which holds the defaults or earlier settings. Keys of PyTorch's that do not concern this heap are
 * passed over. Returns 0; -EINVAL, and @ret_error (room for 160 bytes) says what is wrong. */
int gm_heap_config_parse(struct gm_heap_config *config, const char *text, char *ret_error);

struct gm_heap_ops {
	/* A zeroed record linked into its domain, by id; GM_NONE: the table is full. */
	uint32_t (*segment_new)(void *arg);
	void (*segment_drop)(void *arg, uint32_t segment);
	uint32_t (*block_new)(void *arg);
	void (*block_drop)(void *arg, uint32_t block);
	/* The driver: 0 and the address, -ENOMEM out of memory, or -errno. Called unlocked. */
	int (*driver_alloc)(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address);
	void (*driver_free)(void *arg, uint64_t address, uint64_t bytes, uint64_t stream);
	/* May a segment of @stream go back to the driver now? If not it stays cached. Locked; NULL:
	 * any may. */
	bool (*may_go)(void *arg, uint64_t stream);
	/* Either may be NULL. A lock that cannot be had again (false) ends the call: -ETIMEDOUT. */
	bool (*lock)(void *arg);
	void (*unlock)(void *arg);
	/* Wait for what was freed and is not reusable yet, and complete it; NULL: nothing. Unlocked. */
	void (*settle)(void *arg);
	/* Each change of the segments, locked, within the change; NULL: nobody listens. */
	void (*segment_event)(void *arg, bool allocated, uint32_t segment);
	void *arg;
};

struct gm_heap {
	struct gm_heap_config config;
	const struct gm_heap_ops *ops;
	struct gm_undo *undo;
	struct gm_stats *stats;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_free_link *links;
	struct gm_free_set pool[2];	/* 0 small, 1 large */
	uint64_t lookups[2];		/* by pool, while collection is on: a block's age is in them */
	uint64_t reserved;		/* bytes got from the driver */
	struct gm_page_map *map;		/* told where blocks begin; NULL: none */
	uint64_t idle;			/* bytes of segments that are wholly free; read without the lock */
	uint8_t domain;
	bool plain;			/* sizes are rounded up to GM_GRANULE, no more */
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
	uint8_t domain;
};

/* Returns 0 or -ENOMEM. */
int gm_heap_init(struct gm_heap *heap, const struct gm_heap_setup *setup);

struct gm_heap_request {
	uint64_t bytes;			/* as asked for, 1 or more */
	uint64_t stream;
};

/* Serve a request: from a free block, else after PyTorch's order of collection, growth, release of
 * oversize blocks, growth, release of everything cached, growth. Returns 0 and the block, active;
 * -ENOMEM: out of memory or over the limit; -ENOSPC: the tables are full; -E2BIG: 1 EiB or more;
 * -ETIMEDOUT: the lock could not be had again, and is not held now; or what the backend
 * returned. */
int gm_heap_alloc(struct gm_heap *heap, const struct gm_heap_request *request,
		  uint32_t *ret_block);

/* Serve it from a free block or not at all: -EAGAIN. Never calls the backend. */
int gm_heap_find(struct gm_heap *heap, const struct gm_heap_request *request,
		 uint32_t *ret_block);

/* The program is done with an active block: it becomes pending. Then, when nothing can still use
 * it, free: merged with its neighbours and in its pool again. */
void gm_heap_free_requested(struct gm_heap *heap, uint32_t block);
void gm_heap_free_completed(struct gm_heap *heap, uint32_t block);
/* Both at once. */
void gm_heap_free(struct gm_heap *heap, uint32_t block);

/* A block that the owner had out of the free sets (GM_BLOCK_CACHED), counted as freed already: into
 * them. */
void gm_heap_put_back(struct gm_heap *heap, uint32_t block);

/* Give every segment that is wholly free back to the driver (empty_cache). Returns 0 or -ETIMEDOUT
 * as gm_heap_alloc, and how many bytes that were. */
int gm_heap_empty(struct gm_heap *heap, uint64_t *ret_bytes);
/* The same without settling first. */
int gm_heap_release(struct gm_heap *heap, uint64_t *ret_bytes);

/* Count violations of every structural rule and of the statistics. 0 if sound. O(blocks). */
int gm_heap_check(const struct gm_heap *heap, uint32_t first_segment);

/* Block @id is about to be freed: what that looks at, where many are live, is in no cache. */
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

/* ---- between the files of the heap ---- */

static inline unsigned int gm_heap_pool_of(uint64_t size)
{
	return size > GM_HEAP_SMALL_REQUEST;
}

static inline uint64_t gm_heap_rounded(const struct gm_heap *heap, uint64_t bytes)
{
	if (__builtin_expect(heap->plain && bytes, 1))
		return (bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
	return gm_heap_round(&heap->config, bytes);
}

static inline bool gm_heap_is_split(const struct gm_block *block)
{
	return block->prev || block->next;
}

static inline bool gm_heap_collects(const struct gm_heap *heap)
{
	return heap->config.limit != GM_HEAP_UNLIMITED &&
	       heap->config.garbage_collection_threshold > 0;
}

/* Make @address a segment of @bytes with one active block for @request, cut to size. */
int gm_heap_adopt(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		  uint64_t address, uint64_t bytes, uint32_t *ret_block);

/* Take a wholly free block and its segment out of the heap; the caller frees it at the driver. */
void gm_heap_detach(struct gm_heap *heap, uint32_t block);

/* ---- heap_stats.c ---- */

/* A segment comes from the driver, or goes back. */
void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes);
/* A block of @size bytes is handed out; its free is asked for; its free is complete. */
void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, uint64_t size,
		       uint64_t requested);
void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, uint64_t size);
void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, uint64_t size,
			uint64_t requested);
/* Free blocks that share their segment with others: so many more, and bytes; less than 0: fewer. */
void gm_heap_count_splits(struct gm_heap *heap, unsigned int pool, int64_t blocks, int64_t bytes);
void gm_heap_count_oversize(struct gm_heap *heap, struct gm_stat *stat, int by);
void gm_heap_count_one(struct gm_heap *heap, int64_t *counter);

#endif
