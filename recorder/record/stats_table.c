/*
 * stats_table.c - PyTorch's memory_summary() and memory_stats(): see stats_table.h. The layout, the units and the
 * values at which the unit changes are those of torch/cuda/memory.py.
 */
#define _GNU_SOURCE			/* stpcpy */
#include "recorder/record/stats_table.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "recorder/modules/names.h"

#define WIDTH 75

struct table {
	void (*line)(void *arg, const char *text);
	void *arg;
};

/* Format a cell as PyTorch does. @reference, the value of the "all" row, decides the unit. */
static void put_cell(char ret[32], int64_t value, int64_t reference, bool bytes)
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
		snprintf(ret, 32, "%6" PRId64 " %s", value, units[unit]);
	else
		snprintf(ret, 32, "%7" PRId64 " %s ", value, thousands[unit]);
}

static void put_row(const struct table *table, const char *name, const struct gm_stat *stat,
		    const struct gm_stat *all, bool bytes)
{
	char cells[4][32], text[192];

	put_cell(cells[0], stat->current, all->current, bytes);
	put_cell(cells[1], stat->peak, all->peak, bytes);
	put_cell(cells[2], stat->allocated, all->allocated, bytes);
	put_cell(cells[3], stat->freed, all->freed, bytes);
	snprintf(text, sizeof(text), "| %-21s | %s | %s | %s | %s |", name, cells[0], cells[1],
		 cells[2], cells[3]);
	table->line(table->arg, text);
}

static void put_rule(const struct table *table, char c)
{
	char text[WIDTH + 3];

	memset(text, c, sizeof(text));
	text[0] = text[WIDTH + 1] = '|';
	text[WIDTH + 2] = '\0';
	table->line(table->arg, text);
}

/* @pool: NULL for the device itself. */
static void put_head(const struct table *table, const struct gm_stats *stats, const char *pool,
		     int device)
{
	char text[192];

	put_rule(table, '=');
	if (pool)
		snprintf(text, sizeof(text), "| %6s gpumem memory summary, device ID %d, pool %-25.24s |",
			 "", device, pool);
	else
		snprintf(text, sizeof(text), "| %16s gpumem CUDA memory summary, device ID %-18d |", "",
			 device);
	table->line(table->arg, text);
	put_rule(table, '-');
	if (pool)
		snprintf(text, sizeof(text), "|  %9s CUDA OOMs: %-12" PRId64 " | %36s |", "",
			 stats->num_ooms, "");
	else
		snprintf(text, sizeof(text), "|  %9s CUDA OOMs: %-12" PRId64 " | %6s cudaMalloc retries: %-8"
			 PRId64 "  |", "", stats->num_ooms, "", stats->num_alloc_retries);
	table->line(table->arg, text);
	put_rule(table, '=');
	table->line(table->arg,
		    "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |");
}

/* @pool: put only the statistics that application pools have. */
static void put_metrics(const struct table *table, const struct gm_stats *stats, bool pool)
{
	static const struct { enum gm_stat_name name; const char *title; bool bytes, pool; } metrics[] = {
		{ GM_STAT_ALLOCATED_BYTES, "Allocated memory", true, true },
		{ GM_STAT_ACTIVE_BYTES, "Active memory", true, false },
		{ GM_STAT_REQUESTED_BYTES, "Requested memory", true, false },
		{ GM_STAT_RESERVED_BYTES, "GPU reserved memory", true, true },
		{ GM_STAT_INACTIVE_SPLIT_BYTES, "Non-releasable memory", true, false },
		{ GM_STAT_ALLOCATION, "Allocations", false, true },
		{ GM_STAT_ACTIVE, "Active allocs", false, false },
		{ GM_STAT_SEGMENT, "GPU reserved segments", false, true },
		{ GM_STAT_INACTIVE_SPLIT, "Non-releasable allocs", false, false },
	};

	for (unsigned int i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const struct gm_stat *of = stats->stat[metrics[i].name];
		const struct gm_stat *all = &of[GM_POOL_ALL];

		if (pool && !metrics[i].pool)
			continue;
		put_rule(table, '-');
		put_row(table, metrics[i].title, all, all, metrics[i].bytes);
		put_row(table, "      from large pool", &of[GM_POOL_LARGE], all, metrics[i].bytes);
		put_row(table, "      from small pool", &of[GM_POOL_SMALL], all, metrics[i].bytes);
	}
}

void gm_stats_table(const struct gm_stats *stats, const char *pool, int device,
		    void (*line)(void *arg, const char *text), void *arg)
{
	const struct table table = { line, arg };

	put_head(&table, stats, pool, device);
	put_metrics(&table, stats, pool);
	if (!pool) {
		put_rule(&table, '-');
		put_row(&table, "Oversize allocations", &stats->oversize_allocations,
			&stats->oversize_allocations, false);
		put_rule(&table, '-');
		put_row(&table, "Oversize GPU segments", &stats->oversize_segments,
			&stats->oversize_segments, false);
	}
	put_rule(&table, '=');
}

/* ---- memory_stats() ----------------------------------------------------------------------------- */

struct list {
	void (*put)(void *arg, const char *name, int64_t value);
	void *arg;
};

/* @pool: NULL for a statistic that has only one class. */
static void list_stat(const struct list *list, const char *name, const char *pool,
		      const struct gm_stat *stat)
{
	const struct { const char *name; int64_t value; } parts[] = {	/* sorted, as PyTorch's */
		{ ".allocated", stat->allocated }, { ".current", stat->current },
		{ ".freed", stat->freed }, { ".peak", stat->peak },
	};

	for (unsigned int i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char key[56], *at = stpcpy(key, name);

		if (pool)
			at = stpcpy(stpcpy(at, "."), pool);
		stpcpy(at, parts[i].name);
		list->put(list->arg, key, parts[i].value);
	}
}

static void list_pools(const struct list *list, const struct gm_stats *stats, enum gm_stat_name name)
{
	static const enum gm_pool_class order[] = { GM_POOL_ALL, GM_POOL_LARGE, GM_POOL_SMALL };

	for (unsigned int i = 0; i < GM_POOL_CLASSES; i++)
		list_stat(list, gm_stat_name(name), gm_pool_class_name(order[i]),
			  &stats->stat[name][order[i]]);
}

void gm_stats_list(const struct gm_stats *stats,
		   void (*put)(void *arg, const char *name, int64_t value), void *arg)
{
	static const enum gm_stat_name before[] = {
		GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES, GM_STAT_ALLOCATED_BYTES, GM_STAT_ALLOCATION,
		GM_STAT_INACTIVE_SPLIT, GM_STAT_INACTIVE_SPLIT_BYTES,
	};
	static const enum gm_stat_name after[] = {
		GM_STAT_REQUESTED_BYTES, GM_STAT_RESERVED_BYTES, GM_STAT_SEGMENT,
	};
	const struct list list = { put, arg };

	for (unsigned int i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		list_pools(&list, stats, before[i]);
	put(arg, "max_split_size", stats->max_split_size);
	put(arg, "num_alloc_retries", stats->num_alloc_retries);
	put(arg, "num_device_alloc", stats->num_device_alloc);
	put(arg, "num_device_free", stats->num_device_free);
	put(arg, "num_ooms", stats->num_ooms);
	put(arg, "num_sync_all_streams", stats->num_sync_all_streams);
	list_stat(&list, "oversize_allocations", NULL, &stats->oversize_allocations);
	list_stat(&list, "oversize_segments", NULL, &stats->oversize_segments);
	for (unsigned int i = 0; i < sizeof(after) / sizeof(after[0]); i++)
		list_pools(&list, stats, after[i]);
}

void gm_stats_list_pool(const struct gm_stats *stats,
			void (*put)(void *arg, const char *name, int64_t value), void *arg)
{
	const struct list list = { put, arg };

	list_pools(&list, stats, GM_STAT_ALLOCATED_BYTES);
	list_pools(&list, stats, GM_STAT_ALLOCATION);
	put(arg, "num_ooms", stats->num_ooms);
	list_pools(&list, stats, GM_STAT_RESERVED_BYTES);
	list_pools(&list, stats, GM_STAT_SEGMENT);
}
