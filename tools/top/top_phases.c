/*
 * top_phases.c - the named ranges of a living process as rows, in the place of its call sites: see top.h.
 *
 * They are in the history: all of it is read for each sample, as gpumem summary reads it.
 */
#include <errno.h>
#include <stdio.h>

#include "tools/read/attach.h"
#include "tools/read/input.h"
#include "tools/read/level.h"
#include "tools/read/load.h"
#include "tools/show/phases.h"
#include "tools/top/top.h"

/* The growth since the first sample: what it was at the sample before, and what came since. */
static int64_t grown(struct gm_top_process *process, const char *name, int64_t live)
{
	const struct gm_top_row *before = process->samples ? gm_top_row(&process->sites, name) : NULL;

	return before ? gm_wrap_add(before->growth, gm_wrap_subtract(live, before->live)) : 0;
}

static int read_rows(struct gm_top_process *process, struct gm_snapshot *snapshot)
{
	struct gm_top_rows now = { .count = 0 };
	struct gm_phases phases = { .count = 0 };
	struct gm_lives lives = { .count = 0 };
	int r = gm_level_apply(snapshot, process->driver ? GM_LEVEL_DRIVER : GM_LEVEL_POOL);

	if (!r)
		r = gm_snapshot_annotate(snapshot);
	if (!r)
		r = gm_lives_open(&lives, snapshot);
	if (!r)
		r = gm_phases_open(&phases, snapshot, &lives, NULL);
	for (size_t i = 0; !r && i < phases.count; i++) {
		const struct gm_phase *phase = &phases.list[i];
		struct gm_top_row *row = phase->ranges || phase->most ? gm_top_row(&now, phase->name) : NULL;

		if (!row) {
			r = phase->ranges || phase->most ? -ENOMEM : 0;
			continue;
		}
		row->live = phase->live;
		row->blocks = phase->blocks;
		row->peak = phase->ranges ? phase->peak : -1;
		row->growth = grown(process, phase->name, phase->live);
	}
	gm_phases_close(&phases);
	gm_lives_close(&lives);
	gm_top_rows_free(r ? &now : &process->sites);
	if (!r)
		process->sites = now;
	return r;
}

int gm_top_phases(struct gm_top_process *process, int fd)
{
	const struct gm_attached attached = { .fd = fd };
	struct gm_loaded loaded;
	int r;

	gm_limit_forget();		/* the sample before, and other processes */
	r = gm_load_process(process->pid, &attached, GM_LOAD_WHOLE, &loaded);
	if (r) {
		snprintf(process->error, sizeof(process->error), "%.250s", loaded.error);
		return r;
	}
	r = read_rows(process, &loaded.snapshot);
	gm_load_free(&loaded);
	return r;
}
