/*
 * snapshot.c - a snapshot in memory: see snapshot.h. One thread.
 */
#include "tools/read/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"
#include "tools/read/value.h"

void gm_snapshot_free_pool(struct gm_snapshot_pool *pool)
{
	free(pool->segments);
	free(pool->rows);
	json_decref(pool->root);
}

void gm_snapshot_free(struct gm_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->pool_count; i++)
		gm_snapshot_free_pool(&snapshot->pools[i]);
	free(snapshot->pools);
	free(snapshot->segments);
	json_decref(snapshot->root);
	free(snapshot->rows);
	free(snapshot->frames);
	free(snapshot->ids);
	free(snapshot->starts);
	free(snapshot->dropped);
	gm_values_close(snapshot->texts);
	*snapshot = (struct gm_snapshot){ .root = NULL };
}

/* ---- order ------------------------------------------------------------------------------------ */

static bool is_before(const struct gm_row *a, const struct gm_row *b)
{
	return a->time_us != b->time_us ? a->time_us < b->time_us : a->device < b->device;
}

/* Merge the first @left rows of @rows with the rest; both parts are sorted. Returns 0 or -ENOMEM. */
static int merge(struct gm_row *rows, size_t left, size_t all)
{
	size_t a = 0, b = left, at = 0;
	struct gm_row *first;

	if (!left || left == all || !is_before(&rows[left], &rows[left - 1]))
		return 0;
	first = malloc(left * sizeof(*first));
	if (!first)
		return -ENOMEM;
	memcpy(first, rows, left * sizeof(*first));
	while (a < left)
		rows[at++] = b == all || !is_before(&rows[b], &first[a]) ? first[a++] : rows[b++];
	free(first);
	return 0;
}

int gm_rows_merge(struct gm_row *rows, const size_t *starts, size_t parts)
{
	size_t half = parts / 2;
	int r;

	if (parts < 2 || starts[parts] == starts[0])	/* without rows there may be no list */
		return 0;
	r = gm_rows_merge(rows, starts, half);
	if (!r)
		r = gm_rows_merge(rows, starts + half, parts - half);
	return r ? r : merge(rows + starts[0], starts[half] - starts[0], starts[parts] - starts[0]);
}

bool gm_pool_is_expandable(const struct gm_snapshot_pool *pool)
{
	for (size_t i = 0; i < pool->segment_count; i++)
		if (pool->segments[i].expandable)
			return true;
	return false;
}

/* ---- annotations ------------------------------------------------------------------------------ */

static uint64_t device_of(const json_t *annotation)
{
	const json_t *device = json_object_get(annotation, "device");

	return (uint64_t)(json_is_integer(device) ? json_integer_value(device) : GM_ROW_HOST);
}

/* Link the annotations of each device, which are in the order of its events, by @next. @first has the first of each
 * device. */
static int link_annotations(const json_t *list, struct gm_table *first, uint32_t *next)
{
	for (size_t i = json_array_size(list); i--;) {
		uint64_t device = device_of(json_array_get(list, i));

		next[i] = (uint32_t)gm_table_get(first, device, 0);
		if (gm_table_put(first, device, 0, i + 1))
			return -ENOMEM;
	}
	return 0;
}

/* Find the annotation of each row that has one, and mark it as @used. */
static int match(struct gm_snapshot *snapshot, const json_t *list, const uint32_t *next,
		 struct gm_table *first, bool *used)
{
	for (size_t i = 0; first->count && i < snapshot->row_count; i++) {
		struct gm_row *row = &snapshot->rows[i];
		uint64_t at;

		if (strcmp(row->action, "annotate"))
			continue;
		at = gm_table_get(first, (uint64_t)(int64_t)row->device, 0);
		while (at && gm_json_number(json_array_get(list, at - 1), "time_us") < row->time_us)
			at = next[at - 1];
		if (at && gm_json_number(json_array_get(list, at - 1), "time_us") == row->time_us) {
			row->place = (uint32_t)at & GM_ANNOTATIONS_MOST;
			used[at - 1] = true;
			at = next[at - 1];
		}
		if (gm_table_put(first, (uint64_t)(int64_t)row->device, 0, at))
			return -ENOMEM;
	}
	return 0;
}

/* Add an event for each annotation that has none, at the annotation's time. */
static int add_rows(struct gm_snapshot *snapshot, const json_t *list, const bool *used)
{
	size_t all = snapshot->row_count, starts[3] = { 0, all, all };
	struct gm_row *larger = realloc(snapshot->rows, (all + json_array_size(list) + 1) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	snapshot->rows = larger;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);

		if (used[i] || !json_is_object(one))
			continue;
		larger[starts[2]++] = (struct gm_row){
			.time_us = gm_json_number(one, "time_us"), .device = (int)(int64_t)device_of(one),
			.place = ((uint32_t)i + 1) & GM_ANNOTATIONS_MOST, .action = "annotate", .kind = "",
			.size = gm_json_number(one, "range"), .thread = gm_json_number(one, "thread"),
		};
	}
	snapshot->row_count = starts[2];
	return gm_rows_merge(larger, starts, 2);
}

int gm_snapshot_annotate(struct gm_snapshot *snapshot)
{
	const json_t *list = gm_json_list(snapshot->root, "annotations");
	uint32_t *next = calloc(json_array_size(list) + 1, sizeof(*next));
	bool *used = calloc(json_array_size(list) + 1, sizeof(*used));
	struct gm_table first = { .count = 0 };
	int r = next && used ? link_annotations(list, &first, next) : -ENOMEM;

	if (!r)
		r = match(snapshot, list, next, &first, used);
	if (!r && json_array_size(list))
		r = add_rows(snapshot, list, used);
	gm_table_free(&first);
	free(next);
	free(used);
	return r;
}

const json_t *gm_row_annotation(const json_t *root, const struct gm_row *row)
{
	return row->place && !row->of_pool ? json_array_get(gm_json_list(root, "annotations"), row->place - 1) : NULL;
}

/* ---- other members ---------------------------------------------------------------------------- */

int64_t gm_json_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_real(value) ? gm_value_of_real(json_real_value(value)) :
	       json_integer_value(value);
}

const char *gm_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

const json_t *gm_json_list(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_array(value) ? value : NULL;
}

const json_t *gm_json_object(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_object(value) ? value : NULL;
}
