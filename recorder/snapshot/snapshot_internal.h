/*
 * snapshot_internal.h - shared by the files of the snapshot writer, one for each section.
 * Contexts as snapshot.h.
 */
#ifndef GM_RECORDER_SNAPSHOT_INTERNAL_H
#define GM_RECORDER_SNAPSHOT_INTERNAL_H

#include "recorder/read/copy_internal.h"
#include "recorder/snapshot/block.h"
#include "recorder/snapshot/jsonw.h"
#include "recorder/modules/names.h"
#include "recorder/record/stats_table.h"
#include "recorder/snapshot/snapshot.h"

/* Numbers for the records of an append-only area to which other records refer. */
struct gm_numbers {
	uint32_t *of;			/* offset / 8, or index -> number; 0: no record refers to it */
	size_t places;
	uint32_t count;
};

struct gm_snap {
	const struct gm_copy *copy;
	const struct gm_snapshot_request *request;
	struct gm_jsonw *w;
	struct gm_wall wall;
	struct gm_numbers stacks, frames;	/* number 0 is "none" in both */
	const struct gm_event **events;		/* by domain, then in order */
	size_t first[GM_DOMAINS + 1];		/* index of each domain's first event in @events */
	unsigned int devices;			/* the snapshot lists devices 0 .. devices - 1 */
	struct gm_pair *rows, *rows_scratch;	/* for sorting usage rows, failures and sites */
	struct gm_scratch scratch;
};

/* Number every stack and frame to which a record refers. Returns 0 or -ENOMEM. */
int gm_snap_number_stacks(struct gm_snap *snap);
/* Group the events by domain. Returns 0 or -ENOMEM. */
int gm_snap_group_events(struct gm_snap *snap);

/* Return the number in "stacks" of a stack id. */
static inline uint32_t gm_snap_stack(const struct gm_snap *snap, uint32_t id)
{
	return id / 8 < snap->stacks.places ? snap->stacks.of[id / 8] : 0;
}

/* Return the number in "modules" of a module id; 0: not known. */
static inline uint32_t gm_snap_module(const struct gm_snap *snap, uint32_t id)
{
	return gm_copy_module(snap->copy, id) ? id : 0;
}

/* Return the stack id of an event. Snapshot and annotate events have none: they keep a string there. */
static inline uint32_t gm_snap_event_stack(const struct gm_event *event)
{
	return event->action == GM_ACTION_SNAPSHOT || event->action == GM_ACTION_ANNOTATE ?
		GM_NONE : event->stack;
}

/* Write text of the copy that may lack its NUL. */
void gm_snap_key_chars(struct gm_snap *snap, const char *key, const char *text, size_t bytes);
/* Write string @id of the copy; "" when there is no such string. */
void gm_snap_key_string(struct gm_snap *snap, const char *key, uint32_t id);
void gm_snap_key_time(struct gm_snap *snap, const char *key, uint64_t stamp);
/* Write the number of a domain's device (for a pool: the pool's device); null for the host. */
void gm_snap_key_device(struct gm_snap *snap, unsigned int domain);

/* Write PyTorch's memory_stats() of a domain: the statistics that @lister lists. */
void gm_snap_stats(struct gm_snap *snap, const struct gm_stats *stats, gm_stats_lister *lister);
/* Write a block as an object; write all members of a segment of @size bytes except its blocks; write the trace
 * of a domain. */
struct gm_segment_sums { uint64_t allocated, active, requested; };
void gm_snap_block(struct gm_snap *snap, const struct gm_block *block);
void gm_snap_segment_members(struct gm_snap *snap, const struct gm_segment *segment, uint64_t size,
			     const struct gm_segment_sums *sums);
void gm_snap_trace(struct gm_snap *snap, unsigned int domain);
/* Return the bytes of the largest gap between a pool's blocks, within the pieces that the pool holds. */
uint64_t gm_snap_pool_largest_idle(const struct gm_snap *snap, unsigned int domain);

/* Write a section: one member of the top object each. */
void gm_snap_process(struct gm_snap *snap);
void gm_snap_recovered(struct gm_snap *snap);
void gm_snap_history(struct gm_snap *snap);
void gm_snap_settings(struct gm_snap *snap);
void gm_snap_devices(struct gm_snap *snap);
void gm_snap_segments(struct gm_snap *snap);
void gm_snap_traces(struct gm_snap *snap);
void gm_snap_pools(struct gm_snap *snap);
void gm_snap_stacks(struct gm_snap *snap);
void gm_snap_annotations(struct gm_snap *snap);
void gm_snap_failures(struct gm_snap *snap);

/* Write who held the peak of one domain, and when the peak was. */
void gm_snap_peak(struct gm_snap *snap, unsigned int domain);
/* Write the usage rows of one domain, by module or by kind, as an array of objects, largest first. */
void gm_snap_usage(struct gm_snap *snap, const char *key, unsigned int domain, bool by_module);

#endif
