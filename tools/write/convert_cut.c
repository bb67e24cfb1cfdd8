/*
 * convert_cut.c - a part of a snapshot, for viewers that cannot show all of it: see convert.h. One thread.
 *
 * Viewers start from the blocks that are live at the end and undo the events, the newest first. So a cut may remove the
 * oldest events, as a full history does, or all events of an allocation, but no other events.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/write/convert.h"

bool gm_cut_wanted(const struct gm_cut *cut)
{
	return !isnan(cut->last) || !isnan(cut->since) || cut->min_size || cut->device;
}

struct cutting {
	const struct gm_cut *cut;
	int64_t device, since_us;
	int64_t old, small;		/* number of events removed because of their time, and of their size */
};

static bool is_wanted(const struct cutting *c, int64_t device)
{
	return !c->cut->device || device == c->device;
}

/* Is @row an event of a block below the minimum size? The size of an oom or a snapshot means something else, and events
 * of segments are few: all of these stay. */
static bool is_small(const struct cutting *c, const struct gm_row *row)
{
	return (!strcmp(row->action, "alloc") || !strncmp(row->action, "free_", 5)) &&
	       (row->size < 0 || (uint64_t)row->size < c->cut->min_size);
}

/* Move the rows that stay to the front, and return their number. A row removed because of its time is counted in *@pool
 * or, without @pool, among the dropped events of its trace. */
static size_t cut_rows(struct cutting *c, struct gm_row *rows, size_t count, struct gm_snapshot *snapshot,
		       int64_t *pool)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		const struct gm_row *row = &rows[i];
		int64_t *dropped = pool ? pool : row->device == GM_ROW_HOST ? &snapshot->host_dropped :
				   row->device >= 0 && (size_t)row->device < snapshot->trace_count ?
				   &snapshot->dropped[row->device] : NULL;

		if (!pool && !is_wanted(c, row->device))
			continue;
		if (row->time_us < c->since_us) {
			c->old++;
			if (dropped)
				++*dropped;
		} else if (is_small(c, row)) {
			c->small++;
		} else {
			rows[kept++] = *row;
		}
	}
	return kept;
}

static size_t cut_segments(const struct cutting *c, struct gm_snapshot_segment *segments, size_t count, bool pool)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (!pool && !is_wanted(c, segments[i].device))
			continue;
		for (size_t k = 0; k < segments[i].block_count; k++) {
			struct gm_snapshot_block *block = &segments[i].blocks[k];

			if (strcmp(block->state, "inactive") && block->requested_size >= 0 &&
			    (uint64_t)block->requested_size < c->cut->min_size)
				block->untraced = true;
		}
		segments[kept++] = segments[i];
	}
	return kept;
}

static void cut_pools(struct cutting *c, struct gm_snapshot *snapshot)
{
	size_t kept = 0;

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		struct gm_snapshot_pool *pool = &snapshot->pools[i];

		pool->segment_count = cut_segments(c, pool->segments, pool->segment_count, true);
		pool->row_count = cut_rows(c, pool->rows, pool->row_count, snapshot, &pool->dropped);
		if (is_wanted(c, pool->device))
			snapshot->pools[kept++] = *pool;
		else
			gm_snapshot_free_pool(pool);
	}
	snapshot->pool_count = kept;
}

/* Return the time from which on events stay, in microseconds; INT64_MIN: all of them. */
static int64_t since(const struct gm_cut *cut, const struct gm_snapshot *snapshot)
{
	int64_t from = isnan(cut->since) ? INT64_MIN : gm_show_moment(snapshot, cut->since), last;

	if (isnan(cut->last) || cut->last >= 1e12)
		return from;
	last = gm_wrap_subtract(gm_show_newest(snapshot), (int64_t)(cut->last * 1e6 + 0.5));
	return last > from ? last : from;
}

/* Keep only the items of the list @name that belong to a wanted device and are no older than the events that stay. An
 * item without a device belongs to the host. Return 0 or -ENOMEM. */
static int cut_list(const struct cutting *c, json_t *root, const char *name)
{
	const json_t *list = gm_json_list(root, name);
	json_t *kept = json_array(), *one;
	size_t i;
	int r = kept ? 0 : -ENOMEM;

	json_array_foreach(list, i, one) {
		const json_t *device = json_object_get(one, "device"), *time_us = json_object_get(one, "time_us");

		if (!r && (!time_us || gm_json_number(one, "time_us") >= c->since_us) &&
		    is_wanted(c, json_is_integer(device) ? json_integer_value(device) : GM_ROW_HOST))
			r = json_array_append(kept, one) ? -ENOMEM : 0;
	}
	if (!r && list)
		r = json_object_set(root, name, kept) ? -ENOMEM : 0;
	json_decref(kept);
	return r;
}

static int add_to(json_t *object, const char *key, int64_t value)
{
	return !value || !json_object_get(object, key) ? 0 :
	       json_object_set_new(object, key, json_integer(gm_wrap_add(gm_json_number(object, key), value)));
}

/* Make the counts in the member "history" those of the events that stayed. Return 0 or -ENOMEM. */
static int count(const struct cutting *c, json_t *root)
{
	json_t *history = json_object_get(root, "history");

	if (!json_is_object(history))
		return 0;
	if (c->cut->min_size <= INT64_MAX && gm_json_number(history, "min_size") < (int64_t)c->cut->min_size &&
	    json_object_set_new(history, "min_size", json_integer((json_int_t)c->cut->min_size)))
		return -ENOMEM;
	return add_to(history, "dropped", c->old) || add_to(history, "filtered_small", c->small) ||
	       add_to(history, "events", -(c->old + c->small)) ? -ENOMEM : 0;
}

int gm_convert_cut(struct gm_snapshot *snapshot, const struct gm_cut *cut)
{
	struct cutting c = { .cut = cut, .since_us = since(cut, snapshot) };
	int r;

	c.device = cut->device && strcmp(cut->device, "host") ? strtol(cut->device, NULL, 10) : GM_ROW_HOST;
	snapshot->row_count = cut_rows(&c, snapshot->rows, snapshot->row_count, snapshot, NULL);
	snapshot->segment_count = cut_segments(&c, snapshot->segments, snapshot->segment_count, false);
	cut_pools(&c, snapshot);
	r = cut_list(&c, snapshot->root, "annotations");
	if (!r)
		r = cut_list(&c, snapshot->root, "devices");
	return r ? r : count(&c, snapshot->root);
}
