/*
 * api_stats.c - the public functions that tell and reset statistics, under PyTorch's names and in
 * PyTorch's table.
 *
 * Thread context: any, outside our locks. Signal context: none. Fork: see api.c.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/gpumem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "preload/state.h"
#include "recorder/names.h"
#include "recorder/recorder.h"

static int stats_of(int device, struct gm_stats *ret)
{
	int r;

	if (device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_state_is_mine())
		return -ENODATA;
	r = gm_record_stats((uint8_t)device, ret);
	return r == -ENODEV ? -ENODATA : r;
}

static int reset(int device, enum gm_reset which)
{
	int r;

	if (device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_state_is_mine())
		return -ENODATA;
	r = gm_record_reset_stats((uint8_t)device, which);
	return r == -ENODEV ? -ENODATA : r;
}

int gpumem_reset_peak_memory_stats(int device)
{
	return reset(device, GM_RESET_PEAK);
}

int gpumem_reset_accumulated_memory_stats(int device)
{
	return reset(device, GM_RESET_ACCUMULATED);
}

static int64_t bytes_of(int device, enum gm_stat_name name, bool peak)
{
	struct gm_stats stats;
	int r = stats_of(device, &stats);

	if (r)
		return r;
	return peak ? stats.stat[name][GM_POOL_ALL].peak : stats.stat[name][GM_POOL_ALL].current;
}

int64_t gpumem_memory_allocated(int device)
{
	return bytes_of(device, GM_STAT_ALLOCATED_BYTES, false);
}

int64_t gpumem_memory_reserved(int device)
{
	return bytes_of(device, GM_STAT_RESERVED_BYTES, false);
}

int64_t gpumem_max_memory_allocated(int device)
{
	return bytes_of(device, GM_STAT_ALLOCATED_BYTES, true);
}

int64_t gpumem_max_memory_reserved(int device)
{
	return bytes_of(device, GM_STAT_RESERVED_BYTES, true);
}

/* ---- all of them, by name ---------------------------------------------------------------------- */

struct list {
	struct gpumem_stat *items;
	int max, count;
};

static void put(struct list *list, const char *name, const char *pool, const char *part,
		int64_t value)
{
	const char *const parts[] = { name, pool, part };
	struct gpumem_stat *item;
	char *at;

	if (list->count++ >= list->max)
		return;
	item = &list->items[list->count - 1];
	at = item->name;
	for (unsigned int i = 0; i < 3; i++) {
		if (!parts[i])
			continue;
		if (at != item->name)
			*at++ = '.';
		at = stpcpy(at, parts[i]);
	}
	item->value = value;
}

static void put_stat(struct list *list, const char *name, const char *pool,
		     const struct gm_stat *stat)
{
	put(list, name, pool, "allocated", stat->allocated);
	put(list, name, pool, "current", stat->current);
	put(list, name, pool, "freed", stat->freed);
	put(list, name, pool, "peak", stat->peak);
}

static void put_pools(struct list *list, const struct gm_stats *stats, enum gm_stat_name name)
{
	static const enum gm_pool_class order[] = { GM_POOL_ALL, GM_POOL_LARGE, GM_POOL_SMALL };

	for (unsigned int i = 0; i < GM_POOL_CLASSES; i++)
		put_stat(list, gm_stat_name(name), gm_pool_class_name(order[i]),
			 &stats->stat[name][order[i]]);
}

int gpumem_memory_stats(int device, struct gpumem_stat *stats, int max)
{
	static const enum gm_stat_name before[] = {
		GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES, GM_STAT_ALLOCATED_BYTES, GM_STAT_ALLOCATION,
		GM_STAT_INACTIVE_SPLIT, GM_STAT_INACTIVE_SPLIT_BYTES,
	};
	static const enum gm_stat_name after[] = {
		GM_STAT_REQUESTED_BYTES, GM_STAT_RESERVED_BYTES, GM_STAT_SEGMENT,
	};
	struct list list = { stats, stats ? max : 0, 0 };
	struct gm_stats now;
	int r = stats_of(device, &now);

	if (r)
		return r;
	for (unsigned int i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		put_pools(&list, &now, before[i]);
	put(&list, "max_split_size", NULL, NULL, now.max_split_size);
	put(&list, "num_alloc_retries", NULL, NULL, now.num_alloc_retries);
	put(&list, "num_device_alloc", NULL, NULL, now.num_device_alloc);
	put(&list, "num_device_free", NULL, NULL, now.num_device_free);
	put(&list, "num_ooms", NULL, NULL, now.num_ooms);
	put(&list, "num_sync_all_streams", NULL, NULL, now.num_sync_all_streams);
	put_stat(&list, "oversize_allocations", NULL, &now.oversize_allocations);
	put_stat(&list, "oversize_segments", NULL, &now.oversize_segments);
	for (unsigned int i = 0; i < sizeof(after) / sizeof(after[0]); i++)
		put_pools(&list, &now, after[i]);
	return list.count;
}

/* ---- the table --------------------------------------------------------------------------------- */

#define RULE_WIDTH 75

/* A cell as PyTorch writes it; @reference, the value of the "all" row, decides the unit. */
static void cell(char ret[16], int64_t value, int64_t reference, bool bytes)
{
	static const char *const units[] = { "B  ", "KiB", "MiB", "GiB", "TiB", "PiB" };
	static const char *const thousands[] = { " ", "K", "M" };
	const int last = bytes ? 5 : 2, step = bytes ? 1024 : 1000;
	const double enough = bytes ? 768.0 * 1024 : 750.0 * 1000;
	double shown = (double)reference;
	int unit = 0;

	for (; unit < last && shown >= enough; unit++) {
		value /= step;
		shown /= step;
	}
	if (bytes)
		snprintf(ret, 16, "%6" PRId64 " %s", value, units[unit]);
	else
		snprintf(ret, 16, "%7" PRId64 " %s ", value, thousands[unit]);
}

static void row(FILE *stream, const char *name, const struct gm_stat *stat,
		const struct gm_stat *all, bool bytes)
{
	char cells[4][16];

	cell(cells[0], stat->current, all->current, bytes);
	cell(cells[1], stat->peak, all->peak, bytes);
	cell(cells[2], stat->allocated, all->allocated, bytes);
	cell(cells[3], stat->freed, all->freed, bytes);
	fprintf(stream, "| %-21s | %s | %s | %s | %s |\n", name, cells[0], cells[1], cells[2],
		cells[3]);
}

static void rule(FILE *stream, char c)
{
	char line[RULE_WIDTH + 1];

	memset(line, c, RULE_WIDTH);
	line[RULE_WIDTH] = '\0';
	fprintf(stream, "|%s|\n", line);
}

static void table(FILE *stream, int device, const struct gm_stats *stats)
{
	static const struct { enum gm_stat_name name; const char *title; bool bytes; } metrics[] = {
		{ GM_STAT_ALLOCATED_BYTES, "Allocated memory", true },
		{ GM_STAT_ACTIVE_BYTES, "Active memory", true },
		{ GM_STAT_REQUESTED_BYTES, "Requested memory", true },
		{ GM_STAT_RESERVED_BYTES, "GPU reserved memory", true },
		{ GM_STAT_INACTIVE_SPLIT_BYTES, "Non-releasable memory", true },
		{ GM_STAT_ALLOCATION, "Allocations", false },
		{ GM_STAT_ACTIVE, "Active allocs", false },
		{ GM_STAT_SEGMENT, "GPU reserved segments", false },
		{ GM_STAT_INACTIVE_SPLIT, "Non-releasable allocs", false },
	};

	rule(stream, '=');
	fprintf(stream, "| %16s gpumem CUDA memory summary, device ID %-18d |\n", "", device);
	rule(stream, '-');
	fprintf(stream, "|  %9s CUDA OOMs: %-12" PRId64 " | %6s cudaMalloc retries: %-8" PRId64
		"  |\n", "", stats->num_ooms, "", stats->num_alloc_retries);
	rule(stream, '=');
	fputs("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n",
	      stream);
	for (unsigned int i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const struct gm_stat *of = stats->stat[metrics[i].name];
		const struct gm_stat *all = &of[GM_POOL_ALL];

		rule(stream, '-');
		row(stream, metrics[i].title, all, all, metrics[i].bytes);
		row(stream, "      from large pool", &of[GM_POOL_LARGE], all, metrics[i].bytes);
		row(stream, "      from small pool", &of[GM_POOL_SMALL], all, metrics[i].bytes);
	}
	rule(stream, '-');
	row(stream, "Oversize allocations", &stats->oversize_allocations,
	    &stats->oversize_allocations, false);
	rule(stream, '-');
	row(stream, "Oversize GPU segments", &stats->oversize_segments, &stats->oversize_segments,
	    false);
	rule(stream, '=');
}

int gpumem_memory_summary(int device, FILE *stream)
{
	struct gm_stats stats;
	int r = stats_of(device, &stats);

	if (r)
		return r;
	if (!stream)
		return -EINVAL;
	table(stream, device, &stats);
	return ferror(stream) ? -EIO : 0;
}
