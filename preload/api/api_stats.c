/*
 * api_stats.c - the public functions that tell and reset statistics, under PyTorch's names and in
 * PyTorch's table.
 *
 * Thread context: any, outside our locks. Signal context: none.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/process/state.h"
#include "recorder/modules/names.h"
#include "recorder/journal/recorder.h"
#include "recorder/record/stats_table.h"

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

static void put_line(void *stream, const char *text)
{
	fprintf(stream, "%s\n", text);
}

int gpumem_memory_summary(int device, FILE *stream)
{
	struct gm_stats stats;
	int r = stats_of(device, &stats);

	if (r)
		return r;
	if (!stream)
		return -EINVAL;
	gm_stats_table(&stats, device, put_line, stream);
	return ferror(stream) ? -EIO : 0;
}
