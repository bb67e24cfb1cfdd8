/*
 * convert_rmm.c - events as the log of RMM: for `gpumem convert`. One thread.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "tools/write/convert.h"

/* Write @row as RMM's logging_resource_adaptor logs it; RMM's replay benchmark reads such logs. Other events, and
 * memory of the host and of other processes, are left out. */
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
