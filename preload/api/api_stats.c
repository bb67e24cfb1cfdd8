/*
 * api_stats.c - the public functions that return and reset statistics, by PyTorch's names and in PyTorch's
 * table.
 *
 * Thread context: any, outside our locks. Signal context: none.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/api/api_stats.h"
#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

/* Check that @device can have statistics. Returns 0 or -errno. */
static int check_device(int device)
{
	if (device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	return gm_state_is_mine() ? 0 : -ENODATA;
}

static int stats_of(int device, struct gm_stats *ret)
{
	int r = check_device(device);

	if (!r)
		r = gm_record_stats((uint8_t)device, ret);
	return r == -ENODEV ? -ENODATA : r;
}

static int reset(int device, enum gm_reset which)
{
	int r = check_device(device);

	if (!r)
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

static void put(void *arg, const char *name, int64_t value)
{
	struct list *list = arg;

	if (list->count < list->max) {
		strcpy(list->items[list->count].name, name);
		list->items[list->count].value = value;
	}
	list->count++;
}

int gm_stats_into(const struct gm_stats *stats, gm_stats_lister *lister, struct gpumem_stat *items,
		  int max)
{
	struct list list = { items, items ? max : 0, 0 };

	lister(stats, put, &list);
	return list.count;
}

int gpumem_memory_stats(int device, struct gpumem_stat *stats, int max)
{
	struct gm_stats now;
	int r = stats_of(device, &now);

	return r ? r : gm_stats_into(&now, gm_stats_list, stats, max);
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
	gm_stats_table(&stats, NULL, device, put_line, stream);
	return ferror(stream) ? -EIO : 0;
}
