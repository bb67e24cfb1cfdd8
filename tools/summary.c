/*
 * summary.c - gpumem summary FILE|JOURNAL|PID: what is live, who holds it, what went wrong.
 *
 * One thread, no signal context.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/names.h"
#include "recorder/stats_table.h"
#include "tools/bulk.h"
#include "tools/cli.h"
#include "tools/load.h"
#include "tools/show.h"
#include "tools/verbs.h"

struct view { const json_t *root; const char *device; };

static bool wanted(const struct view *view, const char *name)
{
	return !view->device || !strcmp(view->device, name);
}

static struct gm_stat stat_of(const json_t *stats, const char *name, const char *pool)
{
	char key[96];
	int64_t values[4];
	static const char *const parts[] = { "current", "peak", "allocated", "freed" };

	for (int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "%s%s%s.%s", name, pool ? "." : "", pool ? pool : "", parts[i]);
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

/* Rows "by module" or "by kind" of a device or of the host. */
static void print_holders(const struct view *view, const json_t *of, bool by_module)
{
	const json_t *rows = gm_json_list(of, by_module ? "by_module" : "by_kind"), *row;
	size_t i;

	if (!json_array_size(rows))
		return;
	putchar('\n');
	gm_show_heading(stdout, "%-36s %12s %12s %11s %11s", by_module ? "by module" : "by kind",
			"live", "peak", "allocations", "frees");
	json_array_foreach(rows, i, row)
		printf("%-36.36s %12s %12s %11lld %11lld\n",
		       by_module ? gm_show_module(view->root, gm_json_number(row, "module")) :
		       gm_show_clean(gm_json_text(row, "kind")),
		       gm_show_bytes(gm_json_number(row, "allocated_bytes")),
		       gm_show_bytes(gm_json_number(row, "peak_bytes")),
		       (long long)gm_json_number(row, "allocations"),
		       (long long)gm_json_number(row, "frees"));
}

static void print_device(const struct view *view, const json_t *device)
{
	const json_t *unattributed = json_object_get(device, "unattributed_bytes");
	struct gm_stats stats = stats_of(gm_json_object(device, "memory_stats"));
	long long number = gm_json_number(device, "device");
	const char *name = gm_json_text(device, "name");
	char text[24];

	snprintf(text, sizeof(text), "%lld", number);
	if (!wanted(view, text) || !json_is_true(json_object_get(device, "present")))
		return;
	putchar('\n');
	gm_show_heading(stdout, "device %lld%s%s", number, name[0] ? ": " : "", gm_show_clean(name));
	gm_stats_table(&stats, (int)number, put_line, NULL);
	if (json_is_integer(unattributed))
		printf("of %s the driver had %s free at %s; not recorded here (contexts, other "
		       "processes): %s\n", gm_show_bytes(gm_json_number(device, "total_bytes")),
		       gm_show_bytes(gm_json_number(device, "free_bytes")),
		       gm_show_time(gm_json_number(device, "sampled_us")),
		       gm_show_bytes(json_integer_value(unattributed)));
	print_holders(view, device, true);
	print_holders(view, device, false);
}

static void print_host(const struct view *view)
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
	print_holders(view, host, true);
}

static void print_failure(const struct view *view, const json_t *failure)
{
	printf("  #%lld %s: %s asked for %s on %s by %s: %s; %s of %s were free\n",
	       (long long)gm_json_number(failure, "number"),
	       gm_show_time(gm_json_number(failure, "time_us")),
	       gm_show_clean(gm_json_text(failure, "entry")),
	       gm_show_bytes(gm_json_number(failure, "requested_bytes")), gm_show_device(failure),
	       gm_show_module(view->root, gm_json_number(failure, "module")),
	       gm_show_clean(gm_json_text(failure, "result_name")),
	       gm_show_bytes(gm_json_number(failure, "free_bytes")),
	       gm_show_bytes(gm_json_number(failure, "total_bytes")));
}

/* Where a crash came to pass: by name where there was time to find one. */
static void print_stack(const struct view *view, const json_t *crash)
{
	const struct gm_value *named = gm_value_as_row(gm_value_at(gm_bulk_list(view->root, "stacks"),
						       (size_t)gm_json_number(crash, "stack")));
	const struct gm_value *frames = gm_bulk_list(view->root, "frames");
	const json_t *pc;
	size_t i;

	json_array_foreach(gm_json_list(crash, "pcs"), i, pc) {
		const char *name = gm_value_string(gm_value_at(frames, (size_t)gm_value_int_at(named, i)), "name");

		if (name[0])
			printf("  %s (%s)\n", gm_show_clean(name),
			       gm_show_module(view->root, gm_json_number(pc, "module")));
		else
			printf("  %s+%#llx\n",
			       gm_show_module(view->root, gm_json_number(pc, "module")),
			       (unsigned long long)gm_json_number(pc, "offset"));
	}
	if (json_is_true(json_object_get(crash, "truncated")))
		puts("  ... (it could not be followed further)");
}

static void print_crash(const struct view *view)
{
	const json_t *crash = gm_json_object(view->root, "failure");

	if (strcmp(gm_json_text(crash, "type"), "crash"))
		return;
	printf("died of %s in thread %lld", gm_show_clean(gm_json_text(crash, "signal_name")),
	       (long long)gm_json_number(crash, "thread"));
	if (json_is_integer(json_object_get(crash, "address")))
		printf(", address %#llx", (unsigned long long)gm_json_number(crash, "address"));
	else
		printf(", sent by process %lld", (long long)gm_json_number(crash, "sender_pid"));
	putchar('\n');
	print_stack(view, crash);
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

static void print_troubles(const struct view *view)
{
	const json_t *failures = gm_json_list(view->root, "failures"), *one;
	const json_t *flights = gm_json_list(gm_json_object(view->root, "recovered"), "in_flight");
	const json_t *history = gm_json_object(view->root, "history");
	const char *area;
	size_t i;

	if (json_array_size(failures)) {
		putchar('\n');
		gm_show_heading(stdout, "could not be had");
		json_array_foreach(failures, i, one)
			print_failure(view, one);
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

static void print_summary(const struct view *view, const char *word, bool several)
{
	const json_t *process = gm_json_object(view->root, "process"), *device;
	int64_t rank = gm_json_number(process, "rank");
	size_t i;

	if (several)
		printf("== %s\n", gm_show_clean(word));
	gm_show_heading(stdout, "%s (pid %lld on %s)", gm_show_clean(gm_json_text(process, "command")),
			(long long)gm_json_number(process, "pid"),
			gm_show_clean(gm_json_text(process, "host")));
	if (json_is_integer(json_object_get(process, "rank")))
		printf("rank %lld; ", (long long)rank);
	printf("snapshot: %s, %s%s\n", gm_show_clean(gm_json_text(view->root, "reason")),
	       gm_show_time(gm_json_number(view->root, "time_us")),
	       json_is_true(json_object_get(view->root, "consistent")) ? "" :
	       "; copied while it changed: not of one moment");
	print_crash(view);
	json_array_foreach(gm_json_list(view->root, "devices"), i, device)
		print_device(view, device);
	print_host(view);
	print_troubles(view);
	if (several)
		putchar('\n');
}

/* The large parts are not there unless somebody asked for them. */
static void print_json(const struct view *view)
{
	json_dumpf(view->root, stdout, JSON_INDENT(2));
	putchar('\n');
}

static int one(const char *word, const char *device, bool json, bool several)
{
	struct gm_loaded loaded;
	struct view view;

	if (gm_load(word, &loaded)) {
		fprintf(stderr, "gpumem summary: %s: %s\n", word, loaded.error);
		return GM_EXIT_INPUT;
	}
	view = (struct view){ loaded.root, device };
	if (json)
		print_json(&view);
	else
		print_summary(&view, word, several);
	gm_load_free(&loaded);
	return GM_EXIT_OK;
}

int gm_verb_summary(int argc, char **argv)
{
	const char *device = NULL;
	int c, status = GM_EXIT_OK;
	bool json = false;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		if (c == 'd') {
			device = optarg;
		} else if (c == 'j') {
			json = true;
		} else {
			return gm_cli_end(c);
		}
	}
	if (optind == argc) {
		return gm_cli_wrong("summary");
	}
	for (int i = optind; i < argc; i++) {
		int s = one(argv[i], device, json, argc - optind > 1);

		status = s > status ? s : status;
	}
	return gm_show_end("summary", status);
}
