/*
 * snapshot_emit.c - the JSON of a resolved journal copy: the order of its sections.
 *
 * Memory comes from anonymous mappings, unmapped at the end.
 * Thread context: any one thread. Signal context: none.
 */
#define _GNU_SOURCE
#include "recorder/snapshot/snapshot.h"

#include <errno.h>
#include <string.h>

#include "recorder/snapshot/snapshot_internal.h"

#define TEXT_LEAST (UINT64_C(64) << 20)	/* the most bytes of JSON for any journal, ... */
#define TEXT_MOST 32u			/* ... plus these for each byte of the journal */

void gm_snap_key_chars(struct gm_snap *snap, const char *key, const char *text, size_t bytes)
{
	gm_jsonw_key_bytes(snap->w, key, text, strnlen(text, bytes));
}

void gm_snap_key_string(struct gm_snap *snap, const char *key, uint32_t id)
{
	uint32_t length;
	const char *text = gm_copy_string(snap->copy, id, &length);

	gm_jsonw_key_bytes(snap->w, key, text, length);
}

void gm_snap_key_time(struct gm_snap *snap, const char *key, uint64_t stamp)
{
	gm_jsonw_key_u64_if(snap->w, key, stamp != 0, gm_clock_wall_us(&snap->wall, stamp));
}

void gm_snap_key_device(struct gm_snap *snap, unsigned int domain)
{
	const struct gm_domain *pool = domain >= GM_DOMAIN_POOLS ? gm_copy_domain(snap->copy, domain) : NULL;

	if (pool)
		domain = pool->pool.device;
	gm_jsonw_key_u64_if(snap->w, "device", domain < GM_MAX_DEVICES, domain);
}

/* Return how many devices to list: up to the last one that is present or has an event or a segment. */
static unsigned int count_devices(const struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	unsigned int count = 0;

	for (unsigned int d = 0; d < GM_MAX_DEVICES; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		if ((domain && domain->present) || snap->first[d] != snap->first[d + 1])
			count = d + 1;
	}
	for (size_t i = 0; i < copy->segment_count; i++) {
		unsigned int d = gm_copy_segment(copy, copy->segments[i])->domain;

		if (d < GM_MAX_DEVICES && d >= count)
			count = d + 1;
	}
	return count;
}

/* Return the time of the state that is shown: the requested time, or else the last known time of the process. */
static uint64_t moment(const struct gm_snap *snap)
{
	uint64_t last = snap->copy->end_tsc;

	if (snap->request->time_us)
		return snap->request->time_us;
	if (snap->copy->header->clock.stamp[1] > last)
		last = snap->copy->header->clock.stamp[1];
	return gm_clock_wall_us(&snap->wall, last);
}

static void emit(struct gm_snap *snap)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_text(w, "format", "gpumem-snapshot");
	gm_jsonw_key_u64(w, "version", 1);
	gm_jsonw_key_text(w, "reason", snap->request->reason);
	gm_jsonw_key_u64(w, "time_us", moment(snap));
	gm_jsonw_key_bool(w, "consistent", snap->copy->consistent);
	gm_snap_recovered(snap);
	gm_snap_process(snap);
	gm_snap_settings(snap);
	gm_snap_history(snap);
	if (snap->request->what != GM_EMIT_STACKS) {
		gm_snap_failures(snap);
		gm_snap_devices(snap);
		gm_snap_segments(snap);
		gm_snap_traces(snap);
		gm_snap_pools(snap);
	}
	gm_snap_stacks(snap);
	gm_snap_annotations(snap);
	gm_jsonw_end(w);
}

int gm_snapshot_emit(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		     int fd)
{
	struct gm_snap snap = { .copy = copy, .request = request };
	uint64_t most = copy->held ? TEXT_LEAST + copy->held * TEXT_MOST : UINT64_MAX;
	size_t rows = gm_copy_items(copy, GM_REGION_USAGE) + gm_copy_items(copy, GM_REGION_FAILURES) +
		      gm_copy_items(copy, GM_REGION_SITES);
	int r = -ENOMEM;

	snap.w = gm_scratch_get(&snap.scratch, sizeof(*snap.w));
	snap.rows = gm_scratch_get(&snap.scratch, rows * sizeof(*snap.rows));
	snap.rows_scratch = gm_scratch_get(&snap.scratch, rows * sizeof(*snap.rows));
	snap.wall = gm_copy_clock(copy);
	if (snap.w && snap.rows && snap.rows_scratch)
		r = gm_snap_group_events(&snap);
	if (!r)
		r = gm_snap_number_stacks(&snap);
	if (!r) {
		snap.devices = count_devices(&snap);
		gm_jsonw_init(snap.w, fd, most);
		snap.w->sink = request->sink;
		emit(&snap);
		r = gm_jsonw_finish(snap.w);
		if (r == -EFBIG && snap.w->flushed + GM_JSONW_BUFFER >= most)
			r = -EBADMSG;
	}
	gm_scratch_free(&snap.scratch);
	return r;
}
