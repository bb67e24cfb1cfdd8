/*
 * table.h - the layout of segments and blocks in memory: a contract with every reader.
 *
 * The tables lie in the journal (recorder/journal/format.h), so that they outlive the process. A segment is one
 * piece of memory from the driver; blocks tile it exactly. Memory of a call that passes through to the driver is a
 * segment with one block.
 *
 * Ids are 32-bit indices into the tables; id 0 means "none", and its record is never used. Every record belongs to
 * one domain (a device, the host, or a pool), and changes only under that domain's lock and inside a transaction
 * (recorder/record/txn.h). There are two exceptions: @state is an atomic byte, which a hook may set to
 * GM_BLOCK_FREEING before it calls the driver; and a thread hands out the blocks in its thread cache without that
 * lock (struct gm_tcache_record in recorder/journal/format.h).
 *
 *   domain 0 ── first_segment ─> segment ─ next ─> segment ─ next ─> 0
 *                                   │ first_block
 *                                   v
 *                                 block ─ next ─> block ─ next ─> 0      (address order, tiling)
 *
 * A pool of the program (recorder/record/pools.h) has its own domain, in which nothing is tiled: each block of the
 * pool is a segment of its own, and so is each piece of memory that the pool holds (GM_SEGMENT_HELD, with one
 * inactive block). Readers put the blocks into the pieces.
 *
 * Sizes are bytes. Stamps are raw clock stamps (struct gm_clock in recorder/journal/format.h).
 */
#ifndef GM_ALLOCATOR_TABLE_H
#define GM_ALLOCATOR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define GM_NONE 0u		/* no segment, block, stack, string or module */
#define GM_MAX_DEVICES 64u
#define GM_DOMAIN_HOST 64u	/* pinned host memory; follows the devices */
#define GM_DOMAIN_POOLS 65u	/* the first pool of the program; up to GM_MAX_POOLS follow */
#define GM_MAX_POOLS 63u
#define GM_DOMAINS 128u

/* The kind of memory. The order is part of the format. */
enum gm_kind {
	GM_KIND_DEVICE,		/* cuMemAlloc, cuMemAllocPitch */
	GM_KIND_MANAGED,	/* cuMemAllocManaged */
	GM_KIND_ARRAY,		/* CUDA arrays, mipmapped arrays; the address is the handle */
	GM_KIND_HOST,		/* pinned host memory, allocated or registered */
	GM_KIND_VMM,		/* cuMemCreate; the address is the first mapping, else the handle */
	GM_KIND_POOL,		/* cuMemAllocAsync, cuMemAllocFromPoolAsync */
	GM_KIND_IPC,		/* imported from another process: the exporter's bytes, not ours */
	GM_KIND_GRAPH,		/* memory of graphs with memory nodes: one record for each device */
	GM_KIND_EXTERNAL,	/* imported external memory and mapped graphics resources */
	GM_KIND_COUNT
};

enum gm_block_state {
	GM_BLOCK_UNUSED,	/* the record holds nothing */
	GM_BLOCK_ACTIVE,	/* PyTorch: active_allocated */
	GM_BLOCK_PENDING,	/* PyTorch: active_pending_free: freed, not yet reusable */
	GM_BLOCK_INACTIVE,	/* cached, free */
	GM_BLOCK_FREEING,	/* its free is under way; live until the record changes */
	GM_BLOCK_CACHED,	/* free, in a thread cache and not in the heap's free sets */
	GM_BLOCK_UNMAPPED	/* whole pages of addresses without memory (pages heap) */
};

enum gm_segment_flags {
	GM_SEGMENT_SMALL = 1,		/* PyTorch's small pool; else large */
	GM_SEGMENT_EXPANDABLE = 2,
	GM_SEGMENT_REGISTERED = 4,	/* host memory that was registered only: not in the totals */
	GM_SEGMENT_UNMAPPED = 8,	/* a VMM handle without a mapping: @address is the handle */
	GM_SEGMENT_HELD = 16		/* in a pool's domain: a piece that the pool holds, not a block */
};

enum gm_block_flags {
	GM_BLOCK_UNTRACED = 1,		/* too small: neither allocation nor free leaves an event */
	GM_BLOCK_DONE = 2		/* its free was complete before the block became pending */
};

/* Keys of streams without a handle of their own: a context's legacy default stream, and a thread's default stream in
 * a context (preload/order/order.c). */
#define GM_STREAM_OF_CONTEXT (UINT64_C(1) << 63)
#define GM_STREAM_OF_THREAD (UINT64_C(3) << 62)

/* Return @stream as a program writes it: 0 for the legacy default stream, 2 (CU_STREAM_PER_THREAD) for a thread's
 * default stream. */
static inline uint64_t gm_stream_shown(uint64_t stream)
{
	return stream < GM_STREAM_OF_CONTEXT ? stream : stream < GM_STREAM_OF_THREAD ? 0 : 2;
}

struct gm_segment {			/* 128 bytes */
	uint64_t address;
	uint64_t size;
	uint64_t stream;		/* CUstream as the program passed it, or the key of a default
					 * stream (gm_stream_shown); 0 none or legacy */
	uint64_t handle;		/* the pool, VMM handle or graph of the memory; else 0 */
	uint64_t op;			/* operation number of its last change */
	uint64_t tsc;			/* when it was allocated */
	uint32_t first_block;
	uint32_t next, prev;		/* list of the domain's segments; next also links unused ids */
	uint32_t context;		/* id of the CUDA context that ends it; 0: outlives contexts */
	uint32_t stack;
	uint32_t pool_lo, pool_hi;	/* PyTorch's segment_pool_id */
	uint16_t module;
	uint8_t domain;			/* a device, GM_DOMAIN_HOST, or from GM_DOMAIN_POOLS on */
	uint8_t kind;
	uint8_t used;			/* 1: holds a segment */
	uint8_t flags;
	uint8_t reserved8[2];
	_Atomic(uint32_t) heap;		/* number of its heap; 0: the driver serves it */
	uint32_t reserved32;
	uint64_t reserved64[4];
};

/* Two cache lines. The first says where the block lies, and changes only under the domain's lock. The second changes
 * whenever the block is handed out or freed, which a thread may do without that lock (preload/cache/thread_cache.c).
 * So a word that is logged under the lock is never written without it, and the other way round. */
struct gm_block {			/* 128 bytes */
	uint64_t address;
	uint64_t size;			/* bytes that the block takes in its segment */
	uint64_t stream;
	uint32_t segment;
	uint32_t prev, next;		/* neighbours in the segment; next also links unused ids */
	uint8_t domain;
	uint8_t kind;
	uint8_t reserved8[2];
	/* For the writer only: the row (struct gm_site in recorder/journal/format.h) in which the block counts. */
	uint32_t site, site_stack;	/* the row and its stack; 0: none */
	uint64_t site_bytes;		/* the bytes that the block counts there */
	uint64_t reserved64;

	uint64_t requested;		/* bytes that the program asked for */
	uint64_t tsc;			/* when the block was last handed out */
	uint64_t op;			/* operation number of its last change */
	_Atomic(uint8_t) state;		/* enum gm_block_state */
	uint8_t flags;			/* enum gm_block_flags */
	uint16_t module;
	uint32_t thread;		/* tid of the thread that asked for the block */
	uint32_t stack;
	uint32_t free_stack;		/* pending: the stack of the free */
	uint64_t free_stream;		/* pending: the stream that the free was given */
	uint32_t name;			/* string id: the program's name for a pool's block */
	/* For this process only: a free that waits for the domain's lock (recorder/record/tables.h). */
	_Atomic(uint32_t) late_next;
	uint64_t late;
};

_Static_assert(sizeof(struct gm_segment) == 128, "on-disk layout");
_Static_assert(sizeof(struct gm_block) == 128 && offsetof(struct gm_block, requested) == 64,
	       "on-disk layout");

/*
 * PyTorch's statistics (memory_stats), each for all memory, the small pool and the large pool.
 *
 * A live block of a module and a kind counts its bytes in these places of its domain:
 *
 *                            gm_stats   live_bytes[kind]   usage rows
 *   GM_SEGMENT_REGISTERED       -              -           -
 *   GM_KIND_IPC                 -              yes         (module, ipc) (all modules, ipc)
 *   anything else              yes             yes         (module, kind) (all modules, kind)
 *                                                          (module, all kinds)
 *
 * So the rows (module, all kinds) of a domain add up to its allocated_bytes. A heap's free and pending blocks count
 * in reserved_bytes and in no row. A segment is in the small pool if GM_SEGMENT_SMALL is set. This is decided when
 * the segment is made: it is small up to GM_SMALL_BYTES. Memory of graphs is never small, because its size changes.
 */
#define GM_SMALL_BYTES (UINT64_C(1) << 20)
enum gm_pool_class { GM_POOL_ALL, GM_POOL_SMALL, GM_POOL_LARGE, GM_POOL_CLASSES };
/* Statistics that change together lie together. */
enum gm_stat_name {
	GM_STAT_ALLOCATION, GM_STAT_ALLOCATED_BYTES,
	GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES, GM_STAT_REQUESTED_BYTES,
	GM_STAT_INACTIVE_SPLIT, GM_STAT_INACTIVE_SPLIT_BYTES,
	GM_STAT_SEGMENT, GM_STAT_RESERVED_BYTES, GM_STAT_COUNT
};
struct gm_stat { int64_t current, peak, allocated, freed; };

/* The statistics of one domain, which change only inside a transaction. In a pool's domain GM_STAT_ALLOCATION and
 * GM_STAT_ALLOCATED_BYTES count the pool's blocks, GM_STAT_SEGMENT and GM_STAT_RESERVED_BYTES count its pieces, and
 * the others stay 0. */
struct gm_stats {
	struct gm_stat stat[GM_STAT_COUNT][GM_POOL_CLASSES];
	struct gm_stat oversize_allocations, oversize_segments;
	int64_t num_alloc_retries, num_ooms, num_sync_all_streams;
	int64_t num_device_alloc, num_device_free, max_split_size;
};

/* Add @in and subtract @out. The total that was ever allocated may exceed 2^63 bytes and wrap. */
static inline void gm_stat_move(struct gm_stat *stat, uint64_t in, uint64_t out)
{
	stat->current = (int64_t)((uint64_t)stat->current + in - out);
	stat->allocated = (int64_t)((uint64_t)stat->allocated + in);
	stat->freed = (int64_t)((uint64_t)stat->freed + out);
	if (in && stat->current > stat->peak)
		stat->peak = stat->current;
}

/* As gm_stat_move, for one class of pools and for all. */
static inline void gm_stats_move(struct gm_stats *stats, enum gm_pool_class class,
				 enum gm_stat_name name, uint64_t in, uint64_t out)
{
	gm_stat_move(&stats->stat[name][GM_POOL_ALL], in, out);
	gm_stat_move(&stats->stat[name][class], in, out);
}

/* Split a change of either sign into the arguments @in and @out. */
static inline uint64_t gm_more(int64_t by)
{
	return by > 0 ? (uint64_t)by : 0;
}

static inline uint64_t gm_less(int64_t by)
{
	return by < 0 ? 0 - (uint64_t)by : 0;
}

/* How many words one statistic has, in all its classes. */
#define GM_STAT_WORDS (GM_POOL_CLASSES * sizeof(struct gm_stat) / sizeof(uint64_t))

#endif
