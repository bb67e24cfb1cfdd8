/*
 * table.h - segments and blocks as they lie in memory: a contract with every reader.
 *
 * The tables live inside the journal (recorder/journal/format.h), in place, so that they outlive
 * the process. A segment is one piece of memory got from the driver; blocks tile it exactly. What
 * is passed through to the driver unchanged is a segment with one block.
 *
 * Ids are 32-bit indices into the tables; id 0 is "none" and its record is never used. Every record
 * belongs to one domain (a device, the host, or a pool) and changes only under that domain's lock
 * and inside a transaction (recorder/record/txn.h), except @state, which is one atomic byte that a
 * hook may set to GM_BLOCK_FREEING before it calls the driver; and blocks in a thread cache, which
 * their thread hands out again without that lock (struct gm_tcache_record in
 * recorder/journal/format.h).
 *
 *   domain 0 ── first_segment ─> segment ─ next ─> segment ─ next ─> 0
 *                                   │ first_block
 *                                   v
 *                                 block ─ next ─> block ─ next ─> 0      (address order, tiling)
 *
 * What a pool of the program's hands out (recorder/record/pools.h) lies in a domain of its own, in
 * which nothing is tiled: each block is a segment of its own, and so is each piece of the memory
 * that the pool got (GM_SEGMENT_HELD, its one block inactive). Readers put the former into the
 * latter.
 *
 * Sizes are bytes. Stamps are raw clock stamps (struct gm_clock in recorder/journal/format.h).
 */
#ifndef GM_ALLOCATOR_TABLE_H
#define GM_ALLOCATOR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define GM_NONE 0u		/* the id of nothing: segments, blocks, stacks, strings, modules */
#define GM_MAX_DEVICES 64u
#define GM_DOMAIN_HOST 64u	/* pinned host memory: a domain of its own after the devices */
#define GM_DOMAIN_POOLS 65u	/* then a domain for each pool of the program's, up to GM_MAX_POOLS */
#define GM_MAX_POOLS 63u
#define GM_DOMAINS 128u

/* What sort of memory it is; the order is part of the format. */
enum gm_kind {
	GM_KIND_DEVICE,		/* cuMemAlloc, cuMemAllocPitch */
	GM_KIND_MANAGED,	/* cuMemAllocManaged */
	GM_KIND_ARRAY,		/* CUDA arrays, mipmapped arrays; the address is the handle */
	GM_KIND_HOST,		/* pinned host memory, allocated or registered */
	GM_KIND_VMM,		/* cuMemCreate; the address is the first mapping, else the handle */
	GM_KIND_POOL,		/* cuMemAllocAsync, cuMemAllocFromPoolAsync */
	GM_KIND_IPC,		/* imported from another process: the exporter's bytes, not ours */
	GM_KIND_GRAPH,		/* what graphs with memory nodes hold on a device: one record a device */
	GM_KIND_EXTERNAL,	/* imported external memory and mapped graphics resources */
	GM_KIND_COUNT
};

enum gm_block_state {
	GM_BLOCK_UNUSED,	/* the record holds nothing */
	GM_BLOCK_ACTIVE,	/* PyTorch: active_allocated */
	GM_BLOCK_PENDING,	/* PyTorch: active_pending_free: freed, not yet reusable */
	GM_BLOCK_INACTIVE,	/* cached, free */
	GM_BLOCK_FREEING,	/* a free of it is under way: still live until its record changes */
	GM_BLOCK_CACHED,	/* free, in a thread cache and not in the heap's free sets */
	GM_BLOCK_UNMAPPED	/* addresses of a pages heap without memory: whole pages */
};

enum gm_segment_flags {
	GM_SEGMENT_SMALL = 1,		/* PyTorch's small pool; else large */
	GM_SEGMENT_EXPANDABLE = 2,
	GM_SEGMENT_REGISTERED = 4,	/* host memory registered, not allocated: not in the totals */
	GM_SEGMENT_UNMAPPED = 8,	/* a VMM handle without a mapping: address is the handle */
	GM_SEGMENT_HELD = 16		/* of a pool's domain: memory that the pool got, not what it gave */
};

enum gm_block_flags {
	GM_BLOCK_UNTRACED = 1,		/* its allocation left no event (too small): nor will its free */
	GM_BLOCK_DONE = 2		/* being freed, and complete before it was pending */
};

/* Streams that have no handle of their own have keys: a context's legacy default stream, and a thread's
 * default stream in a context (preload/order/order.c). */
#define GM_STREAM_OF_CONTEXT (UINT64_C(1) << 63)
#define GM_STREAM_OF_THREAD (UINT64_C(3) << 62)

/* @stream as a program writes it: 0 for the legacy default stream, 2 (CU_STREAM_PER_THREAD) for a
 * thread's. */
static inline uint64_t gm_stream_shown(uint64_t stream)
{
	return stream < GM_STREAM_OF_CONTEXT ? stream : stream < GM_STREAM_OF_THREAD ? 0 : 2;
}

struct gm_segment {			/* 128 bytes */
	uint64_t address;
	uint64_t size;
	uint64_t stream;		/* CUstream as the program passed it, or the key of a default
					 * stream (gm_stream_shown); 0 none or legacy */
	uint64_t handle;		/* pool, VMM handle or graph it came from; else 0 */
	uint64_t op;			/* operation number of its last change */
	uint64_t tsc;			/* when it was allocated */
	uint32_t first_block;
	uint32_t next, prev;		/* list of the domain's segments; next also links unused ids */
	uint32_t context;		/* id of the CUDA context it dies with; 0: outlives contexts */
	uint32_t stack;
	uint32_t pool_lo, pool_hi;	/* PyTorch's segment_pool_id */
	uint16_t module;
	uint8_t domain;			/* a device, GM_DOMAIN_HOST, or from GM_DOMAIN_POOLS on */
	uint8_t kind;
	uint8_t used;			/* 1: holds a segment */
	uint8_t flags;
	uint8_t reserved8[2];
	_Atomic(uint32_t) heap;		/* number of the heap that caches it; 0: passed through */
	uint32_t reserved32;
	uint64_t reserved64[4];
};

/* Two cache lines. The first says where the block lies, and changes under the domain's lock. The
 * second changes whenever the block is handed out or freed, which a thread may do without that lock
 * (preload/cache/thread_cache.c). So no word that is logged under the lock is written without it,
 * nor the other way round. */
struct gm_block {			/* 128 bytes */
	uint64_t address;
	uint64_t size;			/* bytes the block takes in its segment */
	uint64_t stream;
	uint32_t segment;
	uint32_t prev, next;		/* neighbours in the segment; next also links unused ids */
	uint8_t domain;
	uint8_t kind;
	uint8_t reserved8[2];
	uint64_t reserved64[3];

	uint64_t requested;		/* bytes that were asked for */
	uint64_t tsc;			/* when it was handed out last */
	uint64_t op;			/* operation number of its last change */
	_Atomic(uint8_t) state;		/* enum gm_block_state */
	uint8_t flags;			/* enum gm_block_flags */
	uint16_t module;
	uint32_t thread;		/* tid of the thread that asked for it */
	uint32_t stack;
	uint32_t free_stack;		/* pending: the free's */
	uint64_t free_stream;		/* pending: as given to the free */
	uint32_t name;			/* string id: of what a pool handed out, which the program named */
	/* Of the process alone: a free that waits for the domain's lock (recorder/record/tables.h). */
	_Atomic(uint32_t) late_next;
	uint64_t late;
};

_Static_assert(sizeof(struct gm_segment) == 128, "on-disk layout");
_Static_assert(sizeof(struct gm_block) == 128 && offsetof(struct gm_block, requested) == 64,
	       "on-disk layout");

/*
 * PyTorch's statistics (facts of its memory_stats): each for all, small and large pool.
 *
 * What counts where (@size bytes of a live block of some module and kind in some domain):
 *
 *                            gm_stats   live_bytes[kind]   usage rows
 *   GM_SEGMENT_REGISTERED       -              -           -
 *   GM_KIND_IPC                 -              yes         (module, ipc) (all modules, ipc)
 *   anything else              yes             yes         (module, kind) (all modules, kind)
 *                                                          (module, all kinds)
 *
 * so that the rows (module, all kinds) of a domain add up to its allocated_bytes. A heap's free and
 * pending blocks count in reserved_bytes and in no row. A segment is in the small pool if
 * GM_SEGMENT_SMALL is set, which is decided when it is made: up to GM_SMALL_BYTES, but never for
 * what graphs hold, because its size changes.
 */
#define GM_SMALL_BYTES (UINT64_C(1) << 20)
enum gm_pool_class { GM_POOL_ALL, GM_POOL_SMALL, GM_POOL_LARGE, GM_POOL_CLASSES };
/* What changes together lies together. */
enum gm_stat_name {
	GM_STAT_ALLOCATION, GM_STAT_ALLOCATED_BYTES,
	GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES, GM_STAT_REQUESTED_BYTES,
	GM_STAT_INACTIVE_SPLIT, GM_STAT_INACTIVE_SPLIT_BYTES,
	GM_STAT_SEGMENT, GM_STAT_RESERVED_BYTES, GM_STAT_COUNT
};
struct gm_stat { int64_t current, peak, allocated, freed; };

/* One domain's statistics; changes only inside a transaction. In a pool's domain what the pool handed
 * out is in GM_STAT_ALLOCATION and GM_STAT_ALLOCATED_BYTES, what it holds is in GM_STAT_SEGMENT and
 * GM_STAT_RESERVED_BYTES, and the others stay 0. */
struct gm_stats {
	struct gm_stat stat[GM_STAT_COUNT][GM_POOL_CLASSES];
	struct gm_stat oversize_allocations, oversize_segments;
	int64_t num_alloc_retries, num_ooms, num_sync_all_streams;
	int64_t num_device_alloc, num_device_free, max_split_size;
};

/* Add @in and subtract @out. The sum of all that was ever allocated may pass 2^63 bytes: then it
 * wraps. */
static inline void gm_stat_move(struct gm_stat *stat, uint64_t in, uint64_t out)
{
	stat->current = (int64_t)((uint64_t)stat->current + in - out);
	stat->allocated = (int64_t)((uint64_t)stat->allocated + in);
	stat->freed = (int64_t)((uint64_t)stat->freed + out);
	if (in && stat->current > stat->peak)
		stat->peak = stat->current;
}

/* The same in one class of pools, and in all. */
static inline void gm_stats_move(struct gm_stats *stats, enum gm_pool_class class,
				 enum gm_stat_name name, uint64_t in, uint64_t out)
{
	gm_stat_move(&stats->stat[name][GM_POOL_ALL], in, out);
	gm_stat_move(&stats->stat[name][class], in, out);
}

/* The two arguments of that for a change of either sign. */
static inline uint64_t gm_more(int64_t by)
{
	return by > 0 ? (uint64_t)by : 0;
}

static inline uint64_t gm_less(int64_t by)
{
	return by < 0 ? 0 - (uint64_t)by : 0;
}

/* The words of one statistic, in all its classes. */
#define GM_STAT_WORDS (GM_POOL_CLASSES * sizeof(struct gm_stat) / sizeof(uint64_t))

#endif
