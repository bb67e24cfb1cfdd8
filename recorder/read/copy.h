/*
 * copy.h - a private copy of a journal, from which every snapshot is written.
 *
 * The living process, readers from outside and the recovery all use it. Copying a journal checks every
 * offset of its layout. Resolving the copy then takes half-done changes back, completes frees that took
 * effect, and sorts the events. A copy lies in its own memory from mmap. Nothing here calls malloc, and
 * nothing trusts the bytes that were read.
 *
 *   copy_make.c    copy from a file; check a layout             -> base, copied[]
 *   copy_live.c    copy from this process's own mapping, under its locks
 *   copy_resolve.c undo; thread caches; segments in order
 *   copy_sites.c   live bytes by stack at the peak
 *   copy_lives.c   blocks of application pools, as segments and blocks
 *   copy_frees.c   frees that took effect (the address was handed out again) but were not recorded
 *   copy_events.c  events: validate, drop, sort, count; operations in flight
 *   copy_access.c  accessors that check, the clock
 *   copy_alive.c   is the process that wrote the journal alive?
 *
 * Thread context: one thread for each copy. Signal context: none.
 */
#ifndef GM_RECORDER_COPY_H
#define GM_RECORDER_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/format.h"

struct gm_flight {			/* an operation that has begun but not returned */
	uint64_t op, address, size, tsc;
	uint32_t tid;
	uint8_t action, kind, domain;
	bool done;			/* a free that took effect: its address was handed out again */
};

#define GM_SCRATCH_MOST 16u
struct gm_scratch { struct { void *at; size_t bytes; } list[GM_SCRATCH_MOST]; };

struct gm_copy {
	uint8_t *base;			/* same offsets as in the journal */
	size_t bytes;			/* of the mapping at @base */
	struct gm_header *header;	/* at @base */
	uint64_t copied[GM_REGION_COUNT];	/* bytes of each region that the copy has */
	uint64_t held;			/* bytes read from the file; 0: a copy of this process's own journal */
	uint64_t on_disk;		/* bytes that the file takes; UINT64_MAX: not known */
	uint64_t cut_tsc;		/* the copy has no events with later stamps; UINT64_MAX: has all */
	bool consistent;		/* the tables are of one instant; false: they changed while they were copied */
	uint64_t locked_ns;		/* how long this process's own locks were held for the copy */
	/* after gm_copy_resolve */
	const struct gm_event **events;	/* the events that are kept, sorted */
	size_t event_count;
	uint64_t dropped[GM_DOMAINS];	/* events that were recorded but are not in @events */
	uint64_t dropped_total;		/* the same in all, plus events that found no room */
	/* The live blocks of application pools: each line of a pool's table as a segment with one block. Their ids
	 * follow the ids of the regions. */
	struct gm_segment *pool_segments;
	struct gm_block *pool_blocks;
	size_t pool_count;
	uint32_t *segments;		/* ids of the live segments by (domain, address) */
	size_t segment_count;
	struct gm_flight *flights;
	size_t flight_count;
	uint64_t damage;		/* records that broke a rule and were left out */
	uint64_t undone;		/* changes that were taken back */
	uint64_t end_tsc;		/* the latest stamp seen */
	char error[256];		/* why a copy was refused, in one sentence */
	struct gm_scratch scratch;		/* other memory of this copy */
	struct gm_region layout[GM_REGION_COUNT];	/* of the header that was validated */
};

/* Copy the journal of this process, its tables under their locks. Returns 0; -ENODEV when there is
 * no journal; or -errno. */
int gm_copy_from_process(struct gm_copy *copy);

/* Copy the append-only areas again, before gm_copy_resolve, because frames may have got names since. */
void gm_copy_renew_names(struct gm_copy *copy);

/* Copy from a file descriptor by pread. Returns 0; -EBADMSG when the file is no journal of a version
 * known here; or -errno. @copy->error says why. */
int gm_copy_from_file(struct gm_copy *copy, int fd);

/* As gm_copy_from_file, but without the events: for programs that read the tables and counters often. A
 * block whose free was under way then counts as live where only an event would show that the free took
 * effect. */
int gm_copy_tables(struct gm_copy *copy, int fd);

/* Return the most bytes that a journal can have, which is the most memory that a copy reserves. */
uint64_t gm_copy_longest(void);

/* Take half-done changes back, complete frees that took effect, sort the events and count them.
 * @max_events: how many of the newest events stay; UINT64_MAX: all. Returns 0 or -errno. */
int gm_copy_resolve(struct gm_copy *copy, uint64_t max_events);

/* Free the memory of a copy and zero the copy. Safe on a zeroed copy and after any failure. */
void gm_copy_free(struct gm_copy *copy);

/* Is the process alive that wrote the journal open as @fd? Returns 1: yes; 0: no; -errno: not known.
 * Sends no signal, and does not mistake another process with the same pid for the writer. */
int gm_copy_alive(int fd);

/* Did process @pid of this pid namespace write a journal with this header? False also when /proc does
 * not tell. */
bool gm_copy_is_of(const struct gm_header *who, int64_t pid);

/* gm_copy_alive in steps.
 * gm_header_read: read a header; bytes that the file lacks are 0. Returns 0 or -errno.
 * gm_header_sign: ask the header's mutex whether the helper thread lives. Returns 1: it lives; 0: the kernel
 * has marked its death; -ENODATA: there never was a helper thread.
 * gm_header_alive: gm_header_sign, and /proc where the sign does not decide. Returns as gm_copy_alive. */
int gm_header_read(int fd, struct gm_header *ret);
int gm_header_sign(const struct gm_header *header);
int gm_header_alive(const struct gm_header *header);

/* Accessors that check. They return NULL (strings: "") for an id or index that names no record. */
struct gm_domain *gm_copy_domain(const struct gm_copy *copy, unsigned int domain);
struct gm_segment *gm_copy_segment(const struct gm_copy *copy, uint32_t id);	/* NULL if unused */
struct gm_block *gm_copy_block(const struct gm_copy *copy, uint32_t id);	/* NULL if unused */
const struct gm_module *gm_copy_module(const struct gm_copy *copy, uint32_t id);
struct gm_thread *gm_copy_thread(const struct gm_copy *copy, size_t index);
const struct gm_frame *gm_copy_frame(const struct gm_copy *copy, uint32_t id);
const struct gm_failure *gm_copy_failure(const struct gm_copy *copy, size_t index);
struct gm_tcache_record *gm_copy_tcache(const struct gm_copy *copy, size_t index);
/* After gm_copy_resolve @live of a row has its bytes at the peak, and @peak_tsc of a domain is 0 if the peak is now. */
struct gm_site *gm_copy_site(const struct gm_copy *copy, size_t index);
const struct gm_usage *gm_copy_usage(const struct gm_copy *copy, size_t index);
const struct gm_stack *gm_copy_stack(const struct gm_copy *copy, uint32_t id);
const char *gm_copy_string(const struct gm_copy *copy, uint32_t id, uint32_t *ret_length);

/* Return the number of records in a region of the copy. After gm_copy_resolve the segments and blocks of pools
 * count, too. */
size_t gm_copy_items(const struct gm_copy *copy, enum gm_region_id region);

/* Return how many records found no room in a region. */
uint64_t gm_copy_refused(const struct gm_copy *copy, enum gm_region_id region);

/* Return the tid of the thread that wrote an event of a resolved copy; 0: not known. */
uint32_t gm_copy_event_thread(const struct gm_copy *copy, const struct gm_event *event);

/* Walk the blocks of a segment. @block 0: return the first block; else the block after @block. GM_NONE:
 * the end. @walk must start zeroed; it bounds the walk. A link that breaks a rule ends the walk and sets
 * @walk->broken. */
struct gm_block_walk { uint64_t end; bool broken; };
uint32_t gm_copy_next_block(const struct gm_copy *copy, uint32_t segment, uint32_t block,
			     struct gm_block_walk *walk);

/* Convert a stamp to wall clock. Returns microseconds since 1970; 0 when no clock pair was recorded. */
uint64_t gm_copy_wall_us(const struct gm_copy *copy, uint64_t stamp);

/* To convert many stamps: call gm_copy_clock once and gm_clock_wall_us for each. */
struct gm_wall {
	uint64_t stamp, wall_ns;	/* the same instant on both clocks */
	uint64_t scale;			/* ns a stamp, 2^32 fixed point */
};
struct gm_wall gm_copy_clock(const struct gm_copy *copy);

static inline uint64_t gm_clock_wall_us(const struct gm_wall *wall, uint64_t stamp)
{
	if (stamp >= wall->stamp)
		return (wall->wall_ns + (uint64_t)(((unsigned __int128)(stamp - wall->stamp) *
						    wall->scale) >> 32)) / 1000;
	uint64_t back = (uint64_t)(((unsigned __int128)(wall->stamp - stamp) * wall->scale) >> 32);

	return back < wall->wall_ns ? (wall->wall_ns - back) / 1000 : 0;
}

#endif
