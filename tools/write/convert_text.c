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
#include "tools/read/snapshot.h"

static void put_row(struct gm_out *out, const json_t *root, struct gm_csv_stacks *stacks,
		    const struct gm_row *row)
{
	gm_csv_begin_row(out, row);
	gm_csv_quoted(out, gm_show_module_path(root, row->module));
	gm_out_text(out, ",");
	gm_csv_stack(stacks, out, row->stack);
	gm_out_text(out, ",");
	gm_csv_annotation(out, root, row);
	gm_out_text(out, "\n");
}

static int put_rows(FILE *file, const struct gm_snapshot *snapshot, const struct gm_stacks *stacks)
{
	struct gm_out out = gm_out_to(file);
	struct gm_csv_stacks cells;
	int r;

	if (gm_csv_stacks_open(&cells, stacks))
		return -ENOMEM;
	gm_out_text(&out, "time_us,device,action,addr,size,stream,kind,thread,module,stack,"
		    GM_CSV_ANNOTATION "\n");
	for (size_t i = 0; i < snapshot->row_count && !out.error; i++)
		put_row(&out, snapshot->root, &cells, &snapshot->rows[i]);
	r = gm_out_end(&out);
	gm_csv_stacks_close(&cells);
	return r;
}

int gm_convert_csv(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct gm_snapshot *snapshot = &loaded->snapshot;
	struct gm_stacks stacks;
	int r = gm_snapshot_annotate(snapshot);

	if (!r && !snapshot->row_count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	r = r ? r : gm_stacks_open(&stacks, snapshot);
	if (r)
		return r;
	r = put_rows(out, snapshot, &stacks);
	gm_stacks_close(&stacks);
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

int gm_convert_rmm(FILE *out, struct gm_loaded *loaded, char note[256])
{
	const struct gm_snapshot *snapshot = &loaded->snapshot;

	if (!snapshot->row_count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
	for (size_t i = 0; i < snapshot->row_count; i++)
		put_rmm(out, &snapshot->rows[i]);
	return 0;
}
