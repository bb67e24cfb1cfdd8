/*
 * format.h - the layout of the journal's file: the contract between the writer in the program and
 * every reader (the snapshot writer, gpumem recover, gpumem snapshot PID).
 *
 * The journal is one sparse file, which the program maps MAP_SHARED. Offsets are bytes from the start
 * of the file. Integers have the byte order of the machine that wrote them (@byte_order). Readers never
 * map the file: they pread it into private memory, and check every offset before they follow it.
 *
 *   +0        struct gm_header                                   (GM_HEADER_BYTES)
 *   regions[GM_REGION_DOMAINS]   struct gm_domain []             statistics, undo area: the devices,
 *                                                                the host, pools as they are made
 *   regions[GM_REGION_THREADS]   struct gm_thread []             who writes, what is in flight
 *   regions[GM_REGION_SEGMENTS]  struct gm_segment []            allocator/table.h, id 0 unused
 *   regions[GM_REGION_BLOCKS]    struct gm_block []              allocator/table.h, id 0 unused
 *   regions[GM_REGION_USAGE]     struct gm_usage []              bytes by module and by kind
 *   regions[GM_REGION_MODULES]   struct gm_module []             index = module id, id 0 unused
 *   regions[GM_REGION_STRINGS]   struct gm_string ...            append-only, id = offset in it
 *   regions[GM_REGION_STACKS]    struct gm_stack ...             append-only, id = offset in it
 *   regions[GM_REGION_FRAMES]    struct gm_frame []              append-only, id = index, 0 unused
 *   regions[GM_REGION_SETTINGS]  struct gm_setting []            effective options
 *   regions[GM_REGION_FAILURES]  struct gm_failure []            a ring: failed allocations
 *   regions[GM_REGION_EVENTS]    4 KiB chunks                    see struct gm_chunk
 *   regions[GM_REGION_TCACHES]   struct gm_tcache_record []      counts and undo areas of thread caches
 *   regions[GM_REGION_LIVES]     struct gm_live []               live blocks of application pools
 *   regions[GM_REGION_SITES]     struct gm_site []               live bytes by stack, now and at the peak
 *
 * Publication: an append-only record is complete before @used passes it (release). No record refers to
 * a string, stack or module that is not yet published. A region is backed by memory up to @populated;
 * no byte beyond @populated may be read or written.
 *
 * Transactions: the writer changes the tables of a domain under that domain's lock. Before it stores a
 * word, it puts (offset, old word) into the domain's undo area. @undo_op is the operation number during
 * the change; the writer clears it last. A reader that finds @undo_op set applies the entries backwards
 * to its private copy, and drops the domain's events with that operation number. This is exact, because:
 *   - every transaction has its own operation number: an operation with several transactions (the end of
 *     a context) takes a new number for each, and its flight keeps the first;
 *   - the events of a transaction are written within it, under the domain's lock, into the writer's
 *     chunk, so a reader that holds all domain locks never sees half a transaction;
 *   - entries name aligned words of the regions DOMAINS (before @undo_op), SEGMENTS, BLOCKS, USAGE, SITES
 *     and TCACHES (before @undo_op) only; readers accept any other word (a region's @used) as a dead writer
 *     left it;
 *   - a record that becomes unused keeps, in @op, the operation that freed it;
 *   - the lists of a domain's segments and of unused ids are for the writer only: an interrupted
 *     transaction may leave them wrong, and no reader follows them.
 * A thread cache has its own undo area, for changes that its thread makes without the domain's lock: one
 * block's state, one tally, and their events. A transaction of the domain that changes a tally keeps the
 * thread out of its caches meanwhile, so no two undo areas name the same word.
 *
 * The tallies count the blocks that went through thread caches. A reader of statistics, usage rows or live bytes adds
 * the tallies.
 *
 * Events are ordered by (stamp, thread slot, place in the thread's chunks). To reuse a chunk, the writer
 * first raises @horizon to the chunk's @last_tsc, then increments @generation, then sets the rest of the
 * chunk's head.
 */
#ifndef GM_RECORDER_FORMAT_H
#define GM_RECORDER_FORMAT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/table.h"
#include "recorder/journal/control.h"

#define GM_MAGIC UINT64_C(0x314c4e4a4d555047)	/* "GPUMJNL1"; stored last, when the journal is complete */
#define GM_FORMAT_VERSION 11u
#define GM_BYTE_ORDER 0x01020304u
#define GM_HEADER_BYTES 16384u
#define GM_PAGE 4096u		/* page of the layout; the kernel's pages may be larger */
#define GM_CHUNK_BYTES 4096u
#define GM_CHUNK_EVENTS 63u		/* the first 64 bytes are struct gm_chunk */
#define GM_UNDO_ENTRIES 238u
#define GM_MAX_THREADS 4096u
#define GM_MAX_MODULES 16384u
#define GM_MAX_TCACHES 2048u
#define GM_USAGE_ROWS 8192u

static inline uint64_t gm_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gm_whole_pages(uint64_t bytes)
{
	return (bytes + GM_PAGE - 1) / GM_PAGE * GM_PAGE;
}

enum gm_region_id {
	GM_REGION_DOMAINS, GM_REGION_THREADS, GM_REGION_SEGMENTS, GM_REGION_BLOCKS,
	GM_REGION_USAGE, GM_REGION_MODULES, GM_REGION_STRINGS, GM_REGION_STACKS,
	GM_REGION_FRAMES, GM_REGION_SETTINGS, GM_REGION_FAILURES, GM_REGION_EVENTS,
	GM_REGION_TCACHES, GM_REGION_LIVES, GM_REGION_SITES,
	GM_REGION_COUNT
};

struct gm_region {			/* 64 bytes */
	uint64_t offset;		/* page aligned */
	uint64_t capacity;		/* bytes to which it may grow */
	_Atomic(uint64_t) used;		/* bytes ever in use */
	_Atomic(uint64_t) populated;	/* bytes that are backed by memory */
	_Atomic(uint64_t) refused;	/* records that found no room */
	uint32_t item_bytes;		/* of one record; 0: their lengths vary */
	uint32_t reserved32;
	uint64_t reserved64[2];
};

/* What happened, by PyTorch's names. The order is part of the format. */
enum gm_action {
	GM_ACTION_NONE, GM_ACTION_ALLOC, GM_ACTION_FREE_REQUESTED, GM_ACTION_FREE_COMPLETED,
	GM_ACTION_SEGMENT_ALLOC, GM_ACTION_SEGMENT_FREE, GM_ACTION_SEGMENT_MAP,
	GM_ACTION_SEGMENT_UNMAP, GM_ACTION_OOM, GM_ACTION_SNAPSHOT, GM_ACTION_ANNOTATE,
	GM_ACTION_COUNT
};

/* What an annotation marks (@flags of its event): a point in time, or the start or end of a range. */
enum gm_stage { GM_STAGE_MARK, GM_STAGE_START, GM_STAGE_END, GM_STAGE_COUNT };

/* What is recorded. ALL: events, and live memory with its stacks; STATE: live memory with its stacks;
 * NONE: live memory without stacks. */
enum gm_history_enabled { GM_HISTORY_ALL, GM_HISTORY_STATE, GM_HISTORY_NONE, GM_HISTORY_COUNT };

/* Which records get a stack. NONE: no record; STATE: live memory; ALLOC: also events, where a free has the
 * stack of its allocation; ALL: also events, where a free has its own stack. */
enum gm_history_context { GM_CONTEXT_NONE, GM_CONTEXT_STATE, GM_CONTEXT_ALLOC, GM_CONTEXT_ALL };

/* Module, domain and kind of an event or a line (struct gm_live). @whose is the same three as one word. */
#define GM_WHOSE \
	union { \
		struct { uint16_t module; uint8_t domain, kind; }; \
		uint32_t whose; \
	}

static inline uint32_t gm_whose(uint16_t module, uint8_t domain, uint8_t kind)
{
	return (uint32_t)kind << 24 | (uint32_t)domain << 16 | module;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "gm_whose and struct gm_event agree");

/*
 * One event. @commit is stored last (release): (generation of the chunk << 8) + place in the chunk
 * (1..63). With any other value the record is not complete.
 */
struct gm_event {			/* 64 bytes */
	_Atomic(uint64_t) commit;
	uint64_t tsc;
	uint64_t op;			/* number of its operation */
	uint64_t address;		/* oom: free bytes of the device, as PyTorch's device_free */
	uint64_t size;			/* bytes; free: the bytes that the allocation requested;
					 * annotate: number of a range that need not nest, else 0 */
	uint64_t stream;
	uint32_t stack;			/* offset in STACKS; annotate: string id */
	uint32_t context;		/* annotate: string id of the text's scope, or 0 */
	GM_WHOSE;
	union {
		struct {
			uint8_t action;
			uint8_t flags;	/* annotate: enum gm_stage; GM_FREE_AT_ONCE */
			uint16_t reserved16;
		};
		uint32_t how;		/* the same members as one word */
	};
};

/* In @flags of a GM_ACTION_FREE_COMPLETED: the record stands for two events. Before it readers insert a
 * GM_ACTION_FREE_REQUESTED, whose other members are the same. */
#define GM_FREE_AT_ONCE 1u

/* Head of a chunk of events. An open chunk has one thread as its owner, a closed chunk has none. Threads
 * without a slot or a chunk share one chunk (GM_CHUNK_SHARED), which belongs to slot 0. The thread of an event
 * in the shared chunk is the slot in the event's operation number; slot 0: not known. */
struct gm_chunk {			/* 64 bytes */
	_Atomic(uint64_t) generation;	/* how often the chunk has been opened */
	_Atomic(uint32_t) state;	/* enum gm_chunk_state */
	uint32_t slot;			/* thread slot of the owner */
	uint32_t tid;			/* of the owner, in the pid namespace of the process */
	uint32_t count;			/* in a copy: how many events had been written when it was made */
	uint64_t first_tsc;		/* when the chunk was opened; no event has this stamp */
	_Atomic(uint64_t) last_tsc;	/* the latest stamp of its events */
	uint64_t reserved64[3];
};
enum gm_chunk_state { GM_CHUNK_FREE, GM_CHUNK_OPEN, GM_CHUNK_CLOSED, GM_CHUNK_SHARED };

/* One thread that writes. Operation number = (slot << GM_OP_SLOT_SHIFT) | counter, counter from 1.
 * Slot 0 belongs to no thread: it numbers the operations of threads without a slot, which have no
 * flight. */
#define GM_OP_SLOT_SHIFT 40
struct gm_thread {			/* 128 bytes */
	_Atomic(uint32_t) tid;		/* 0: the slot is free */
	_Atomic(uint32_t) chunk;	/* index + 1 of its open chunk; 0: none */
	char name[16];
	_Atomic(uint64_t) operations;	/* number of the last operation begun */
	_Atomic(uint64_t) events;	/* ever written, by all owners of the slot; lacks most events of pools */
	/* The operation under way, unless flight_op is 0. flight_op is stored last and cleared last. */
	_Atomic(uint64_t) flight_op;
	uint64_t flight_address;
	uint64_t flight_size;
	uint64_t flight_tsc;
	uint8_t flight_action, flight_kind, flight_domain;
	uint8_t reserved8[5];
	/* The change of a pool's table under way (struct gm_live), unless pool_op is 0. */
	_Atomic(uint64_t) pool_op;	/* stored after @pool_address, cleared when the table has changed */
	uint64_t pool_address;		/* of the block; GM_LIVE_ENDING set: the block ends; else it begins */
	uint64_t reserved64[4];
};

/* The offset and the old value of an aligned 8-byte word of the file. An entry with GM_UNDO_RANGE in
 * @offset describes a range: @old is the number of its words, @offset without that bit is the first, and
 * the entries that follow hold the old values, two in each. */
struct gm_undo_entry { uint64_t offset, old; };
#define GM_UNDO_RANGE (UINT64_C(1) << 63)

/* Counts the blocks of one size, module and kind that a thread cache took in and handed out again; all
 * are of the small pool. The domain's statistics, rows and live bytes count a block in a thread cache as
 * live; a reader adds @takes and subtracts @puts. */
#define GM_TALLIES 16u
struct gm_tally {			/* 64 bytes; changes only inside a transaction */
	uint64_t takes, puts;		/* blocks that the cache handed out; that it took in */
	uint64_t taken_bytes, put_bytes;	/* bytes that the program asked for */
	uint64_t size;
	uint16_t module;
	uint8_t kind;
	uint8_t reserved8[5];
	uint64_t reserved64[2];
};
#define GM_TALLY_WORDS 4		/* words that counting changes */

/* Counts of a domain's events. A reader adds the counts of the domain's thread caches. */
struct gm_event_counts {
	_Atomic(uint64_t) events;	/* ever written, kept or not */
	/* not written: for small blocks; for actions left out by option; while switched off */
	_Atomic(uint64_t) small, left_out, paused;
};

/* The thread cache of one thread in one domain. Its thread changes it without the domain's lock. Item 0
 * is unused. */
#define GM_TCACHE_UNDO 3u
struct gm_tcache_record {		/* 1280 bytes */
	uint32_t slot;			/* of the thread, in THREADS */
	uint8_t domain;
	uint8_t reserved8[3];
	struct gm_event_counts counts;
	uint64_t reserved64[3];
	struct gm_tally tallies[GM_TALLIES];
	/* the transaction under way; last in the record */
	_Atomic(uint64_t) undo_op;
	_Atomic(uint32_t) undo_count;
	uint32_t undo_reserved;
	struct gm_undo_entry undo[GM_TCACHE_UNDO];
	uint64_t reserved_end[16];
};

/* A block that an application pool handed out (recorder/record/lives.h): one cache line. The line holds a
 * block while @address is not 0 and has neither of its two highest bits set. Storing @address, last of all,
 * begins the block; storing 0 ends it. A change of a line and its events have one operation number. When a
 * process died during a change (pool_op of struct gm_thread) and before that last store, readers take the
 * change back: they drop its events, and count a block with GM_LIVE_ENDING as live. */
#define GM_LIVE_ENDING (UINT64_C(1) << 63)	/* in @address: its thread is ending the block */
#define GM_LIVE_BEGINNING (UINT64_C(1) << 62)	/* in @address: its thread is filling in the line */
struct gm_live {			/* 64 bytes */
	_Atomic(uint64_t) address;
	uint64_t size;			/* bytes, as the pool reported */
	uint64_t stream;
	uint64_t tsc;			/* when the block was handed out */
	uint64_t op;			/* operation that handed the block out */
	uint32_t stack;
	uint32_t thread;		/* tid of the thread that asked for the block */
	uint32_t name;			/* string id: the program's name for the block; 0: none */
	GM_WHOSE;			/* @kind: enum gm_kind of the memory below the block */
	uint32_t site;			/* row of SITES that counts the block; 0: none */
	/* Belongs to the line, not to its block: the most lines behind this one at which a block that hashes to this
	 * line lies. For the writer only. */
	_Atomic(uint32_t) reach;
};

/*
 * The live bytes of one stack, module and kind in one domain, as requested by the program; and the same at the domain's
 * peak, even if the history no longer has the events of that time.
 *
 * A domain's total is requested_bytes of a device, or @live_bytes of a pool. Its peak is the first time at which the
 * total reached its maximum. Each peak has a number. The word @peak of the domain holds the number and the total of the
 * newest numbered peak. Before the total falls from a value above that one, the writer stores this value and the next
 * number in the word. So a rising run of allocations does not touch the word. Before @live of a row changes for the
 * first time after a peak, the writer stores the old @live and the peak's number in @saved. So at the peak the row had
 *
 *   @live                     if the total is above the one in @peak: the peak is now
 *   the bytes in @saved       else, if @saved has the same number as @peak
 *   @live                     else: the row has not changed since the peak
 *
 * The number has 20 bits, so numbers repeat after a million peaks. The writer that makes the first number of each half
 * of them clears the numbers of the other half in all rows of the domain.
 *
 * A device's rows change under its lock. @live is part of the transaction. @saved and @peak need no undo, because they
 * describe the state before the change. A pool's rows change by atomic additions and compare-and-swaps without a lock,
 * so a row may or may not include a block that is handed out or taken back just at the peak. For pools readers of a
 * copy add up the lines instead of using @live. A block in a thread cache counts in the row in which it was when the
 * cache was last flushed.
 */
#define GM_SITE_USED (UINT64_C(1) << 63)
#define GM_SITE_NUMBER_BITS 20u
#define GM_SITE_NUMBER ((UINT64_C(1) << GM_SITE_NUMBER_BITS) - 1)	/* 0: none */
#define GM_SITE_BYTES_MOST (UINT64_MAX >> GM_SITE_NUMBER_BITS)
struct gm_site {			/* 32 bytes */
	uint64_t key;			/* gm_site_key; set before the row is published, and never changed */
	_Atomic(int64_t) live;
	_Atomic(uint64_t) saved;	/* bytes << GM_SITE_NUMBER_BITS | number */
	uint32_t next;			/* next row in the list of its stack; for the writer only */
	_Atomic(uint32_t) held;		/* 1: an application pool holds memory that was allocated there */
};

static inline uint64_t gm_site_key(uint8_t domain, uint32_t stack, uint16_t module, uint8_t kind)
{
	return GM_SITE_USED | (uint64_t)kind << 56 | (uint64_t)domain << 48 | (uint64_t)module << 32 | stack;
}

static inline unsigned int gm_site_domain(const struct gm_site *site)
{
	return (unsigned int)(site->key >> 48) & 0xff;
}

static inline unsigned int gm_site_kind(const struct gm_site *site)
{
	return (unsigned int)(site->key >> 56) & 0x7f;
}

/* The blocks of one class (small or large) that a pool has handed out and taken back since it began. Any thread adds to
 * these counters. Live is the difference, given - taken. */
struct gm_pool_sums {
	_Atomic(int64_t) given_blocks, given_bytes, taken_blocks, taken_bytes;
};
struct gm_pool_counts {			/* 64 bytes */
	struct gm_pool_sums sums;
	_Atomic(int64_t) peak_blocks, peak_bytes;	/* of the live blocks */
	uint64_t reserved64[2];
};

/* An application pool, in its own domain (allocator/table.h). Not part of transactions. In a copy the pool's lines
 * decide which blocks are live, and the reader sets the @taken counters accordingly. */
enum gm_pool_source { GM_POOL_NONE, GM_POOL_LIBC10, GM_POOL_NVTX, GM_POOL_API, GM_POOL_SOURCES };
struct __attribute__((aligned(64))) gm_pool {
	struct gm_pool_counts classes[2];	/* small blocks, large blocks */
	_Atomic(int64_t) peak_blocks, peak_bytes;	/* both classes together */
	/* Events that were not written: a block leaves one when it begins and two when it ends. */
	_Atomic(uint64_t) unwritten;
	struct gm_pool_sums reset[2];	/* @sums at the last reset of the totals: small, large */
	uint32_t source;		/* enum gm_pool_source; stored after @device and @name */
	uint32_t device;		/* CUDA ordinal, which is the number of the device's domain */
	uint32_t name;			/* string id */
	uint32_t reserved32;
	uint64_t key;			/* tells pools of one name apart: an address in the program */
	_Atomic(uint64_t) outside;	/* blocks at addresses where the device has no known segment */
	_Atomic(uint64_t) unknown_frees;	/* frees of addresses where no block was live */
	_Atomic(uint64_t) double_allocations;	/* of an address still handed out; ended the older block */
	_Atomic(uint64_t) lost;		/* calls not recorded, for lack of room or of a lock */
	/* the pool's own figures at its last call; 0: the pool reports none */
	_Atomic(uint64_t) told_allocated_bytes, told_reserved_bytes;
	_Atomic(int64_t) live_bytes;	/* now, of both classes: struct gm_site */
	uint64_t reserved64[3];
};

static inline int64_t gm_pool_live(int64_t given, int64_t taken)
{
	return (int64_t)((uint64_t)given - (uint64_t)taken);
}

static inline int64_t gm_pool_live_blocks(const struct gm_pool_counts *class)
{
	return gm_pool_live(class->sums.given_blocks, class->sums.taken_blocks);
}

static inline int64_t gm_pool_live_bytes(const struct gm_pool_counts *class)
{
	return gm_pool_live(class->sums.given_bytes, class->sums.taken_bytes);
}

/* Add @part to @all, except the peak. */
static inline void gm_stat_join(struct gm_stat *all, const struct gm_stat *part)
{
	all->current = (int64_t)((uint64_t)all->current + (uint64_t)part->current);
	all->allocated = (int64_t)((uint64_t)all->allocated + (uint64_t)part->allocated);
	all->freed = (int64_t)((uint64_t)all->freed + (uint64_t)part->freed);
}

/* Compute the statistics of a pool's blocks in @stats, the statistics of the pool's domain. */
static inline void gm_pool_count(const struct gm_pool *pool, struct gm_stats *stats)
{
	struct gm_stat *blocks = stats->stat[GM_STAT_ALLOCATION], *bytes = stats->stat[GM_STAT_ALLOCATED_BYTES];

	blocks[GM_POOL_ALL] = (struct gm_stat){ .peak = pool->peak_blocks };
	bytes[GM_POOL_ALL] = (struct gm_stat){ .peak = pool->peak_bytes };
	for (unsigned int i = 0; i < 2; i++) {
		const struct gm_pool_counts *class = &pool->classes[i];
		const struct gm_pool_sums *now = &class->sums, *reset = &pool->reset[i];

		blocks[GM_POOL_SMALL + i] = (struct gm_stat){
			.current = gm_pool_live_blocks(class), .peak = class->peak_blocks,
			.allocated = gm_pool_live(now->given_blocks, reset->given_blocks),
			.freed = gm_pool_live(now->taken_blocks, reset->taken_blocks),
		};
		bytes[GM_POOL_SMALL + i] = (struct gm_stat){
			.current = gm_pool_live_bytes(class), .peak = class->peak_bytes,
			.allocated = gm_pool_live(now->given_bytes, reset->given_bytes),
			.freed = gm_pool_live(now->taken_bytes, reset->taken_bytes),
		};
		gm_stat_join(&blocks[GM_POOL_ALL], &blocks[GM_POOL_SMALL + i]);
		gm_stat_join(&bytes[GM_POOL_ALL], &bytes[GM_POOL_SMALL + i]);
	}
}

struct gm_domain {			/* 8192 bytes: a device, the host, or a pool */
	/* the device */
	uint32_t present;		/* 1: seen by the program */
	int32_t ordinal;		/* CUdevice */
	char name[128];
	uint8_t uuid[16];
	uint64_t total_bytes;
	/* sampled by cuMemGetInfo; not part of transactions */
	_Atomic(uint64_t) free_bytes;
	/* bytes that were in use at that sample but not recorded */
	_Atomic(int64_t) unattributed_bytes;
	_Atomic(uint64_t) free_stamp;	/* stamp of that sample; 0: none yet */
	/* the tables of this domain */
	uint32_t first_segment, last_segment;
	uint32_t unused_segments, unused_blocks;	/* lists of free ids; in a pool's domain pairs stay pairs */
	struct gm_event_counts counts;
	uint64_t live_bytes[GM_KIND_COUNT];	/* without registered host memory; of a pool 0 */
	struct gm_stats stats;
	uint64_t stats_resets;		/* how often the accumulated counters were reset */
	_Atomic(uint64_t) peak;		/* the newest numbered peak (struct gm_site): total and number */
	_Atomic(uint64_t) peak_tsc;	/* when it got its number, because the total was about to fall */
	struct gm_pool pool;		/* all 0 unless the domain is a pool's */
	/* the transaction under way; last in the record */
	_Atomic(uint64_t) undo_op;
	_Atomic(uint32_t) undo_count;
	uint32_t undo_reserved;
	struct gm_undo_entry undo[GM_UNDO_ENTRIES];
};

/* Bytes by module and by kind, live and at peak. There are rows for (module, kind), (all modules, kind)
 * and (module, all kinds); allocator/table.h says which memory counts where. Row 0 is unused. */
#define GM_USAGE_ALL_MODULES 0xffffu
#define GM_USAGE_ALL_KINDS 0xffu
struct gm_usage {			/* 64 bytes; changes only inside a transaction of @domain */
	uint32_t used;
	uint16_t module;		/* GM_USAGE_ALL_MODULES */
	uint8_t domain;
	uint8_t kind;			/* GM_USAGE_ALL_KINDS */
	int64_t current_bytes, peak_bytes;
	int64_t allocated_bytes, freed_bytes;	/* accumulated */
	int64_t allocations, frees;
	uint64_t reserved64;
};

/* How many blocks began to live, how many ended, and their bytes. */
struct gm_flow { uint64_t in, in_bytes, out, out_bytes; };

#define GM_USAGE_WORDS 6		/* words that gm_usage_move changes, from @current_bytes on */
static inline void gm_usage_move(struct gm_usage *row, const struct gm_flow *flow)
{
	row->current_bytes = (int64_t)((uint64_t)row->current_bytes + flow->in_bytes -
				       flow->out_bytes);
	row->allocated_bytes = (int64_t)((uint64_t)row->allocated_bytes + flow->in_bytes);
	row->freed_bytes = (int64_t)((uint64_t)row->freed_bytes + flow->out_bytes);
	row->allocations = (int64_t)((uint64_t)row->allocations + flow->in);
	row->frees = (int64_t)((uint64_t)row->frees + flow->out);
	if (flow->in_bytes && row->current_bytes > row->peak_bytes)
		row->peak_bytes = row->current_bytes;
}

/* Return a tally as a flow. gm_tally_count adds the tally to the statistics. */
static inline struct gm_flow gm_tally_flow(const struct gm_tally *tally)
{
	return (struct gm_flow){ tally->takes, tally->takes * tally->size, tally->puts,
				 tally->puts * tally->size };
}

static inline void gm_tally_count(const struct gm_tally *tally, struct gm_stats *stats)
{
	struct gm_flow flow = gm_tally_flow(tally);

	gm_stats_move(stats, GM_POOL_SMALL, GM_STAT_ALLOCATION, flow.in, flow.out);
	gm_stats_move(stats, GM_POOL_SMALL, GM_STAT_ALLOCATED_BYTES, flow.in_bytes, flow.out_bytes);
	gm_stats_move(stats, GM_POOL_SMALL, GM_STAT_ACTIVE, flow.in, flow.out);
	gm_stats_move(stats, GM_POOL_SMALL, GM_STAT_ACTIVE_BYTES, flow.in_bytes, flow.out_bytes);
	gm_stats_move(stats, GM_POOL_SMALL, GM_STAT_REQUESTED_BYTES, tally->taken_bytes,
		      tally->put_bytes);
}

struct gm_module {			/* 128 bytes */
	uint64_t base;			/* l_addr */
	uint64_t start, end;		/* mapped range */
	uint64_t load_tsc;		/* when the module was first seen */
	_Atomic(uint64_t) unload_tsc;	/* when it was found to be unloaded; 0: loaded */
	uint32_t path;			/* string id */
	uint8_t build_id_bytes;
	uint8_t build_id[32];
	uint8_t reserved8[3];
	uint64_t reserved64[6];
};

struct gm_string {			/* 8-byte aligned; id = its offset in the region, from 8 */
	uint32_t length;		/* bytes without the NUL */
	uint32_t hash;
	char text[];			/* UTF-8 as found, then NUL, padded to 8 */
};

struct gm_stack {			/* 8-byte aligned; id = its offset in the region, from 8 */
	uint32_t hash;
	uint16_t count;
	uint16_t flags;			/* 1: truncated */
	_Atomic(uint32_t) sites;	/* index of its newest row of SITES; for the writer only */
	uint32_t frames[];		/* frame ids, innermost first */
};

enum gm_frame_flags { GM_FRAME_PYTHON = 1 };

struct gm_frame {			/* 48 bytes */
	uint64_t offset;		/* native: address in the module's file; Python: instruction */
	uint32_t module;
	uint32_t name;			/* string id, 0: not resolved */
	uint32_t filename;
	uint32_t line;
	uint32_t flags;			/* enum gm_frame_flags */
	uint32_t reserved32;
	uint64_t reserved64[2];
};

/* The name of a setting that is no option of ours: PyTorch's setting for its own allocator. */
#define GM_SETTING_TORCH "PYTORCH_CUDA_ALLOC_CONF"
struct gm_setting { uint32_t name, value, source, reserved32; };	/* string ids */

enum gm_limit { GM_LIMIT_NONE, GM_LIMIT_MEMORY, GM_LIMIT_FRACTION, GM_LIMIT_CALL, GM_LIMIT_CTL, GM_LIMIT_COUNT };

struct gm_failure {			/* 256 bytes: a failed allocation */
	_Atomic(uint64_t) number;	/* 1, 2, ...; stored last */
	uint64_t tsc;
	uint64_t requested_bytes;
	uint64_t free_bytes, total_bytes;	/* of the device, as the driver said after the failure */
	uint64_t live_bytes;		/* recorded in that domain */
	uint64_t stream;
	int32_t result;			/* CUresult */
	uint32_t stack;
	uint32_t tid;
	uint16_t module;
	uint8_t domain, kind;
	char entry[48];			/* name of the driver's function, NUL terminated */
	/* The cache of the device at the instant of the failure, in bytes; 0 with allocator:native. */
	uint64_t reserved_bytes;	/* taken from the driver */
	uint64_t cached_bytes;		/* free for any request */
	uint64_t limbo_bytes;		/* freed, but perhaps still in use by the GPU */
	uint64_t largest_free_bytes;	/* the largest block of @cached_bytes */
	/* Our own limit that refused the call without asking the driver (enum gm_limit). */
	uint64_t limit_bytes, limit_used_bytes;	/* the limit; the bytes used of it */
	uint32_t limit;
	uint32_t capturing;		/* 1: some stream of the process captured then */
	uint64_t reserved64[10];
};

/* Two pairs that convert stamps to wall clock. The helper thread refreshes the second; @sequence is odd
 * while it does. */
struct gm_clock {
	_Atomic(uint32_t) sequence;
	uint32_t source;		/* 0: TSC; 1: CLOCK_MONOTONIC ns */
	uint64_t stamp[2];
	uint64_t wall_ns[2];		/* CLOCK_REALTIME; [0] first pair, [1] latest pair */
	uint64_t monotonic_ns[2];
};

enum gm_request { GM_REQUEST_NONE, GM_REQUEST_SIGNAL, GM_REQUEST_OUTSIDE, GM_REQUEST_API,
		  GM_REQUEST_OOM, GM_REQUEST_EXIT, GM_REQUEST_CRASH };

enum gm_life { GM_LIFE_RUNNING = 1, GM_LIFE_EXITING, GM_LIFE_CLEAN, GM_LIFE_CRASHED };

#define GM_CRASH_WRITTEN(inode) ((uint32_t)(inode) ? (uint32_t)(inode) : 1u)

struct gm_header {			/* at offset 0; padded to GM_HEADER_BYTES */
	_Atomic(uint64_t) magic;
	uint32_t version;
	uint32_t byte_order;
	uint32_t header_bytes;
	uint32_t region_count;
	uint64_t file_bytes;
	struct gm_region regions[GM_REGION_COUNT];

	/* who */
	int64_t pid;			/* in its own pid namespace */
	uint64_t pid_namespace;		/* inode of /proc/self/ns/pid, 0 unknown */
	uint64_t start_ticks;		/* field 22 of /proc/self/stat, 0 unknown */
	uint64_t start_time_us;		/* wall clock at the start of the journal */
	uint32_t uid;
	int32_t rank;			/* -1: none */
	int32_t driver_version;
	uint32_t header_reserved;
	char boot_id[40];
	char host[64];
	char command[64];		/* %c: the basename of argv[0] */
	char command_line[1024];	/* arguments joined by blanks, cut at the end */
	char directory[1024];		/* working directory at the first CUDA call */
	char output[1024];		/* the output template, absolute */
	char gpumem_version[32];

	struct gm_clock clock;

	/* life: the helper thread holds @alive, a robust, process-shared mutex, while the process lives */
	_Atomic(uint32_t) life;		/* enum gm_life */
	_Atomic(uint32_t) has_helper;	/* 1: @alive is held by a helper thread */
	union {
		pthread_mutex_t alive;
		uint64_t alive_room[6];	/* the mutex has 40 bytes on x86-64, 48 on aarch64 */
	};

	/* history */
	uint64_t history_events;	/* the most events that the chunks hold */
	_Atomic(uint64_t) horizon;	/* readers drop events up to this stamp, because some are overwritten */
	_Atomic(uint64_t) events_lost;	/* not written: no chunk, no room */
	_Atomic(uint64_t) operations_lost;	/* not recorded: a lock was not free in time */

	/* requests to the helper thread; each word is a shared futex */
	_Atomic(uint32_t) request;	/* incremented to ask for a snapshot */
	_Atomic(uint32_t) request_reason;	/* enum gm_request: the newest one wins */
	_Atomic(uint32_t) answered;	/* the value of @request that has been served */
	_Atomic(uint32_t) snapshots;	/* files written so far */
	_Atomic(uint32_t) copied;	/* the value of @request whose journal copy is complete */
	_Atomic(uint32_t) request_busy;	/* reserved for an outside reader */
	char last_snapshot[1024];	/* path of the newest snapshot */

	/* A death by a signal. The crash handler writes these, @crash_signal last. The helper thread writes
	 * @crash_stack and @crash_written, which may be missing. */
	int32_t crash_signal, crash_code;	/* siginfo's si_signo, si_code */
	uint64_t crash_address, crash_tsc;	/* si_addr of a fault, 0 otherwise */
	uint32_t crash_tid, crash_frames;
	uint64_t crash_registers[40];	/* by gm_register_name of @crash_machine */
	uint64_t crash_pcs[128];	/* the instruction, then return addresses */
	uint32_t crash_machine;		/* EM_X86_64, EM_AARCH64 of <elf.h> */
	uint32_t crash_flags;		/* enum gm_unwind_flag */
	int32_t crash_sender_pid;	/* the process that sent the signal; 0: the kernel did */
	uint32_t crash_sender_uid;
	uint32_t crash_stack;		/* the stack of @crash_pcs, interned; 0: none */
	uint32_t crash_written;		/* GM_CRASH_WRITTEN of the inode of the crash snapshot; that file
					 * has the name @last_snapshot, or was about to get it */

	/* which events are recorded and shown; all 0: no limit */
	_Atomic(uint32_t) history_enabled;	/* enum gm_history_enabled */
	_Atomic(uint32_t) history_context;	/* enum gm_history_context */
	_Atomic(uint32_t) history_stacks;	/* a word of the option's list, from 0 */
	uint32_t history_left_out;	/* bits (1 << enum gm_action) that an option leaves out */
	uint64_t history_min_size;	/* blocks of smaller requests leave no events */
	_Atomic(uint64_t) history_newest;	/* how many of the newest events are shown; 0: all */
	_Atomic(uint64_t) annotations_lost;	/* refused: more than their share of the history */

	char last_outside[1024];	/* path of the newest snapshot that another process asked for */
	_Atomic(uint64_t) failure_shown;	/* number of the newest failure with a snapshot */

	struct gm_control control;	/* commands from outside */
};

/* `gpumem run` makes a directory for journals, whose name begins with this, and reads every journal that
 * is left there. A journal stays there even when its crash snapshot was written. */
#define GM_RUN_ROOM "gpumem-run-"

_Static_assert(sizeof(struct gm_region) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_event) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_chunk) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_thread) == 128, "on-disk layout");
_Static_assert(sizeof(struct gm_domain) <= 8192, "on-disk layout");
_Static_assert(sizeof(struct gm_usage) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_live) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_pool_counts) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_site) == 32, "on-disk layout");
_Static_assert(sizeof(struct gm_tally) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_tcache_record) == 1280 &&
	       offsetof(struct gm_tcache_record, undo_op) % 64 == 0, "on-disk layout");
_Static_assert(sizeof(struct gm_module) == 128, "on-disk layout");
_Static_assert(sizeof(struct gm_frame) == 48, "on-disk layout");
_Static_assert(sizeof(struct gm_failure) == 256, "on-disk layout");
_Static_assert(sizeof(struct gm_header) <= GM_HEADER_BYTES, "on-disk layout");
_Static_assert(offsetof(struct gm_header, failure_shown) == 7968, "the same on every machine");

#endif
