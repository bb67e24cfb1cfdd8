/*
 * replay.c - gpumem replay TRACE: a recorded history run through the library's own allocator.
 *
 * --verify holds it to the recording: every address, every call of the driver, every statistic.
 * Otherwise it prints what settings would have cost on an ideal device.
 * One thread, no signal context.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/names.h"
#include "tools/cli.h"
#include "tools/simulate.h"
#include "tools/trace.h"
#include "tools/units.h"
#include "tools/verbs.h"

struct wish {
	const char *trace, *conf, *verify;
	uint64_t capacity;
	int json;
};

static int configure(const struct wish *wish, const struct gm_trace *trace,
		     struct gm_heap_config *config)
{
	char error[160];

	gm_heap_config_default(config);
	if (gm_heap_config_parse(config, wish->conf ? wish->conf : trace->conf, error)) {
		fprintf(stderr, "gpumem replay: settings: %s\n", error);
		return wish->conf ? GM_EXIT_USAGE : GM_EXIT_INPUT;
	}
	if (trace->memory_limit_bytes)
		config->limit = trace->memory_limit_bytes;
	return GM_EXIT_OK;
}

/* ---- verification ---- */

struct verdict { json_t *expected; unsigned int compared, wrong; };

static void compare(struct verdict *verdict, const char *key, int64_t is)
{
	const json_t *value = json_object_get(verdict->expected, key);

	if (!json_is_integer(value)) {
		if (!verdict->wrong++)
			printf("first difference: %s is not in the recorded statistics\n", key);
		return;
	}
	verdict->compared++;
	if (json_integer_value(value) != is && !verdict->wrong++)
		printf("first difference: %s is %" PRId64 ", recorded %" JSON_INTEGER_FORMAT "\n",
		       key, is, json_integer_value(value));
}

static void compare_stat(struct verdict *verdict, const char *prefix, const struct gm_stat *stat)
{
	const struct { const char *name; int64_t value; } part[] = {
		{ "current", stat->current }, { "peak", stat->peak },
		{ "allocated", stat->allocated }, { "freed", stat->freed }
	};
	char key[96];

	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		snprintf(key, sizeof(key), "%s.%s", prefix, part[i].name);
		compare(verdict, key, part[i].value);
	}
}

static void compare_all(struct verdict *verdict, const struct gm_stats *stats)
{
	char prefix[64];

	for (unsigned int name = 0; name < GM_STAT_COUNT; name++)
		for (unsigned int pool = 0; pool < GM_POOL_CLASSES; pool++) {
			snprintf(prefix, sizeof(prefix), "%s.%s", gm_stat_name(name),
				 gm_pool_class_name(pool));
			compare_stat(verdict, prefix, &stats->stat[name][pool]);
		}
	compare_stat(verdict, "oversize_allocations", &stats->oversize_allocations);
	compare_stat(verdict, "oversize_segments", &stats->oversize_segments);
	compare(verdict, "num_alloc_retries", stats->num_alloc_retries);
	compare(verdict, "num_ooms", stats->num_ooms);
	compare(verdict, "num_sync_all_streams", stats->num_sync_all_streams);
	compare(verdict, "num_device_alloc", stats->num_device_alloc);
	compare(verdict, "num_device_free", stats->num_device_free);
	compare(verdict, "max_split_size", stats->max_split_size);
}

static int verify(const struct wish *wish, const struct gm_trace *trace,
		  const struct gm_simulation *run)
{
	struct verdict verdict = { 0 };
	json_error_t error;
	json_t *file;

	if (run->difference[0]) {
		printf("%s: first difference: %s\n", wish->trace, run->difference);
		return GM_EXIT_FAILED;
	}
	file = json_load_file(wish->verify, 0, &error);
	verdict.expected = json_object_get(file, "stats");
	if (!json_is_object(verdict.expected)) {
		fprintf(stderr, "gpumem replay: %s: %s\n", wish->verify,
			file ? "has no \"stats\"" : error.text);
		json_decref(file);
		return GM_EXIT_INPUT;
	}
	compare_all(&verdict, &run->stats);
	if (json_object_size(verdict.expected) != verdict.compared && !verdict.wrong++)
		printf("first difference: %zu statistics are recorded, %u were compared\n",
		       json_object_size(verdict.expected), verdict.compared);
	if (run->violations && !verdict.wrong++)
		printf("%d rules of the heap are violated\n", run->violations);
	printf("%s: %" PRIu64 " allocations, %zu operations: 0 addresses differ, %u of %u "
	       "statistics differ\n", wish->trace, run->allocations, trace->count, verdict.wrong,
	       verdict.compared);
	json_decref(file);
	return verdict.wrong ? GM_EXIT_FAILED : GM_EXIT_OK;
}

/* ---- what settings cost ---- */

static int print_json(const struct gm_simulation *run, const struct gm_stats *stats)
{
	const struct gm_stat *reserved = stats->stat[GM_STAT_RESERVED_BYTES];
	const struct gm_stat *segments = stats->stat[GM_STAT_SEGMENT];
	json_t *out = json_pack("{sI sI sI sI sI sI sI sI}",
		"allocations", (json_int_t)run->allocations,
		"peak_live_bytes", (json_int_t)run->peak_live_bytes,
		"peak_reserved_bytes", (json_int_t)reserved->peak,
		"segments_peak", (json_int_t)segments->peak,
		"segments_allocated", (json_int_t)segments->allocated,
		"segments_freed", (json_int_t)segments->freed,
		"retries", (json_int_t)stats->num_alloc_retries,
		"ooms", (json_int_t)stats->num_ooms);
	int r = json_dumpf(out, stdout, JSON_INDENT(1));

	putchar('\n');
	json_decref(out);
	return r ? GM_EXIT_FAILED : GM_EXIT_OK;
}

static int print_text(const struct gm_simulation *run, const struct gm_stats *stats)
{
	int64_t peak = stats->stat[GM_STAT_RESERVED_BYTES]->peak;
	char live[32], reserved[32];

	gm_units_bytes(run->peak_live_bytes, live, sizeof(live));
	gm_units_bytes((uint64_t)peak, reserved, sizeof(reserved));
	printf("allocations    %" PRIu64 "\n"
	       "peak live      %s\n"
	       "peak reserved  %s (%.3f of what was live)\n"
	       "segments       %" PRId64 " at peak, %" PRId64 " allocated, %" PRId64 " freed\n"
	       "retries        %" PRId64 "\n"
	       "out of memory  %" PRId64 "\n",
	       run->allocations, live, reserved,
	       run->peak_live_bytes ? (double)peak / (double)run->peak_live_bytes : 0.0,
	       stats->stat[GM_STAT_SEGMENT]->peak, stats->stat[GM_STAT_SEGMENT]->allocated,
	       stats->stat[GM_STAT_SEGMENT]->freed, stats->num_alloc_retries, stats->num_ooms);
	return GM_EXIT_OK;
}

static int replay(const struct wish *wish)
{
	struct gm_heap_config config;
	struct gm_simulation run;
	struct gm_trace trace;
	int r = gm_trace_read(&trace, wish->trace);

	if (r) {
		fprintf(stderr, "gpumem replay: %s: %s\n", wish->trace,
			r == -EINVAL ? trace.error : strerror(-r));
		gm_trace_free(&trace);
		return GM_EXIT_INPUT;
	}
	r = configure(wish, &trace, &config);
	if (!r && gm_simulate(&trace, &config, wish->verify != NULL, wish->capacity, &run)) {
		fprintf(stderr, "gpumem replay: %s: not enough memory to replay it\n", wish->trace);
		r = GM_EXIT_FAILED;
	} else if (!r && wish->verify) {
		r = verify(wish, &trace, &run);
	} else if (!r) {
		r = wish->json ? print_json(&run, &run.stats) : print_text(&run, &run.stats);
	}
	gm_trace_free(&trace);
	return r;
}

int gm_verb_replay(int argc, char **argv)
{
	struct wish wish = { .capacity = GM_HEAP_UNLIMITED };
	int c;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		if (c == 'c')
			wish.conf = optarg;
		else if (c == 'v')
			wish.verify = optarg;
		else if (c == 'j')
			wish.json = 1;
		else if (c == 'm' && !gm_units_parse(optarg, &wish.capacity))
			continue;
		else {
			return gm_cli_end(c);
		}
	}
	if (argc - optind != 1 || (wish.verify && wish.conf)) {
		return gm_cli_wrong("replay");
	}
	wish.trace = argv[optind];
	return replay(&wish);
}
