/*
 * trace_rows.c - the events of a snapshot as rows: see trace_rows.h. One thread.
 */
#include "tools/read/trace_rows.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/bulk.h"
#include "tools/read/load.h"
#include "tools/read/table.h"

enum { ACTION, ADDR, SIZE, STREAM, TIME, STACK, THREAD, KIND, MODULE, COLUMNS };

struct columns { const struct gm_value *column[COLUMNS]; size_t length; };

static struct columns columns_of(const struct gm_value *trace)
{
	static const char *const names[COLUMNS] = {
		"action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"
	};
	struct columns columns = { .length = SIZE_MAX };

	for (int c = 0; c < COLUMNS; c++) {
		columns.column[c] = gm_value_row(trace, names[c]);
		if (gm_value_length(columns.column[c]) < columns.length)
			columns.length = gm_value_length(columns.column[c]);
	}
	return columns;
}

static int64_t number(const struct columns *columns, int column, size_t i)
{
	return gm_value_int_at(columns->column[column], i);
}

static const char *word(const struct columns *columns, int column, size_t i)
{
	const struct gm_value *text = gm_value_at(columns->column[column], i);

	return text && text->type == GM_VALUE_TEXT ? text->u.text : "";
}

static struct gm_row *add_rows(const struct columns *columns, int device, struct gm_row *row)
{
	for (size_t i = 0; i < columns->length; i++)
		*row++ = (struct gm_row){
			.time_us = number(columns, TIME, i), .device = device,
			.action = word(columns, ACTION, i), .kind = word(columns, KIND, i),
			.address = (uint64_t)number(columns, ADDR, i),
			.size = number(columns, SIZE, i), .stream = number(columns, STREAM, i),
			.thread = number(columns, THREAD, i), .module = number(columns, MODULE, i),
			.stack = number(columns, STACK, i),
		};
	return row;
}

/* Merge two sorted neighbours of @rows; equal times keep their order. Returns 0 or -ENOMEM. */
static int merge(struct gm_row *rows, size_t left, size_t all)
{
	size_t a = 0, b = left, at = 0;
	struct gm_row *first;

	if (!left || left == all || rows[left - 1].time_us <= rows[left].time_us)
		return 0;
	first = malloc(left * sizeof(*first));
	if (!first)
		return -ENOMEM;
	memcpy(first, rows, left * sizeof(*first));
	while (a < left)
		rows[at++] = b == all || first[a].time_us <= rows[b].time_us ? first[a++] : rows[b++];
	free(first);
	return 0;
}

int gm_rows_of(const json_t *root, struct gm_row **ret_rows, size_t *ret_count)
{
	const struct gm_value *traces = gm_bulk_list(root, "device_traces");
	struct columns host = columns_of(gm_bulk(root, "host_trace"));
	struct gm_row *rows, *end;
	size_t count = host.length;

	for (size_t d = 0; d < gm_value_length(traces); d++)
		count += columns_of(traces->u.items[d]).length;
	rows = calloc(count + 1, sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	end = add_rows(&host, GM_ROW_HOST, rows);
	for (size_t d = 0; d < gm_value_length(traces); d++) {
		struct columns columns = columns_of(traces->u.items[d]);
		size_t before = (size_t)(end - rows);

		end = add_rows(&columns, (int)d, end);
		if (merge(rows, before, (size_t)(end - rows))) {
			free(rows);
			return -ENOMEM;
		}
	}
	*ret_rows = rows;
	*ret_count = count;
	return 0;
}

/* ---- annotations ------------------------------------------------------------------------------ */

static uint64_t device_of(const json_t *annotation)
{
	const json_t *device = json_object_get(annotation, "device");

	return (uint64_t)(json_is_integer(device) ? json_integer_value(device) : GM_ROW_HOST);
}

/* Those of one device are in the order of its events: @next links them, @first has the first of each. */
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

/* Annotations without an event, at their time. */
static int add_annotations(const json_t *list, const bool *told, struct gm_row **rows, size_t *count)
{
	size_t all = *count;
	struct gm_row *larger = realloc(*rows, (all + json_array_size(list) + 1) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	*rows = larger;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);

		if (told[i] || !json_is_object(one))
			continue;
		larger[all++] = (struct gm_row){
			.time_us = gm_json_number(one, "time_us"), .device = (int)(int64_t)device_of(one),
			.annotation = (uint32_t)i + 1, .action = "annotate", .kind = "",
			.size = gm_json_number(one, "range"), .thread = gm_json_number(one, "thread"),
		};
	}
	if (merge(larger, *count, all))
		return -ENOMEM;
	*count = all;
	return 0;
}

int gm_rows_annotate(const json_t *root, struct gm_row **rows, size_t *count)
{
	const json_t *list = gm_json_list(root, "annotations");
	uint32_t *next = calloc(json_array_size(list) + 1, sizeof(*next));
	bool *told = calloc(json_array_size(list) + 1, sizeof(*told));
	struct gm_table first = { .count = 0 };
	int r = next && told ? link_annotations(list, &first, next) : -ENOMEM;

	for (size_t i = 0; !r && first.count && i < *count; i++) {
		struct gm_row *row = &(*rows)[i];
		uint64_t at;

		if (strcmp(row->action, "annotate"))
			continue;
		at = gm_table_get(&first, (uint64_t)(int64_t)row->device, 0);
		while (at && gm_json_number(json_array_get(list, at - 1), "time_us") < row->time_us)
			at = next[at - 1];
		if (at && gm_json_number(json_array_get(list, at - 1), "time_us") == row->time_us) {
			row->annotation = (uint32_t)at;
			told[at - 1] = true;
			at = next[at - 1];
		}
		r = gm_table_put(&first, (uint64_t)(int64_t)row->device, 0, at);
	}
	if (!r && json_array_size(list))
		r = add_annotations(list, told, rows, count);
	gm_table_free(&first);
	free(next);
	free(told);
	return r;
}

const json_t *gm_row_annotation(const json_t *root, const struct gm_row *row)
{
	return row->annotation ? json_array_get(gm_json_list(root, "annotations"), row->annotation - 1) : NULL;
}
