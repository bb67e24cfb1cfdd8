/*
 * summary_tables.c - gpumem summary: tables of what is live, by module, kind, pool, call site or range. One thread.
 */
#include "tools/verbs/arguments.h"
#include "tools/verbs/summary.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/show/phases.h"
#include "tools/show/show.h"

#define SITES_SHOWN 10u
#define PHASES_SHOWN 30u

void gm_summary_holders(const struct gm_summary *view, const json_t *of, bool by_module)
{
	const json_t *rows = gm_json_list(of, by_module ? "by_module" : "by_kind"), *row;
	size_t i;

	if (!json_array_size(rows))
		return;
	putchar('\n');
	gm_show_heading(stdout, "%12s %12s %11s %11s  by %s", "in blocks", "peak", "allocations", "frees",
			by_module ? "module" : "kind");
	json_array_foreach(rows, i, row) {
		int used = printf("%12s %12s %11lld %11lld", gm_show_bytes(gm_json_number(row, "allocated_bytes")),
				  gm_show_bytes(gm_json_number(row, "peak_bytes")),
				  (long long)gm_json_number(row, "allocations"),
				  (long long)gm_json_number(row, "frees"));

		gm_groups_put_key(stdout, by_module ? GM_BY_MODULE : GM_BY_KIND, by_module ?
				  gm_show_module(view->root, gm_json_number(row, "module")) :
				  gm_json_text(row, "kind"), (size_t)used);
	}
}

/* Print the named ranges, the highest peak first. */
static void print_phases(const struct gm_summary *view, const char *device)
{
	const char *missing = gm_phases_missing(view->scene->snapshot);
	const size_t rows = view->top ? view->top : PHASES_SHOWN;
	const struct gm_phase **sorted;
	struct gm_phases phases;
	size_t count;

	if (gm_phases_open(&phases, view->scene->snapshot, &view->scene->lives, device))
		return;
	sorted = gm_phases_sorted(&phases, &count);
	if (count) {
		putchar('\n');
		gm_show_heading(stdout, "%12s %12s %12s %11s %8s  %s", "peak", "own peak", "live", "blocks", "ranges",
				"by annotation");
	}
	for (size_t i = 0; i < count && i < rows; i++) {
		int used = printf("%12s %12s %12s %11lld %8lld",
				  sorted[i]->ranges ? gm_show_bytes(sorted[i]->peak) : "",
				  gm_show_bytes(sorted[i]->own_peak), gm_show_bytes(sorted[i]->live),
				  (long long)sorted[i]->blocks, (long long)sorted[i]->ranges);

		gm_groups_put_key(stdout, GM_BY_ANNOTATION, sorted[i]->name, (size_t)used);
	}
	if (count > rows)
		gm_more_rows(stdout, count - rows, "more row");
	if (missing)
		gm_show_line(stdout, "", "%s", missing);
	free(sorted);
	gm_phases_close(&phases);
}

/* Print the impossible reports of a pool: an error of the program's accounting, or of ours. */
static void print_faults(const struct gm_snapshot_pool *pool)
{
	static const struct { const char *key, *text; } faults[] = {
		{ "unknown_frees", "freed what it had not handed out" },
		{ "double_allocations", "handed out again what was not freed, which then ended" },
		{ "outside", "handed out what lies in no memory that is known" },
		{ "lost", "could not be recorded" },
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		int64_t count = gm_json_number(pool->root, faults[i].key);

		if (count)
			gm_show_line(stdout, "  ", "pool %s: %s %s", gm_show_cut(pool->name, 36),
				     gm_show_count(count, "call"), faults[i].text);
	}
}

void gm_summary_pools(const struct gm_summary *view, int64_t device)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	bool first = true;

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];
		const json_t *stats = gm_json_object(pool->root, "memory_stats");
		struct gm_idle idle = gm_pool_idle(pool);

		if (pool->device != device)
			continue;
		if (first) {
			putchar('\n');
			gm_show_heading(stdout, "%11s %11s %11s %8s %11s %11s  by pool", "handed out", "peak",
					"idle in it", "pieces", "the largest", "allocations");
		}
		first = false;
		int used = printf("%11s %11s %11s %8lld %11s %11lld",
				  gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.current")),
				  gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.peak")),
				  gm_show_bytes(idle.bytes), (long long)idle.pieces, gm_show_bytes(idle.largest),
				  (long long)gm_json_number(stats, "allocation.all.allocated"));
		gm_groups_put_key(stdout, GM_BY_KIND, pool->name, (size_t)used);
	}
	for (size_t i = 0; i < snapshot->pool_count; i++)
		if (snapshot->pools[i].device == device)
			print_faults(&snapshot->pools[i]);
}

json_t *gm_summary_json_pools(const struct gm_summary *view)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	json_t *list = json_array();

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];
		struct gm_idle idle = gm_pool_idle(pool);

		json_array_append_new(list, json_pack(
			"{sI ss sI sI sI sI}", "number", (json_int_t)pool->number, "name", pool->name, "device",
			(json_int_t)pool->device, "idle_bytes", (json_int_t)idle.bytes, "idle_pieces",
			(json_int_t)idle.pieces, "largest_idle_bytes", (json_int_t)idle.largest));
	}
	return list;
}

void gm_summary_groups(const struct gm_summary *view, const char *device)
{
	const char *by = view->by == GM_BY_SITE ? "call site" : gm_by_name(view->by);
	const size_t rows = view->top ? view->top : SITES_SHOWN;
	struct gm_groups groups;
	int64_t peak;

	if (view->by == GM_BY_ANNOTATION) {
		print_phases(view, device);
		return;
	}
	if (gm_groups_and_peak(&groups, view->by, view->scene, device, &peak))
		return;
	if (groups.count) {
		putchar('\n');
		gm_show_heading(stdout, "%12s %11s %12s  by %s", "live", "blocks", "at the peak", by);
		for (size_t i = 0; i < groups.count && i < rows; i++) {
			int used = printf("%12s %11lld %12s", gm_show_bytes(groups.list[i].bytes[1]),
					  (long long)groups.list[i].count[1],
					  groups.peak_known ? gm_show_bytes(groups.list[i].bytes[0]) : "-");

			gm_groups_put_key(stdout, view->by == GM_BY_STACK ? GM_BY_SITE : view->by, groups.list[i].key,
					  (size_t)used);
			if (view->by == GM_BY_STACK)
				gm_groups_print_stack(stdout, view->scene, groups.list[i].stack, 41);
		}
		if (groups.count > rows)
			gm_more_rows(stdout, groups.count - rows, "more row");
		if (groups.peak_known)
			gm_show_line(stdout, "  ", "%12s %11lld %12s  in all%s", gm_show_bytes(groups.all_bytes[1]),
				     (long long)groups.all_count[1], gm_show_bytes(peak), groups.peak_shown ?
				     "; the peak is the most that was live at once in the history" : "");
	}
	gm_groups_close(&groups);
}

static json_t *json_phases(const struct gm_summary *view)
{
	json_t *list = json_array();
	const struct gm_phase **sorted;
	struct gm_phases phases;
	size_t count;

	if (gm_phases_open(&phases, view->scene->snapshot, &view->scene->lives, view->device))
		return list;
	sorted = gm_phases_sorted(&phases, &count);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, gm_phase_json(sorted[i]));
	free(sorted);
	gm_phases_close(&phases);
	return list;
}

json_t *gm_summary_json(const struct gm_summary *view)
{
	json_t *list;
	struct gm_groups groups;
	int64_t peak;

	if (view->by == GM_BY_ANNOTATION)
		return json_phases(view);
	list = json_array();
	if (gm_groups_and_peak(&groups, view->by, view->scene, view->device, &peak))
		return list;
	for (size_t i = 0; i < groups.count; i++) {
		const struct gm_group *group = &groups.list[i];

		json_array_append_new(list, json_pack(
			"{so sI sI sI}", gm_by_name(view->by), view->by == GM_BY_STACK ?
			gm_groups_json_stack(view->scene, group->stack) : json_string(gm_show_clean(group->key)),
			"allocated_bytes", (json_int_t)group->bytes[1], "blocks", (json_int_t)group->count[1],
			"peak_bytes", (json_int_t)group->bytes[0]));
	}
	gm_groups_close(&groups);
	return list;
}
