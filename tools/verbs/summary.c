/*
 * summary.c - gpumem summary FILE|JOURNAL|PID: what is live, who holds it, what went wrong.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "recorder/modules/names.h"
#include "recorder/record/stats_table.h"
#include "tools/verbs/arguments.h"
#include "tools/show/explain.h"
#include "tools/show/show.h"
#include "tools/torch/torch.h"
#include "tools/verbs/opened.h"
#include "tools/verbs/summary.h"

#define POOLS_SHOWN 4u			/* pools with a table of their own; "by pool" has all */

static bool wanted(const struct gm_summary *view, const char *name)
{
	return !view->device || !strcmp(view->device, name);
}

static struct gm_stat stat_of(const json_t *stats, const char *name, const char *pool)
{
	char key[96];
	int64_t values[4];
	static const char *const parts[] = { "current", "peak", "allocated", "freed" };

	for (int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "%s%s%s.%s", name, pool ? "." : "", pool ? pool : "",
			 parts[i]);
		values[i] = gm_json_number(stats, key);
	}
	return (struct gm_stat){ values[0], values[1], values[2], values[3] };
}

static struct gm_stats stats_of(const json_t *json)
{
	struct gm_stats stats = {
		.oversize_allocations = stat_of(json, "oversize_allocations", NULL),
		.oversize_segments = stat_of(json, "oversize_segments", NULL),
		.num_alloc_retries = gm_json_number(json, "num_alloc_retries"),
		.num_ooms = gm_json_number(json, "num_ooms"),
	};

	for (unsigned int s = 0; s < GM_STAT_COUNT; s++)
		for (unsigned int p = 0; p < GM_POOL_CLASSES; p++)
			stats.stat[s][p] = stat_of(json, gm_stat_name(s), gm_pool_class_name(p));
	return stats;
}

static void put_line(void *arg, const char *text)
{
	(void)arg;
	puts(text);
}

/* Print what is in limbo, what is idle in the cache, and how much of the idle memory cannot be given back because its
 * segment is in use. */
static void print_fragmentation(const struct gm_summary *view, const json_t *device)
{
	const json_t *stats = gm_json_object(device, "memory_stats");
	int64_t reserved = gm_json_number(stats, "reserved_bytes.all.current");
	int64_t active = gm_json_number(stats, "active_bytes.all.current");
	int64_t idle = gm_wrap_subtract(reserved, active);
	int64_t limbo = gm_wrap_subtract(active,
					 gm_json_number(stats, "allocated_bytes.all.current"));
	int64_t stuck = gm_json_number(stats, "inactive_split_bytes.all.current");

	if (limbo > 0 && active > 0)
		gm_show_line(stdout, "  ", "in limbo: %s in %s, freed and not yet reusable, since the GPU may be "
			     "using them", gm_show_bytes(limbo),
			     gm_show_count(gm_wrap_subtract(gm_json_number(stats, "active.all.current"),
							    gm_json_number(stats, "allocation.all.current")),
					   "block"));
	if (idle <= 0 || reserved <= 0)
		return;
	gm_show_line(stdout, "  ", "idle in the cache: %s, the largest block %s; %s of it cannot be given back, since "
		     "its segments are in use (%.1f%% of what is reserved)", gm_show_bytes(idle),
		     gm_show_bytes(gm_largest_idle(view->scene->snapshot, gm_json_number(device, "device"))),
		     gm_show_bytes(stuck), 100 * (double)stuck / (double)reserved);
}

static void print_explanation(const struct gm_summary *view)
{
	const struct gm_explanation *explanation = view->explanation;
	const json_t *line;
	char device[16];
	size_t i;

	if (explanation->cause == GM_CAUSE_NONE || !wanted(view, gm_explain_device(explanation, device)))
		return;
	putchar('\n');
	gm_show_heading(stdout, "why memory ran out");
	gm_show_line(stdout, "", "%s", explanation->why);
	if (explanation->change[0])
		gm_show_line(stdout, "", "%s", explanation->change);
	json_array_foreach(view->pool_lines, i, line)
		gm_show_line(stdout, "", "%s", json_string_value(line));
	if (explanation->stack > 0)
		gm_groups_print_stack(stdout, view->scene, explanation->stack, 2);
}

/* Print the tables of the first pools of a device, without the rows that no pool reports. */
static void print_pools(const struct gm_summary *view, long long device)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	size_t shown = 0;

	for (size_t i = 0; i < snapshot->pool_count && view->level == GM_LEVEL_POOL; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];
		struct gm_stats stats = stats_of(gm_json_object(pool->root, "memory_stats"));

		if (pool->device == device && shown++ < POOLS_SHOWN)
			gm_stats_table(&stats, gm_show_cut(pool->name, 24), (int)device, put_line, NULL);
	}
}

/* Print what the driver had free, and how much of the rest is not recorded. */
static void print_driver(const json_t *device)
{
	const json_t *unattributed = json_object_get(device, "unattributed_bytes");
	int64_t bytes = json_integer_value(unattributed);

	if (!json_is_integer(unattributed))
		return;
	gm_show_line(stdout, "  ", bytes < 0 ?		/* mostly managed memory */
		     "of %s the driver had %s free at %s; %s of what was recorded here then did not lie on the device" :
		     "of %s the driver had %s free at %s; not recorded here (contexts, other processes): %s",
		     gm_show_bytes(gm_json_number(device, "total_bytes")),
		     gm_show_bytes(gm_json_number(device, "free_bytes")),
		     gm_show_time(gm_json_number(device, "sampled_us")),
		     gm_show_bytes(bytes < 0 ? gm_wrap_subtract(0, bytes) : bytes));
}

static void print_device(const struct gm_summary *view, const json_t *device)
{
	struct gm_stats stats = stats_of(gm_json_object(device, "memory_stats"));
	long long number = gm_json_number(device, "device");
	const char *name = gm_json_text(device, "name");
	char text[24];

	snprintf(text, sizeof(text), "%lld", number);
	if (!wanted(view, text) || !json_is_true(json_object_get(device, "present")))
		return;
	putchar('\n');
	gm_show_heading(stdout, "device %lld%s%s", number, name[0] ? ": " : "",
			gm_show_clean(name));
	gm_stats_table(&stats, NULL, (int)number, put_line, NULL);
	print_pools(view, number);
	if (!json_object_get(gm_json_object(device, "memory_stats"), "allocated_bytes.all.peak"))
		gm_show_line(stdout, "  ", "peaks and sums are not known: a snapshot of PyTorch has none, and its "
			     "history is not whole");
	print_driver(device);
	print_fragmentation(view, device);
	gm_summary_holders(view, device, true);
	gm_summary_holders(view, device, false);
	gm_summary_pools(view, number);
	gm_summary_groups(view, text);
}

static void print_host(const struct gm_summary *view)
{
	const json_t *host = gm_json_object(view->root, "host");
	const json_t *rows = gm_json_list(host, "by_kind");
	const json_t *stats = gm_json_object(host, "memory_stats");

	if (!wanted(view, "host") || !json_array_size(rows))
		return;
	putchar('\n');
	gm_show_heading(stdout, "pinned host memory: %s live, peak %s",
			gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.current")),
			gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.peak")));
	gm_summary_holders(view, host, true);
}

static void print_failure(const struct gm_summary *view, const json_t *failure)
{
	int64_t stack = gm_json_number(failure, "stack");
	char site[1024] = "", held[160] = "";

	if (gm_json_number(failure, "reserved_bytes") > 0)
		snprintf(held, sizeof(held), "; the cache held %s, the largest block %s, and %s in limbo",
			 gm_show_bytes(gm_json_number(failure, "cached_bytes")),
			 gm_show_bytes(gm_json_number(failure, "largest_free_bytes")),
			 gm_show_bytes(gm_json_number(failure, "limbo_bytes")));
	if (stack > 0)
		gm_site_text(&view->scene->stacks, stack, site, sizeof(site));
	gm_show_line(stdout, "    ", "  #%lld %s: %s asked for %s on %s by %s%s%s: %s; %s of %s were free%s",
		     (long long)gm_json_number(failure, "number"),
		     gm_show_time(gm_json_number(failure, "time_us")),
		     gm_show_clean(gm_json_text(failure, "entry")),
		     gm_show_bytes(gm_json_number(failure, "requested_bytes")), gm_show_device(failure),
		     gm_show_module(view->root, gm_json_number(failure, "module")), site[0] ? ", " : "",
		     gm_show_clean(site), gm_show_clean(gm_json_text(failure, "result_name")),
		     gm_show_bytes(gm_json_number(failure, "free_bytes")),
		     gm_show_bytes(gm_json_number(failure, "total_bytes")), held);
}

static void print_flight(const json_t *flight)
{
	struct gm_show_op op = {
		.thread = gm_json_number(flight, "thread"), .size = gm_json_number(flight, "size"),
		.address = (uint64_t)gm_json_number(flight, "addr"),
		.action = gm_json_text(flight, "action"), .kind = gm_json_text(flight, "kind"),
		.device = gm_show_device(flight),
		.took_effect = json_is_true(json_object_get(flight, "took_effect")),
	};

	gm_show_op(stdout, &op);
}

/* Was the snapshot made when memory ran out? Those of PyTorch usually were. */
static bool is_of_oom(const json_t *root)
{
	return !strcmp(gm_json_text(gm_json_object(root, "failure"), "type"), "oom") ||
	       !strcmp(gm_json_text(root, "reason"), "pytorch");
}

static void print_troubles(const struct gm_summary *view)
{
	const json_t *failures = gm_json_list(view->root, "failures"), *one;
	const json_t *flights = gm_json_list(gm_json_object(view->root, "recovered"), "in_flight");
	const json_t *history = gm_json_object(view->root, "history");
	const char *area;
	size_t i;

	if (json_array_size(failures)) {
		putchar('\n');
		gm_show_heading(stdout, "failed allocations");
		json_array_foreach(failures, i, one)
			print_failure(view, one);
		if (!is_of_oom(view->root))
			print_explanation(view);
	}
	if (json_array_size(flights)) {
		putchar('\n');
		gm_show_heading(stdout, "begun and not returned");
		json_array_foreach(flights, i, one)
			print_flight(one);
	}
	if (gm_json_number(history, "dropped"))
		printf("\n%lld of %lld events of history were dropped (%lld found no room)\n",
		       (long long)gm_json_number(history, "dropped"),
		       (long long)(gm_json_number(history, "dropped") +
				   gm_json_number(history, "events")),
		       (long long)gm_json_number(history, "events_lost"));
	if (gm_json_number(history, "operations_lost"))
		printf("\n%lld operations were not recorded\n",
		       (long long)gm_json_number(history, "operations_lost"));
	json_object_foreach((json_t *)(uintptr_t)gm_json_object(view->root, "refused"), area, one)
		if (json_integer_value(one))
			printf("\nthe journal's area '%s' was full: %lld refused\n",
			       gm_show_clean(area), (long long)json_integer_value(one));
}

/* Print why memory ran out, then the rest of 30 lines. @lines have been printed. */
static void print_short(const struct gm_summary *view, const char *word, unsigned int lines)
{
	const struct gm_explanation *explanation = view->explanation;
	const json_t *line;
	char device[16];
	size_t i;

	if (explanation->cause != GM_CAUSE_NONE && wanted(view, gm_explain_device(explanation, device))) {
		putchar('\n');
		gm_show_heading(stdout, "why memory ran out");
		lines += 2 + gm_summary_wrapped(explanation->why, 0);
		if (explanation->change[0])
			lines += gm_summary_wrapped(explanation->change, 0);
		json_array_foreach(view->pool_lines, i, line)
			lines += gm_summary_wrapped(json_string_value(line), 0);
	}
	putchar('\n');
	gm_summary_short(view, word, lines + 1);
}

static void print_summary(const struct gm_summary *view, const char *word, bool several)
{
	const json_t *process = gm_json_object(view->root, "process"), *device;
	int64_t rank = gm_json_number(process, "rank");
	unsigned int lines;
	size_t i;

	if (several)
		printf("== %s\n", gm_show_clean(word));
	if (gm_json_text(process, "command")[0])
		gm_show_heading(stdout, "%s (pid %lld on %s)",
				gm_show_clean(gm_json_text(process, "command")),
				(long long)gm_json_number(process, "pid"),
				gm_show_clean(gm_json_text(process, "host")));
	else
		gm_show_heading(stdout, "%s", gm_show_clean(word));
	if (json_is_integer(json_object_get(process, "rank")))
		printf("rank %lld; ", (long long)rank);
	printf("snapshot: %s, %s%s\n", gm_show_clean(gm_json_text(view->root, "reason")),
	       gm_show_time(gm_json_number(view->root, "time_us")),
	       json_is_true(json_object_get(view->root, "consistent")) ? "" :
	       "; copied while it changed: not of one moment");
	lines = 2 + gm_summary_crash(view);
	if (!view->full) {
		print_short(view, word, lines);
		if (several)
			putchar('\n');
		return;
	}
	if (is_of_oom(view->root))
		print_explanation(view);
	json_array_foreach(gm_json_list(view->root, "devices"), i, device)
		print_device(view, device);
	print_host(view);
	if (!i && !gm_json_number(gm_json_object(gm_json_object(view->root, "host"), "memory_stats"),
				  "allocation.all.allocated"))
		puts("\nnothing was allocated: no device is in it");
	print_troubles(view);
	if (several)
		putchar('\n');
}

/* Print the small members of the snapshot (its root), and what summary adds to them. */
static void print_json(const struct gm_summary *view)
{
	json_t *root = json_copy((json_t *)(uintptr_t)view->root);
	char by[16];

	snprintf(by, sizeof(by), "by_%s", gm_by_name(view->by));
	json_object_set_new(root, by, gm_summary_json(view));
	json_object_set_new(root, "by_pool", gm_summary_json_pools(view));
	json_object_set_new(root, "explanation",
			    view->explanation->cause == GM_CAUSE_NONE
				    ? json_null()
				    : json_pack("{ss ss ss sO so}", "cause",
						gm_cause_name(view->explanation->cause), "why",
						gm_show_clean(view->explanation->why), "change",
						gm_show_clean(view->explanation->change), "pool",
						view->pool_lines, "stack",
						gm_groups_json_stack(view->scene, view->explanation->stack)));
	gm_show_document(stdout, root, 2);
}

static int one(const char *word, const struct gm_summary *ask, bool json, bool several)
{
	struct gm_explanation explanation;
	struct gm_opened opened;
	const struct gm_scene *scene = &opened.scene;
	struct gm_summary view;
	int status = gm_open("summary", word, ask->device, ask->level, &opened);

	if (status)
		return status;
	if (opened.loaded.from == GM_LOADED_TORCH)
		gm_torch_stats(&opened.loaded.snapshot);
	gm_explain(scene, &explanation);
	view = *ask;
	view.root = scene->root;
	view.scene = scene;
	view.explanation = &explanation;
	view.pool_lines = ask->level == GM_LEVEL_POOL ? gm_explain_pool(scene, &explanation) : json_array();
	if (json)
		print_json(&view);
	else
		print_summary(&view, word, several);
	json_decref((json_t *)(uintptr_t)view.pool_lines);
	gm_opened_close(&opened);
	return GM_EXIT_OK;
}

int gm_verb_summary(int argc, char **argv)
{
	struct gm_summary ask = { .top = 0 };
	int by = GM_BY_SITE, level = GM_LEVEL_POOL;
	bool json = false;
	const struct gm_argument arguments[] = {
		{ "full", GM_ARG_FLAG, &ask.full }, { "top", GM_ARG_COUNT, &ask.top },
		{ "device", GM_ARG_DEVICE_OR_HOST, &ask.device }, { "by", GM_ARG_WORD, &by },
		{ "level", GM_ARG_WORD, &level },
		{ "json", GM_ARG_FLAG, &json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);

	if (status >= 0)
		return status;
	status = GM_EXIT_OK;
	ask.by = (enum gm_by)by;
	ask.level = (enum gm_pool_level)level;
	for (int i = optind; i < argc; i++) {
		int s = one(argv[i], &ask, json, argc - optind > 1);

		status = s > status ? s : status;
	}
	return gm_show_finish("summary", status);
}
