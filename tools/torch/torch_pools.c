/*
 * torch_pools.c - show pools as devices in PyTorch's form: see torch.h. One thread.
 *
 * PyTorch's snapshot has only one level, by device. PyTorch's pool on a device gets the device's number, so that the
 * result is what torch.cuda.memory._dump_snapshot() would have written. The driver's level of that device, and the
 * device's other pools, get numbers after those of all devices.
 */
#include "tools/torch/torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/heap.h"
#include "preload/options/options.h"
#include "tools/show/show.h"

struct numbers {
	int *driver;			/* by device: the number of the driver's level; the same without a pool */
	int *pool;			/* by index of the pool: its number */
	size_t count;			/* of all numbers */
};

static bool has_place(const struct gm_snapshot *snapshot, const struct gm_snapshot_pool *pool)
{
	return pool->device >= 0 && (size_t)pool->device < snapshot->trace_count;
}

static bool is_torch(const struct gm_snapshot_pool *pool)
{
	return !strcmp(gm_json_text(pool->root, "source"), "libc10");
}

/* Choose the numbers. PyTorch's pool takes the device's number before other pools. Return 0 or -ENOMEM. */
static int choose(const struct gm_snapshot *snapshot, struct numbers *ret)
{
	ret->count = snapshot->trace_count;
	ret->driver = calloc(snapshot->trace_count + 1, sizeof(*ret->driver));
	ret->pool = calloc(snapshot->pool_count + 1, sizeof(*ret->pool));
	if (!ret->driver || !ret->pool)
		return -ENOMEM;
	for (size_t d = 0; d < snapshot->trace_count; d++) {
		size_t first = SIZE_MAX;

		ret->driver[d] = (int)d;
		for (size_t p = 0; p < snapshot->pool_count; p++) {
			const struct gm_snapshot_pool *pool = &snapshot->pools[p];

			if (pool->device == (int64_t)d &&
			    (first == SIZE_MAX || (is_torch(pool) && !is_torch(&snapshot->pools[first]))))
				first = p;
		}
		if (first == SIZE_MAX)
			continue;
		ret->driver[d] = (int)ret->count++;
		for (size_t p = 0; p < snapshot->pool_count; p++)
			if (snapshot->pools[p].device == (int64_t)d)
				ret->pool[p] = p == first ? (int)d : (int)ret->count++;
	}
	return 0;
}

/* Return a pool's row as one of device @number. A piece of expandable memory becomes a mapped part of a segment, as in
 * PyTorch's own snapshots. */
static struct gm_row row_of(const struct gm_row *from, int number)
{
	struct gm_row row = *from;

	if (!strcmp(row.kind, "vmm") && !strcmp(row.action, "segment_alloc"))
		row.action = "segment_map";
	else if (!strcmp(row.kind, "vmm") && !strcmp(row.action, "segment_free"))
		row.action = "segment_unmap";
	row.kind = "device";
	row.device = number;
	return row;
}

static int move_rows(struct gm_snapshot *snapshot, const struct numbers *numbers)
{
	size_t room = snapshot->row_count + 1;
	struct gm_row *rows;

	for (size_t p = 0; p < snapshot->pool_count; p++)
		room += snapshot->pools[p].row_count;
	rows = realloc(snapshot->rows, room * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	snapshot->rows = rows;
	for (size_t i = 0; i < snapshot->row_count; i++)
		if (rows[i].device >= 0 && (size_t)rows[i].device < snapshot->trace_count)
			rows[i].device = numbers->driver[rows[i].device];
	for (size_t p = 0; p < snapshot->pool_count; p++)
		for (size_t i = 0; has_place(snapshot, &snapshot->pools[p]) && i < snapshot->pools[p].row_count; i++)
			rows[snapshot->row_count++] = row_of(&snapshot->pools[p].rows[i], numbers->pool[p]);
	return 0;
}

static int move_segments(struct gm_snapshot *snapshot, const struct numbers *numbers)
{
	size_t room = snapshot->segment_count + 1;
	struct gm_snapshot_segment *segments;

	for (size_t p = 0; p < snapshot->pool_count; p++)
		room += snapshot->pools[p].segment_count;
	segments = realloc(snapshot->segments, room * sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	snapshot->segments = segments;
	for (size_t i = 0; i < snapshot->segment_count; i++)
		if (segments[i].device >= 0 && (size_t)segments[i].device < snapshot->trace_count)
			segments[i].device = numbers->driver[segments[i].device];
	for (size_t p = 0; p < snapshot->pool_count; p++) {
		struct gm_snapshot_pool *pool = &snapshot->pools[p];

		if (!has_place(snapshot, pool))
			continue;
		for (size_t i = 0; i < pool->segment_count; i++) {
			struct gm_snapshot_segment *to = &segments[snapshot->segment_count++];

			*to = pool->segments[i];
			to->device = numbers->pool[p];
			to->kind = "device";
		}
		pool->segment_count = 0;	/* @snapshot owns the segments and their blocks now */
	}
	return 0;
}

/* Write to @note what each number stands for. */
static void say(const struct gm_snapshot *snapshot, const struct numbers *numbers, char *note, size_t room)
{
	size_t length = 0;

	for (size_t p = 0; p < snapshot->pool_count && length < room; p++)
		if (has_place(snapshot, &snapshot->pools[p]))
			length += (size_t)snprintf(note + length, room - length, "%sdevice %d is pool %.40s",
						   length ? ", " : "", numbers->pool[p],
						   gm_show_clean(snapshot->pools[p].name));
	for (size_t d = 0; d < snapshot->trace_count && length < room; d++)
		if (numbers->driver[d] != (int)d)
			length += (size_t)snprintf(note + length, room - length,
						   ", device %d what the driver gave on device %zu",
						   numbers->driver[d], d);
	gm_show_repair(note);
}

/* ---- settings ---------------------------------------------------------------------------------- */

/* Return the rest of @conf behind "@name:"; "" if @name is not in it. */
static const char *said_of(const char *conf, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = conf; (at = strstr(at, name)); at += length)
		if ((at == conf || at[-1] == ',' || at[-1] == ' ') && at[length] == ':')
			return at + length + 1;
	return "";
}

/* Add the members of PyTorch's allocator_settings, from PyTorch's variable; the snapshot's own settings are those of
 * our cache. */
static void set_settings(struct gm_snapshot *snapshot)
{
	static const char *const words[] = {
		"release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse"
	};
	json_t *settings = json_object_get(snapshot->root, "allocator_settings"), *divisions = json_object();
	const char *conf = gm_json_text(settings, "PYTORCH_CUDA_ALLOC_CONF");
	long threads = strtol(said_of(conf, "pinned_num_register_threads"), NULL, 10);
	bool expandable = !strncmp(said_of(conf, "expandable_segments"), "True", 4);
	char error[GM_OPTION_ERROR_BYTES], name[16];
	struct gm_heap_config config;

	gm_options_heap_parse(&config, conf, true, error);	/* after an error a setting has PyTorch's default */
	for (size_t p = 0; p < snapshot->pool_count; p++)
		expandable |= is_torch(&snapshot->pools[p]) && gm_pool_is_expandable(&snapshot->pools[p]);
	for (unsigned int i = 0; i < GM_HEAP_DIVISION_BINS; i++) {
		snprintf(name, sizeof(name), "%u", 1u << i);
		json_object_set_new(divisions, name, json_integer(config.roundup_power2_divisions[i]));
	}
	json_object_set_new(settings, "max_split_size", json_integer(
		config.max_split_size > INT64_MAX ? -1 : (json_int_t)config.max_split_size));
	json_object_set_new(settings, "garbage_collection_threshold", json_real(config.garbage_collection_threshold));
	json_object_set_new(settings, "expandable_segments", json_boolean(expandable));
	json_object_set_new(settings, "pinned_num_register_threads", json_integer(threads > 0 ? threads : 1));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		json_object_set_new(settings, words[i], json_boolean(!strncmp(said_of(conf, words[i]), "True", 4)));
	json_object_set_new(settings, "roundup_power2_divisions", divisions);
}

static bool has_torch(const struct gm_snapshot *snapshot)
{
	for (size_t p = 0; p < snapshot->pool_count; p++)
		if (is_torch(&snapshot->pools[p]))
			return true;
	return false;
}

int gm_torch_pools(struct gm_snapshot *snapshot, char *note, size_t room)
{
	struct numbers numbers = { .count = 0 };
	int r = 0;

	if (!snapshot->pool_count)
		return 0;
	r = choose(snapshot, &numbers);
	if (!r && has_torch(snapshot))
		set_settings(snapshot);
	if (!r)
		r = move_rows(snapshot, &numbers);
	if (!r)
		r = move_segments(snapshot, &numbers);
	if (!r)
		say(snapshot, &numbers, note, room);
	free(numbers.driver);
	free(numbers.pool);
	return r;
}
