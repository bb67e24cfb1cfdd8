/*
 * convert_text.c - events as CSV, with their stacks, and as RMM's log: for `gpumem convert`. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/write/convert.h"
#include "tools/write/csv.h"
#include "tools/show/show.h"
#include "tools/show/stacks.h"
#include "tools/read/trace_rows.h"

#define AHEAD 12			/* rows whose stacks are fetched before their turn: see gm_csv_expect */
#define SOON 3

static void put_row(struct gm_sink *sink, const json_t *root, struct gm_csv_stacks *stacks,
		    const struct gm_row *row)
{
	gm_csv_begin_row(sink, row);
	gm_csv_quoted(sink, gm_show_module_path(root, row->module));
	gm_sink_put(sink, ",", 1);
	gm_csv_stack(stacks, sink, row->stack);
	gm_sink_put(sink, ",", 1);
	gm_csv_annotation(sink, root, row);
	gm_sink_put(sink, "\n", 1);
}

static int put_rows(FILE *out, const json_t *root, const struct gm_stacks *stacks,
		    const struct gm_row *rows, size_t count)
{
	struct gm_csv_stacks texts;
	struct gm_sink sink;
	int r = gm_csv_stacks_open(&texts, stacks), end;

	if (r)
		return r;
	r = gm_sink_open(&sink, out);
	if (!r)
		gm_sink_text(&sink, "time_us,device,action,addr,size,stream,kind,thread,module,stack,"
			     GM_CSV_ANNOTATION "\n");
	for (size_t i = 0; i < count && !r && !sink.error; i++) {
		if (i + AHEAD < count)
			gm_csv_expect(&texts, rows[i + AHEAD].stack, false);
		if (i + SOON < count)
			gm_csv_expect(&texts, rows[i + SOON].stack, true);
		put_row(&sink, root, &texts, &rows[i]);
	}
	end = gm_sink_close(&sink);
	gm_csv_stacks_close(&texts);
	return r ? r : end;
}

int gm_convert_csv(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct gm_stacks stacks;
	struct gm_row *rows;
	size_t count;
	int r;

	if (gm_rows_of(loaded->root, &rows, &count))
		return -ENOMEM;
	r = gm_rows_annotate(loaded->root, &rows, &count);
	if (!r && !count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	r = r ? r : gm_stacks_open(&stacks, loaded->root);
	if (!r) {
		r = put_rows(out, loaded->root, &stacks, rows, count);
		gm_stacks_close(&stacks);
	}
	free(rows);
	return r;
}

/* The log of RMM's logging_resource_adaptor, which its replay benchmark reads. */
static void put_rmm(FILE *out, const struct gm_row *row)
{
	const char *action = !strcmp(row->action, "alloc") ? "allocate" :
			     !strcmp(row->action, "free_completed") ? "free" :
			     !strcmp(row->action, "oom") ? "allocate failure" : NULL;
	time_t seconds = (time_t)(row->time_us / 1000000);
	bool failure = !strcmp(row->action, "oom");
	struct tm tm = { .tm_hour = 0 };

	if (!action || row->device == GM_ROW_HOST || !strcmp(row->kind, "ipc"))
		return;
	gmtime_r(&seconds, &tm);
	fprintf(out, "%lld,%02d:%02d:%02d.%06d,%s,0x%llx,%lld,0x%llx\n", (long long)row->thread,
		tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(row->time_us % 1000000), action,
		failure ? 0ULL : (unsigned long long)row->address, (long long)row->size,
		(unsigned long long)row->stream);
}

int gm_convert_rmm(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct gm_row *rows;
	size_t count;

	if (gm_rows_of(loaded->root, &rows, &count))
		return -ENOMEM;
	if (!count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
	for (size_t i = 0; i < count; i++)
		put_rmm(out, &rows[i]);
	free(rows);
	return 0;
}
