/*
 * torch_pools.c - pools where PyTorch's snapshot has its own: see torch.h. One thread.
 *
 * PyTorch's snapshot has one level, by device. A device's number goes to its pool, so that the rest is what
 * torch.cuda.memory._dump_snapshot() would have written; the driver's level of that device, and other pools on it,
 * get numbers behind those of all devices.
 */
#include "tools/torch/torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"

struct numbers {
	int *driver;			/* by device: the number of its own level, its own without a pool */
	int *pool;			/* by place among the pools */
	size_t count;			/* all of them */
};

static bool has_place(const struct gm_snapshot *snapshot, const struct gm_snapshot_pool *pool)
{
	return pool->device >= 0 && (size_t)pool->device < snapshot->trace_count;
}

static bool is_torch(const struct gm_snapshot_pool *pool)
{
	return !strcmp(gm_json_text(pool->root, "source"), "libc10");
}

/* PyTorch's own pool takes the device's number, before any other. */
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

/* Pieces of expandable memory are parts of a segment that are mapped, as PyTorch has it. */
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
		pool->segment_count = 0;	/* they have moved, with their blocks */
	}
	return 0;
}

/* Which number is what. */
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

int gm_torch_pools(struct gm_snapshot *snapshot, char *note, size_t room)
{
	struct numbers numbers = { .count = 0 };
	int r = 0;

	if (!snapshot->pool_count)
		return 0;
	r = choose(snapshot, &numbers);
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
