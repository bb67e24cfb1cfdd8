/*
 * trace_rows.c - the events of a snapshot as rows: see trace_rows.h. One thread.
 */
#include "tools/trace_rows.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/load.h"

enum { ACTION, ADDR, SIZE, STREAM, TIME, STACK, THREAD, KIND, MODULE, COLUMNS };

struct columns { const json_t *column[COLUMNS]; size_t length; };

static struct columns columns_of(const json_t *trace)
{
	static const char *const names[COLUMNS] = {
		"action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"
	};
	struct columns columns = { .length = SIZE_MAX };

	for (int c = 0; c < COLUMNS; c++) {
		columns.column[c] = gm_json_list(trace, names[c]);
		if (json_array_size(columns.column[c]) < columns.length)
			columns.length = json_array_size(columns.column[c]);
	}
	return columns;
}

static int64_t number(const struct columns *columns, int column, size_t i)
{
	return json_integer_value(json_array_get(columns->column[column], i));
}

static const char *word(const struct columns *columns, int column, size_t i)
{
	const char *text = json_string_value(json_array_get(columns->column[column], i));

	return text ? text : "";
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

/* Merge two sorted neighbours of @rows by way of @scratch; equal times keep their order. */
static void merge(struct gm_row *rows, size_t left, size_t all, struct gm_row *scratch)
{
	size_t a = 0, b = left, at = 0;

	while (at < all)
		scratch[at++] = b == all || (a < left && rows[a].time_us <= rows[b].time_us) ?
				rows[a++] : rows[b++];
	for (at = 0; at < all; at++)
		rows[at] = scratch[at];
}

int gm_rows_of(const json_t *root, struct gm_row **ret_rows, size_t *ret_count)
{
	const json_t *traces = gm_json_list(root, "device_traces");
	struct columns host = columns_of(gm_json_object(root, "host_trace"));
	struct gm_row *rows, *scratch, *end;
	size_t count = host.length;

	for (size_t d = 0; d < json_array_size(traces); d++)
		count += columns_of(json_array_get(traces, d)).length;
	rows = calloc(count + 1, sizeof(*rows));
	scratch = calloc(count + 1, sizeof(*scratch));
	if (!rows || !scratch) {
		free(rows);
		free(scratch);
		return -ENOMEM;
	}
	end = add_rows(&host, GM_ROW_HOST, rows);
	for (size_t d = 0; d < json_array_size(traces); d++) {
		struct columns columns = columns_of(json_array_get(traces, d));
		size_t before = (size_t)(end - rows);

		end = add_rows(&columns, (int)d, end);
		if (before && columns.length)
			merge(rows, before, (size_t)(end - rows), scratch);
	}
	free(scratch);
	*ret_rows = rows;
	*ret_count = count;
	return 0;
}
