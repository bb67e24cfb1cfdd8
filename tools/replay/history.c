/*
 * history.c - the recorded history of a snapshot as a trace: see replay.h. One thread.
 *
 * Blocks that were live before the history began are allocated first, because a program that had filled the device by
 * then must be replayed on a full device. Allocations and frees are matched by the number of the life, not by address,
 * because addresses differ in the replay.
 */
#include "tools/replay/replay.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/lives.h"
#include "tools/show/show.h"
#include "tools/read/snapshot.h"
#include "tools/read/table.h"

/* Does the cache serve memory of @kind? It does for cudaMalloc and cudaMallocAsync, and for PyTorch's blocks, which
 * have no kind. */
static bool is_cached(const struct gm_history *history, const char *kind)
{
	return history->of_pool || !kind[0] || !strcmp(kind, "device") || !strcmp(kind, "pool");
}

/* Is @life part of the history? Memory of another process and of size 0 is not. */
static bool is_of(const struct gm_history *history, const struct gm_life *life)
{
	return life->device == history->device && life->size > 0 &&
	       (history->of_pool || strcmp(life->kind, "ipc"));
}

/* Return the device with the most events, -1 without any; @ret_devices is the number of devices with events. */
static int pick_device(const struct gm_lives *lives, unsigned int *ret_devices)
{
	struct gm_table counts = { NULL, 0, 0 };
	uint64_t most = 0;
	int best = -1;

	*ret_devices = 0;
	for (size_t row = 0; row < lives->row_count; row++) {
		int device = lives->rows[row].device;
		uint64_t count = device < 0 ? 0 : gm_table_get(&counts, (uint64_t)device, 1) + 1;

		if (device < 0 || gm_table_put(&counts, (uint64_t)device, 1, count))
			continue;
		*ret_devices += count == 1;
		if (count > most) {
			most = count;
			best = device;
		}
	}
	gm_table_free(&counts);
	return best;
}

/* Return the variable that sets the allocator of the history: PyTorch's for a pool and in PyTorch's own snapshots, else
 * this library's. A program recorded with allocator:native needs our cache first. */
static const char *variable_of(const json_t *root, const struct gm_snapshot_pool *pool)
{
	const json_t *options = gm_json_object(gm_json_object(root, "allocator_settings"), "gpumem");
	const char *allocator = gm_json_text(gm_json_object(options, "allocator"), "value");

	if (pool || !allocator[0])
		return GM_VARIABLE_TORCH;
	return strcmp(allocator, "native") ? "GPUMEM_CONF=" : "GPUMEM_CONF=allocator:caching,";
}

/* Write the settings in force to @ret, in the form of PYTORCH_CUDA_ALLOC_CONF. With @torch they are that variable's
 * value, and expandable_segments:True if @pool has such segments; else the options of our cache. */
static void find_conf(const json_t *root, const struct gm_snapshot_pool *pool, bool torch, char *ret, size_t room)
{
	static const char *const keys[] = {
		"large_segment_size_mb", "max_split_size_mb", "max_non_split_rounding_mb",
		"garbage_collection_threshold", "roundup_power2_divisions", "shared_segments",
		"expandable_segments"
	};
	const json_t *settings = gm_json_object(root, "allocator_settings");
	const char *word = gm_json_text(settings, "PYTORCH_CUDA_ALLOC_CONF");
	size_t length = 0;

	ret[0] = '\0';
	if (torch && strlen(word) < room)
		strcpy(ret, word);
	if (torch) {
		length = strlen(ret);
		if (pool && gm_pool_is_expandable(pool) && !strstr(ret, GM_WOULD_EXPANDABLE))
			snprintf(ret + length, room - length, "%s%s", length ? "," : "", GM_WOULD_EXPANDABLE);
		return;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const json_t *one = gm_json_object(gm_json_object(settings, "gpumem"), keys[i]);
		const char *value = gm_json_text(one, "value");

		if (!value[0] || !strcmp(gm_json_text(one, "source"), "default") ||
		    length + strlen(keys[i]) + strlen(value) + 3 > room)
			continue;
		length += (size_t)snprintf(ret + length, room - length, "%s%s:%s",
					   length ? "," : "", keys[i], value);
	}
}

/* For our own cache, find its memory limit, and how much memory its shared segments could take. */
static void find_ours(struct gm_history *history, const json_t *root)
{
	const json_t *options = gm_json_object(gm_json_object(root, "allocator_settings"), "gpumem");
	const char *limit = gm_json_text(gm_json_object(options, "memory_limit"), "value");
	const char *shared = gm_json_text(gm_json_object(options, "shared_segments"), "value");
	uint64_t total = history->total_bytes > 0 ? (uint64_t)history->total_bytes : 0, bytes;

	if (!gm_units_parse(limit, &bytes) && bytes && bytes < (total ? total : UINT64_MAX)) {
		history->trace.memory_limit_bytes = bytes;
		total = bytes;
	}
	if (shared[0]) {
		history->trace.device_bytes = total;
		history->trace.shared_segments = strtod(shared, NULL);
	}
}

/* Find what @pool reserved. Memory that the program had from the driver outside @pool counts as others'. */
static void find_pool(struct gm_history *history, const struct gm_snapshot_pool *pool)
{
	const json_t *stats = gm_json_object(pool->root, "memory_stats");
	int64_t all = history->reserved;

	history->reserved_peak = gm_json_number(stats, "reserved_bytes.all.peak");
	history->reserved = gm_json_number(stats, "reserved_bytes.all.current");
	history->dropped = pool->dropped;
	if (all > history->reserved)
		history->others_bytes = gm_wrap_add(history->others_bytes, gm_wrap_subtract(all, history->reserved));
}

static void find_device(struct gm_history *history, const struct gm_snapshot *snapshot)
{
	const json_t *device = json_array_get(gm_json_list(snapshot->root, "devices"),
					      (size_t)history->device);
	const json_t *stats = gm_json_object(device, "memory_stats");

	history->total_bytes = gm_json_number(device, "total_bytes");
	history->others_bytes = gm_json_number(device, "unattributed_bytes");
	history->reserved_peak = gm_json_number(stats, "reserved_bytes.all.peak");
	history->reserved = gm_json_number(stats, "reserved_bytes.all.current");
	if ((size_t)history->device < snapshot->trace_count)
		history->dropped = snapshot->dropped[history->device];
}

/* Add a row that is no life's birth: a refused request, or a request to free life @life_of_request - 1 (0: none). */
static void add_row(struct gm_history *history, const struct gm_row *row, uint32_t number,
		    uint64_t life_of_request)
{
	struct gm_trace *trace = &history->trace;
	struct gm_trace_line *line = &trace->lines[trace->count];

	*line = (struct gm_trace_line){ .number = number + 1, .stream = (uint64_t)row->stream };
	if (!strcmp(row->action, "oom")) {
		line->op = is_cached(history, row->kind) ? GM_TRACE_REFUSED : GM_TRACE_OOM;
		line->bytes = row->size > 0 ? (uint64_t)row->size : 0;
		trace->count++;
	} else if (!strcmp(row->action, "free_requested") && life_of_request) {
		line->op = GM_TRACE_REQUEST;
		line->id = life_of_request - 1;
		trace->count++;
	}
}

static void add_birth(struct gm_history *history, const struct gm_life *life, uint32_t number,
		      uint64_t id)
{
	history->trace.lines[history->trace.count++] = (struct gm_trace_line){
		.op = is_cached(history, life->kind) ? GM_TRACE_ALLOC : GM_TRACE_DIRECT,
		.id = id,
		.number = number,
		.bytes = (uint64_t)life->size,
		.stream = (uint64_t)life->stream,
		.address = life->address,
	};
}

static void add_end(struct gm_history *history, const struct gm_life *life, uint32_t number,
		    uint64_t id)
{
	history->trace.lines[history->trace.count++] = (struct gm_trace_line){
		.op = is_cached(history, life->kind) ? GM_TRACE_FREE : GM_TRACE_DIRECT_FREE,
		.id = id, .number = number
	};
}

/* Of one row: the lives that begin, end, and are asked to end there, as index + 1; 0: none. */
struct turn { uint32_t born, died, requested; };

/* Return the turns of all rows; free() them. NULL: out of memory. */
static struct turn *find_turns(const struct gm_history *history, const struct gm_lives *lives)
{
	struct turn *turns = calloc(lives->row_count + 1, sizeof(*turns));
	struct gm_table live = { NULL, 0, 0 };
	int r = 0;

	for (size_t i = 0; turns && !r && i < lives->count; i++) {
		const struct gm_life *life = &lives->list[i];

		if (!is_of(history, life))
			continue;
		if (life->born != GM_LIFE_BEFORE)
			turns[life->born].born = (uint32_t)i + 1;
		else
			r = gm_table_put(&live, life->address, 1, i + 1);
		if (life->died < lives->row_count)
			turns[life->died].died = (uint32_t)i + 1;
	}
	/* A request to free belongs to the life at its address at that time. */
	for (size_t row = 0; turns && !r && row < lives->row_count; row++) {
		const struct gm_row *at = &lives->rows[row];

		if (at->device != history->device)
			continue;
		if (turns[row].died)
			gm_table_take(&live, lives->list[turns[row].died - 1].address, 1);
		if (turns[row].born)
			r = gm_table_put(&live, at->address, 1, turns[row].born);
		if (!strcmp(at->action, "free_requested"))
			turns[row].requested = (uint32_t)gm_table_get(&live, at->address, 1);
	}
	gm_table_free(&live);
	if (!r)
		return turns;
	free(turns);
	return NULL;
}

static int build(struct gm_history *history, const struct gm_lives *lives)
{
	struct gm_trace *trace = &history->trace;
	struct turn *turns = find_turns(history, lives);

	trace->lines = calloc(lives->count + 2 * lives->row_count + 1, sizeof(*trace->lines));
	trace->ids = lives->count + (uint64_t)history->refused;
	if (!turns || !trace->lines) {
		free(turns);
		return -ENOMEM;
	}
	for (size_t i = 0; i < lives->count; i++) {
		const struct gm_life *life = &lives->list[i];

		if (life->born == GM_LIFE_BEFORE && is_of(history, life))
			add_birth(history, life, 0, i);
	}
	for (size_t row = 0; row < lives->row_count; row++) {
		const struct turn *turn = &turns[row];

		if (turn->died)
			add_end(history, &lives->list[turn->died - 1], (uint32_t)row + 1,
				turn->died - 1);
		if (turn->born)
			add_birth(history, &lives->list[turn->born - 1], (uint32_t)row + 1,
				  turn->born - 1);
		else if (lives->rows[row].device == history->device)
			add_row(history, &lives->rows[row], (uint32_t)row, turn->requested);
	}
	free(turns);
	return 0;
}

int gm_history_open(struct gm_history *history, const struct gm_snapshot *snapshot,
		    const struct gm_snapshot_pool *pool, int device)
{
	struct gm_snapshot view = *snapshot;
	struct gm_lives lives;
	int r, most;

	*history = (struct gm_history){ .of_pool = pool != NULL };
	if (pool) {
		view.rows = pool->rows;
		view.row_count = pool->row_count;
		view.segments = pool->segments;
		view.segment_count = pool->segment_count;
	}
	r = gm_lives_open(&lives, &view);
	if (r)
		return r;
	most = pick_device(&lives, &history->devices);
	history->device = device >= 0 ? device : most;
	if (history->device < 0) {
		gm_lives_close(&lives);
		return -ENODATA;
	}
	find_device(history, snapshot);
	if (pool)
		find_pool(history, pool);
	history->free_bytes = -1;
	for (size_t row = 0; row < lives.row_count; row++)
		if (lives.rows[row].device == history->device &&
		    !strcmp(lives.rows[row].action, "oom")) {
			history->refused++;
			history->free_bytes = (int64_t)lives.rows[row].address;
		}
	history->variable = variable_of(snapshot->root, pool);
	find_conf(snapshot->root, pool, !strcmp(history->variable, GM_VARIABLE_TORCH), history->trace.conf,
		  sizeof(history->trace.conf));
	if (strcmp(history->variable, GM_VARIABLE_TORCH))
		find_ours(history, snapshot->root);
	r = build(history, &lives);
	gm_lives_close(&lives);
	if (!r && !history->trace.count)
		r = -ENODATA;
	if (r)
		gm_trace_free(&history->trace);
	return r;
}
