/*
 * copy.h - a private copy of a journal: what every snapshot is written from.
 *
 * The living process, readers from outside and the recovery all use it. First the journal is
 * copied, and every offset of its layout checked. Then the copy is resolved: what was half done is
 * taken back, frees that took effect are completed, events are sorted. A journal copy lies in
 * memory of its own from mmap; nothing here calls malloc, and nothing that was read is trusted.
 *
 *   copy_make.c    from a file; the check of a layout           -> base, copied[]
 *   copy_live.c    from this process's own mapping, under its locks
 *   copy_resolve.c undo; thread caches; segments in order
 *   copy_lives.c   what pools handed out, as segments and blocks
 *   copy_frees.c   frees that took effect (the address was handed out again) and were not recorded
 *   copy_events.c  events: validate, drop, sort, count; what was in flight
 *   copy_access.c  accessors that check, the clock
 *   copy_alive.c   is the process that wrote the journal alive?
 *
 * Thread context: one thread a copy. Not for signal handlers.
 */
#ifndef GM_RECORDER_COPY_H
#define GM_RECORDER_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/format.h"

struct gm_flight {			/* an operation that had begun and not returned */
	uint64_t op, address, size, tsc;
	uint32_t tid;
	uint8_t action, kind, domain;
	bool done;			/* a free whose address was handed out again: it took effect */
};

#define GM_SCRATCH_MOST 16u
struct gm_scratch { struct { void *at; size_t bytes; } list[GM_SCRATCH_MOST]; };

struct gm_copy {
	uint8_t *base;			/* same offsets as in the journal */
	size_t bytes;			/* mapped for it */
	struct gm_header *header;	/* at @base */
	uint64_t copied[GM_REGION_COUNT];	/* bytes of each region that the copy has */
	uint64_t held;			/* bytes that were read for it; 0: a copy of this process's own journal */
	uint64_t on_disk;		/* bytes that the file takes; UINT64_MAX: its file system does not tell */
	uint64_t cut_tsc;		/* events stamped later are not part of it; UINT64_MAX: none */
	bool consistent;		/* of one moment; false: it changed while it was copied */
	uint64_t locked_ns;		/* of this process's own journal: how long the locks were held */
	/* after gm_copy_resolve */
	const struct gm_event **events;	/* sorted; kept ones only */
	size_t event_count;
	uint64_t dropped[GM_DOMAINS];	/* events that were recorded and are not in @events */
	uint64_t dropped_total;		/* likewise, and those that found no room at all */
	/* Of what pools handed out: each line of their tables as a segment with one block. Their ids follow those of
	 * the regions. */
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
	char error[256];		/* why a copy was refused, one sentence */
	struct gm_scratch scratch;		/* other memory of this copy */
	struct gm_region layout[GM_REGION_COUNT];	/* of the header that was validated */
};

/* Copy the journal of this process, its tables under their locks. Returns 0; -ENODEV when there is
 * none; or -errno. */
int gm_copy_from_process(struct gm_copy *copy);

/* Copy the append-only areas once more, before gm_copy_resolve, for names that frames have got
 * since. */
void gm_copy_renew_names(struct gm_copy *copy);

/* Copy from a file descriptor by pread. Returns 0, -EBADMSG when it is no journal of a version
 * known here, or -errno; @copy->error says which. */
int gm_copy_from_file(struct gm_copy *copy, int fd);

/* The same without the events: what is live, and the counters, for programs that read them often. A
 * block whose free was under way counts as live where only an event would show that its address is
 * in use again. */
int gm_copy_tables(struct gm_copy *copy, int fd);

/* The most bytes that a journal can have, so the most memory that a copy of one reserves. */
uint64_t gm_copy_longest(void);

/* Undo what was half done, complete frees that took effect, sort the events and count them.
 * @max_events: how many of the newest stay; UINT64_MAX for all. 0 or -errno. */
int gm_copy_resolve(struct gm_copy *copy, uint64_t max_events);

/* Safe on a zeroed copy and after any failure; leaves it zeroed. */
void gm_copy_free(struct gm_copy *copy);

/* Is the process alive that wrote the journal open as @fd? 1 yes, 0 no, -errno unknown. Sends no
 * signal; another process with the same pid, here or in another namespace, is told apart. */
int gm_copy_alive(int fd);

/* Is process @pid, by its number in this pid namespace, the one that wrote a journal with this
 * header? False, too, where /proc does not tell. */
bool gm_copy_is_of(const struct gm_header *who, int64_t pid);

/* gm_copy_alive in steps. gm_header_read: read what there is of a header, with zeroes behind it; 0
 * or -errno. gm_header_sign: what the header tells of the helper thread; 1: it lives, 0: the kernel
 * has marked its death, -ENODATA: there never was one. gm_header_alive: that, and where it does not
 * decide, /proc; as gm_copy_alive. */
int gm_header_read(int fd, struct gm_header *ret);
int gm_header_sign(const struct gm_header *header);
int gm_header_alive(const struct gm_header *header);

/* Accessors that check: NULL (strings: "") for an id or number that names nothing. */
struct gm_domain *gm_copy_domain(const struct gm_copy *copy, unsigned int domain);
struct gm_segment *gm_copy_segment(const struct gm_copy *copy, uint32_t id);	/* used ones */
struct gm_block *gm_copy_block(const struct gm_copy *copy, uint32_t id);	/* used ones */
const struct gm_module *gm_copy_module(const struct gm_copy *copy, uint32_t id);
struct gm_thread *gm_copy_thread(const struct gm_copy *copy, size_t index);
const struct gm_frame *gm_copy_frame(const struct gm_copy *copy, uint32_t id);
const struct gm_failure *gm_copy_failure(const struct gm_copy *copy, size_t index);
struct gm_tcache_record *gm_copy_tcache(const struct gm_copy *copy, size_t index);
const struct gm_usage *gm_copy_usage(const struct gm_copy *copy, size_t index);
const struct gm_stack *gm_copy_stack(const struct gm_copy *copy, uint32_t id);
const char *gm_copy_string(const struct gm_copy *copy, uint32_t id, uint32_t *ret_length);

/* Items in a region of the copy: of segments and blocks, those of pools among them after gm_copy_resolve. */
size_t gm_copy_items(const struct gm_copy *copy, enum gm_region_id region);

/* How many items ever found no room in a region. */
uint64_t gm_copy_refused(const struct gm_copy *copy, enum gm_region_id region);

/* The thread that wrote an event of a resolved copy; 0 unknown. */
uint32_t gm_copy_event_thread(const struct gm_copy *copy, const struct gm_event *event);

/* Walk the blocks of a segment: the first with @block 0; GM_NONE at the end. @walk starts zeroed
 * and bounds the walk; a link that breaks a rule ends it and sets @walk->broken. */
struct gm_block_walk { uint64_t end; bool broken; };
uint32_t gm_copy_next_block(const struct gm_copy *copy, uint32_t segment, uint32_t block,
			     struct gm_block_walk *walk);

/* Wall clock of a stamp, microseconds since 1970; 0 when no clock pair was recorded. */
uint64_t gm_copy_wall_us(const struct gm_copy *copy, uint64_t stamp);

/* The same for many: gm_copy_clock once, then gm_clock_wall_us each. */
struct gm_wall {
	uint64_t stamp, wall_ns;	/* one moment on both clocks */
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
