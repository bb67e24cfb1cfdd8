/*
 * replay.c - gpumem replay TRACE|SNAPSHOT: replay a recorded history through the library's own heaps. One thread.
 *
 * --search tries settings (search.c). --verify compares every address, every call of the driver and every statistic
 * with the recording. Otherwise replay prints the memory that the settings would have taken on an ideal device.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder/record/stats_table.h"
#include "tools/verbs/arguments.h"
#include "preload/options/options.h"
#include "tools/replay/replay.h"
#include "tools/read/input.h"
#include "tools/read/load.h"
#include "tools/show/show.h"
#include "tools/write/output.h"

#define NO_SNAPSHOT "not a snapshot: "	/* the beginning of gm_load's error for other files */
#define UNSAID (UINT64_MAX - 1)	/* without --limit; no parsed size has this value */

struct wish {
	const char *trace, *conf, *verify, *output;
	int heap;			/* 0 segments, 1 pages */
	size_t lag;
	uint64_t capacity, limit;	/* bytes, or GM_HEAP_UNLIMITED; limit may be UNSAID */
	int device;
	bool json, search;
};

/* Make the heap's configuration. An unknown key in a recording comes from another version and is skipped; in --conf it
 * is an error, because it would have no effect. Return the exit status. */
static int configure(const struct wish *wish, const struct gm_trace *trace,
		     struct gm_heap_config *config)
{
	char error[GM_OPTION_ERROR_BYTES];

	if (gm_trace_config(config, trace, wish->conf ? wish->conf : trace->conf, !wish->conf, error)) {
		fprintf(stderr, "gpumem replay: %s%s\n", wish->conf ? "--conf: " : "recorded settings: ",
			gm_show_clean(error));
		return wish->conf ? GM_EXIT_USAGE : GM_EXIT_INPUT;
	}
	config->class = &gm_segments_class;	/* --heap chooses */
	if (trace->memory_limit_bytes)
		config->limit = trace->memory_limit_bytes;
	if (wish->limit != UNSAID)
		config->limit = wish->limit;
	return GM_EXIT_OK;
}

/* ---- verification ---- */

struct verdict { json_t *expected; unsigned int compared, wrong; };

static void compare(void *arg, const char *key, int64_t is)
{
	struct verdict *verdict = arg;
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

static int verify(const struct wish *wish, const struct gm_trace *trace,
		  const struct gm_simulation *run)
{
	struct verdict verdict = { 0 };
	json_error_t error;
	json_t *file;
	int fd;

	if (run->difference[0]) {
		printf("%s: first difference: %s\n", gm_show_clean(wish->trace), run->difference);
		return GM_EXIT_FAILED;
	}
	fd = gm_input_open(wish->verify, error.text, sizeof(error.text));
	if (fd < 0)
		return gm_input_bad("replay", wish->verify, error.text);
	file = json_loadfd(fd, 0, &error);
	close(fd);
	verdict.expected = json_object_get(file, "stats");
	if (!json_is_object(verdict.expected)) {
		gm_input_bad("replay", wish->verify, file ? "has no \"stats\"" : error.text);
		json_decref(file);
		return GM_EXIT_INPUT;
	}
	gm_stats_list(&run->stats, compare, &verdict);
	if (json_object_size(verdict.expected) != verdict.compared && !verdict.wrong++)
		printf("first difference: %zu statistics are recorded, %u were compared\n",
		       json_object_size(verdict.expected), verdict.compared);
	printf("%s: %" PRIu64 " allocations, %zu operations: 0 addresses differ, %u of %u "
	       "statistics differ\n", gm_show_clean(wish->trace), run->allocations, trace->count, verdict.wrong,
	       verdict.compared);
	json_decref(file);
	return verdict.wrong ? GM_EXIT_FAILED : GM_EXIT_OK;
}

/* ---- the cost of the settings ---- */

static void print_json(const struct gm_simulation *run)
{
	const struct gm_stats *stats = &run->stats;
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

	gm_show_document(stdout, out, 1);
}

static void print_text(const struct gm_simulation *run)
{
	const struct gm_stats *stats = &run->stats;
	int64_t peak = stats->stat[GM_STAT_RESERVED_BYTES]->peak;

	printf("allocations    %" PRIu64 "\n"
	       "peak live      %s\n"
	       "peak reserved  %s (%.3f of what was live)\n"
	       "segments       %" PRId64 " at peak, %" PRId64 " allocated, %" PRId64 " freed\n"
	       "retries        %" PRId64 "\n"
	       "out of memory  %" PRId64 "\n",
	       run->allocations, gm_show_bytes((int64_t)run->peak_live_bytes), gm_show_bytes(peak),
	       run->peak_live_bytes ? (double)peak / (double)run->peak_live_bytes : 0.0,
	       stats->stat[GM_STAT_SEGMENT]->peak, stats->stat[GM_STAT_SEGMENT]->allocated,
	       stats->stat[GM_STAT_SEGMENT]->freed, stats->num_alloc_retries, stats->num_ooms);
}

/* ---- the pages heap ---- */

static double ratio_of(const struct gm_simulation *run)
{
	return run->peak_held_bytes ? (double)run->peak_pages_bytes / (double)run->peak_held_bytes : 0;
}

static double ns_of(const struct gm_simulation *run)
{
	return run->operations ? (double)run->ns / (double)run->operations : 0;
}

/* The bytes that the pages heap may reserve: 2% more than any heap needs, and a page for each stream. */
struct allowance { uint64_t lag, needed, streams, bytes; };

static bool holds(const struct gm_simulation *run, const struct allowance *allowed)
{
	return run->peak_pages_bytes <= allowed->bytes;
}

static json_t *pages_object(const struct gm_simulation *run, const struct allowance *allowed)
{
	return json_pack("{sI sI sI sf sI sI sI sb sI sf sI sI sI}", "lag", (json_int_t)allowed->lag,
			 "peak_live_bytes", (json_int_t)run->peak_held_bytes,
			 "peak_reserved_bytes", (json_int_t)run->peak_pages_bytes,
			 "ratio", ratio_of(run), "needed_bytes", (json_int_t)allowed->needed,
			 "streams", (json_int_t)allowed->streams,
			 "allowed_bytes", (json_int_t)allowed->bytes, "holds", holds(run, allowed),
			 "pages_moved", (json_int_t)run->pages_moved,
			 "ns_per_operation", ns_of(run), "allocations", (json_int_t)run->allocations,
			 "retries", (json_int_t)run->stats.num_alloc_retries,
			 "ooms", (json_int_t)run->stats.num_ooms);
}

static void print_pages(const struct gm_simulation *run, const struct allowance *allowed)
{
	printf("%10" PRIu64 "  %12s", allowed->lag, gm_show_bytes((int64_t)run->peak_held_bytes));
	printf("  %14s  %6.4f", gm_show_bytes((int64_t)run->peak_pages_bytes), ratio_of(run));
	printf("  %12s", gm_show_bytes((int64_t)allowed->needed));
	printf("  %12s  %5s  %11" PRIu64 "  %12.0f  %13" PRId64 "\n", gm_show_bytes((int64_t)allowed->bytes),
	       holds(run, allowed) ? "yes" : "no", run->pages_moved, ns_of(run), run->stats.num_ooms);
}

static int allow(const struct gm_trace *trace, uint64_t lag, struct allowance *ret)
{
	int r = gm_trace_needs(trace, lag, &ret->needed, &ret->streams);

	ret->lag = lag;
	ret->bytes = ret->needed + ret->needed / 50 + ret->streams * GM_HEAP_PAGE;
	return r;
}

/* Replay on the pages heap with the lag that was asked for, or with several. Return 0 or -errno. */
static int replay_pages(const struct wish *wish, const struct gm_trace *trace, const struct gm_heap_config *config)
{
	const size_t some[] = { 0, 100, 1000 }, *lags = wish->lag == SIZE_MAX ? some : &wish->lag;
	const size_t count = wish->lag == SIZE_MAX ? 3 : 1;
	json_t *first = NULL, *all = json_array();
	int r = 0;

	if (!wish->json)
		gm_show_heading(stdout, "%10s  %12s  %14s  %6s  %12s  %12s  %5s  %11s  %12s  %13s", "lag", "live, peak",
				"reserved, peak", "ratio", "needed", "allowed", "holds", "pages moved", "ns/operation",
				"out of memory");
	for (size_t i = 0; !r && i < count; i++) {
		const struct gm_simulate_how how = { .capacity = wish->capacity, .lag = lags[i] };
		struct allowance allowed;
		struct gm_simulation run;

		r = gm_simulate(trace, config, &how, &run);
		if (!r)
			r = allow(trace, lags[i], &allowed);
		if (!r && !wish->json)
			print_pages(&run, &allowed);
		if (!r && !first)
			first = pages_object(&run, &allowed);
		if (!r)
			json_array_append_new(all, pages_object(&run, &allowed));
	}
	if (r || !wish->json) {
		json_decref(first);
		json_decref(all);
		return r;
	}
	json_object_set_new(first, "lags", all);
	gm_show_document(stdout, first, 1);
	return 0;
}

static int refuse(const struct wish *wish, const char *why)
{
	return gm_input_bad("replay", wish->trace, why);
}

/* Return PyTorch's pool with the most events on @device (-1: on any), or NULL. The pool is replayed rather than the
 * driver's level, because a user of PyTorch can change the pool's settings, and the pool's pieces are no requests of
 * the program. */
static const struct gm_snapshot_pool *torch_pool(const struct gm_snapshot *snapshot, int device)
{
	const struct gm_snapshot_pool *found = NULL;

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];

		if (!strcmp(gm_json_text(pool->root, "source"), "libc10") && pool->row_count &&
		    (device < 0 || pool->device == device) && (!found || pool->row_count > found->row_count))
			found = pool;
	}
	return found;
}

/* Read @path, a trace or a snapshot. Return the exit status. */
static int read_path(const struct wish *wish, const char *path, struct gm_history *history)
{
	const struct gm_snapshot_pool *pool;
	struct gm_loaded loaded;
	int r;

	if (gm_trace_is(path)) {
		history->variable = GM_VARIABLE_TORCH;
		r = gm_trace_read(&history->trace, path);
		return !r ? 0 : refuse(wish, r == -EINVAL ? history->trace.error : gm_limit_why(r));
	}
	if (wish->verify)
		return refuse(wish, "--verify is for a trace");
	if (gm_load(path, GM_LOAD_WHOLE, &loaded))
		return refuse(wish, strncmp(loaded.error, NO_SNAPSHOT, strlen(NO_SNAPSHOT)) ? loaded.error :
			      "neither a snapshot nor a trace, which has an operation in each line");
	pool = torch_pool(&loaded.snapshot, wish->device);
	r = gm_history_open(history, &loaded.snapshot, pool, pool ? (int)pool->device : wish->device);
	gm_load_free(&loaded);
	if (r)
		refuse(wish, r == -ENODATA ? "no history of that device: it was not recorded, or nothing "
					     "was allocated" : gm_limit_why(r));
	return r ? GM_EXIT_INPUT : 0;
}

static int read_input(const struct wish *wish, struct gm_history *history)
{
	char path[GM_INPUT_PATH], why[128];
	int fd = gm_input_whole(wish->trace, path, why, sizeof(why)), r;

	memset(history, 0, sizeof(*history));
	if (fd < 0 && fd != -ENOENT)		/* without a file, it may be a process */
		return refuse(wish, why);
	r = read_path(wish, path, history);
	if (fd >= 0)
		close(fd);
	return r;
}

static int no_memory(const struct wish *wish)
{
	fprintf(stderr, "gpumem replay: %s: not enough memory to replay it: %s\n", gm_show_clean(wish->trace),
		gm_limit_why(-ENOMEM));
	return GM_EXIT_FAILED;
}

/* Replay @trace, and write the replay to @wish->output. Return the exit status. */
static int write_replay(const struct wish *wish, const struct gm_trace *trace, const struct gm_heap_config *config,
			struct gm_simulate_how how, struct gm_simulation *run)
{
	struct gm_output output;
	int r = gm_output_open(&output, wish->output, false), closed;

	if (!r) {
		how.into = gm_replayed_open(output.file, wish->conf ? wish->conf : trace->conf);
		r = how.into ? gm_simulate(trace, config, &how, run) : -ENOMEM;
		closed = how.into ? gm_replayed_close(how.into) : 0;
		r = gm_output_close(&output, r ? r : closed);
	}
	if (!r)
		return 0;
	fprintf(stderr, "gpumem replay: %s: the output could not be written: %s\n", gm_show_clean(wish->output),
		gm_limit_why(r));
	return GM_EXIT_FAILED;
}

static int replay(const struct wish *wish)
{
	const struct gm_simulate_how how = { .follow = wish->verify, .capacity = wish->capacity };
	struct gm_heap_config config;
	struct gm_history history;
	struct gm_simulation run;
	int r = read_input(wish, &history);

	if (!r)
		r = configure(wish, &history.trace, &config);
	if (!r && wish->search) {
		r = gm_search_print(&history, wish->trace, wish->conf ? wish->conf : history.trace.conf,
				    wish->limit != UNSAID ? &wish->limit : NULL, wish->json);
	} else if (!r && wish->heap) {
		config.class = &gm_pages_class;
		r = replay_pages(wish, &history.trace, &config) ? no_memory(wish) : 0;
	} else if (!r && wish->output) {
		r = write_replay(wish, &history.trace, &config, how, &run);
		if (!r && strcmp(wish->output, "-") && strcmp(wish->output, "/dev/stdout"))
			(wish->json ? print_json : print_text)(&run);
	} else if (!r && gm_simulate(&history.trace, &config, &how, &run)) {
		r = no_memory(wish);
	} else if (!r && wish->verify) {
		r = verify(wish, &history.trace, &run);
	} else if (!r) {
		(wish->json ? print_json : print_text)(&run);
	}
	gm_trace_free(&history.trace);
	return r;
}

int gm_verb_replay(int argc, char **argv)
{
	struct wish wish = { .capacity = GM_HEAP_UNLIMITED, .limit = UNSAID, .lag = SIZE_MAX };
	const char *device = NULL;
	const struct gm_argument arguments[] = {
		{ "search", GM_ARG_FLAG, &wish.search }, { "limit", GM_ARG_LIMIT, &wish.limit },
		{ "conf", GM_ARG_TEXT, &wish.conf }, { "device", GM_ARG_DEVICE, &device },
		{ "capacity", GM_ARG_LIMIT, &wish.capacity }, { "verify", GM_ARG_TEXT, &wish.verify },
		{ "heap", GM_ARG_WORD, &wish.heap }, { "lag", GM_ARG_COUNT, &wish.lag },
		{ "output", GM_ARG_TEXT, &wish.output }, { "json", GM_ARG_FLAG, &wish.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, 1);

	if (status >= 0)
		return status;
	wish.device = device ? (int)strtol(device, NULL, 10) : -1;
	if ((wish.verify && (wish.conf || wish.search || wish.heap)) || (wish.heap && wish.search) ||
	    (wish.lag != SIZE_MAX && !wish.heap) || (wish.output && (wish.verify || wish.search || wish.heap)))
		return gm_usage_wrong("replay");
	if (gm_output_check("replay", wish.output, ".json"))
		return GM_EXIT_USAGE;
	wish.trace = argv[optind];
	return gm_show_finish("replay", replay(&wish));
}
