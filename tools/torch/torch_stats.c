/*
 * torch_stats.c - compute the statistics that a snapshot of PyTorch's lacks: see torch.h. One thread.
 */
#include "tools/torch/torch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/record/stats_table.h"
#include "preload/options/options.h"
#include "tools/replay/replay.h"
#include "tools/read/table.h"
#include "tools/read/snapshot.h"

#define SIZE_MOST (INT64_C(1) << 46)	/* bytes of one event, and reserved; no device has more */

struct making {
	struct gm_trace *trace;
	struct gm_table live;		/* address -> id + 1 */
	int64_t reserved, reserved_most;
	bool whole;			/* so far no memory from before the history, and no lack of memory here */
};

static struct gm_trace_line *add(struct making *m, enum gm_trace_op op, const struct gm_row *row)
{
	struct gm_trace_line *line = gm_list_add(&m->trace->lines, &m->trace->count, sizeof(*line));

	if (!line) {
		m->whole = false;
		return NULL;
	}
	*line = (struct gm_trace_line){
		.bytes = (uint64_t)row->size, .stream = (uint64_t)row->stream, .address = row->address,
		.number = (uint32_t)m->trace->count, .op = (uint8_t)op,
	};
	return line;
}

static void add_alloc(struct making *m, const struct gm_row *row)
{
	struct gm_trace_line *line = add(m, GM_TRACE_ALLOC, row);

	if (!line)
		return;
	line->id = m->trace->ids++;
	if (!strcmp(row->action, "oom"))	/* its address is the number of free bytes */
		line->address = 0;
	else if (gm_table_get(&m->live, row->address, 0) ||
		 gm_table_put(&m->live, row->address, 0, line->id + 1))
		m->whole = false;
}

static void add_free(struct making *m, const struct gm_row *row, bool completed)
{
	uint64_t id = completed ? gm_table_take(&m->live, row->address, 0) :
		      gm_table_get(&m->live, row->address, 0);
	struct gm_trace_line *line = id ? add(m, completed ? GM_TRACE_COMPLETE : GM_TRACE_REQUEST, row) : NULL;

	if (line)
		line->id = id - 1;
	else
		m->whole = false;
}

/* Are the segments that are freed from row @at on followed by a failure? */
static bool ran_out(const struct gm_row *rows, size_t count, size_t at)
{
	while (at < count && !strcmp(rows[at].action, "segment_free"))
		at++;
	return at < count && !strcmp(rows[at].action, "oom");
}

static void add_segment(struct making *m, const struct gm_row *rows, size_t count, size_t i)
{
	bool alloc = !strcmp(rows[i].action, "segment_alloc");

	if (!alloc && (!i || strcmp(rows[i - 1].action, "segment_free")) && !ran_out(rows, count, i))
		add(m, GM_TRACE_EMPTY, &rows[i]);
	add(m, alloc ? GM_TRACE_SEGMENT_ALLOC : GM_TRACE_SEGMENT_FREE, &rows[i]);
	m->reserved += alloc ? rows[i].size : -rows[i].size;
	if (m->reserved > m->reserved_most)
		m->reserved_most = m->reserved;
	m->whole &= m->reserved >= 0 && m->reserved < SIZE_MOST;
}

/* Make a trace of one device's rows. Return false if they are not a complete history of PyTorch's own heap. */
static bool make_trace(struct making *m, const struct gm_row *rows, size_t count)
{
	for (size_t i = 0; i < count && m->whole; i++) {
		const char *action = rows[i].action;

		if (rows[i].size < 0 || rows[i].size > SIZE_MOST)
			return false;
		if (!strcmp(action, "alloc") || !strcmp(action, "oom"))
			add_alloc(m, &rows[i]);
		else if (!strcmp(action, "free_requested") || !strcmp(action, "free_completed"))
			add_free(m, &rows[i], action[5] == 'c');
		else if (!strcmp(action, "segment_alloc") || !strcmp(action, "segment_free"))
			add_segment(m, rows, count, i);
		else if (strcmp(action, "snapshot") && strcmp(action, "annotate"))
			return false;		/* segment_map: expandable segments are another algorithm */
	}
	return m->whole && m->trace->count;
}

/* ---- the statistics --------------------------------------------------------------------------- */

struct agreement { const json_t *stats; bool all; };

/* Compare a current value of the replay with the snapshot's. */
static void compare(void *arg, const char *name, int64_t value)
{
	struct agreement *agreement = arg;
	const json_t *known = strstr(name, ".current") ? json_object_get(agreement->stats, name) : NULL;

	agreement->all &= !known || json_integer_value(known) == value;
}

static void put(void *arg, const char *name, int64_t value)
{
	json_object_set_new(arg, name, json_integer(value));
}

static void one_device(const json_t *root, json_t *stats, const struct gm_row *rows, size_t count)
{
	const char *conf = gm_json_text(gm_json_object(root, "allocator_settings"),
					"PYTORCH_CUDA_ALLOC_CONF");
	struct gm_trace trace = { .count = 0 };
	struct making m = { .trace = &trace, .whole = true };
	const struct gm_simulate_how how = { .follow = true, .capacity = GM_HEAP_UNLIMITED };
	struct gm_simulation run = { .allocations = 0 };
	struct agreement agreement = { .stats = stats };
	struct gm_heap_config config;
	char error[GM_OPTION_ERROR_BYTES];

	if (make_trace(&m, rows, count) && !gm_options_heap_parse(&config, conf, true, error)) {
		/* Let the recorded driver have room for what it gave, and no more. */
		config.limit = (uint64_t)m.reserved_most;
		agreement.all = !gm_simulate(&trace, &config, &how, &run) && !run.difference[0];
		gm_stats_list(&run.stats, compare, &agreement);
		if (agreement.all)
			gm_stats_list(&run.stats, put, stats);
	}
	gm_table_free(&m.live);
	gm_trace_free(&trace);
}

void gm_torch_stats(struct gm_snapshot *snapshot)
{
	struct gm_row *own = calloc(snapshot->row_count + 1, sizeof(*own));
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(snapshot->root, "devices"), i, device) {
		json_t *stats = json_object_get(device, "memory_stats");
		size_t n = 0;

		for (size_t row = 0; own && row < snapshot->row_count; row++)
			if (snapshot->rows[row].device == (int)i)
				own[n++] = snapshot->rows[row];
		if (own && n && json_is_object(stats))
			one_device(snapshot->root, stats, own, n);
	}
	free(own);
}
