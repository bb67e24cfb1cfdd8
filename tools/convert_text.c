/*
 * convert_text.c - events as CSV, with their stacks, and as RMM's log: for `gpumem convert`. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/convert.h"
#include "tools/show.h"
#include "tools/stacks.h"
#include "tools/trace_rows.h"

static void put_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"')
			putc_unlocked('"', out);
		putc_unlocked(*text, out);
	}
}

/* "main (app.c:12);f (f.c:3)": the outermost first. */
static void put_stack(FILE *out, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);

	while (count--) {
		const struct gm_frame *frame = &stacks->frames[ids[count]];

		put_quoted(out, frame->name);
		if (frame->line > 0) {
			fputs(" (", out);
			put_quoted(out, frame->file);
			fprintf(out, ":%lld)", (long long)frame->line);
		}
		if (count)
			putc_unlocked(';', out);
	}
}

static void put_row(FILE *out, const json_t *root, const struct gm_stacks *stacks,
		    const struct gm_row *row)
{
	char device[16] = "host";

	if (row->device != GM_ROW_HOST)
		snprintf(device, sizeof(device), "%d", row->device);
	fprintf(out, "%lld,%s,\"", (long long)row->time_us, device);
	put_quoted(out, row->action);
	fprintf(out, "\",%llu,%lld,%lld,\"", (unsigned long long)row->address, (long long)row->size,
		(long long)row->stream);
	put_quoted(out, row->kind);
	fprintf(out, "\",%lld,\"", (long long)row->thread);
	put_quoted(out, gm_show_module_path(root, row->module));
	fputs("\",\"", out);
	put_stack(out, stacks, row->stack);
	fputs("\"\n", out);
}

int gm_convert_csv(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct gm_stacks stacks;
	struct gm_row *rows;
	size_t count;

	(void)note;
	if (gm_rows_of(loaded->root, &rows, &count))
		return -ENOMEM;
	if (gm_stacks_open(&stacks, loaded->root)) {
		free(rows);
		return -ENOMEM;
	}
	fputs("time_us,device,action,addr,size,stream,kind,thread,module,stack\n", out);
	for (size_t i = 0; i < count; i++)
		put_row(out, loaded->root, &stacks, &rows[i]);
	gm_stacks_close(&stacks);
	free(rows);
	return 0;
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

	(void)note;
	if (gm_rows_of(loaded->root, &rows, &count))
		return -ENOMEM;
	fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
	for (size_t i = 0; i < count; i++)
		put_rmm(out, &rows[i]);
	free(rows);
	return 0;
}
