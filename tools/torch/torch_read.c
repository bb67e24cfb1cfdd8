/*
 * torch_read.c - turn a snapshot of PyTorch's into one of ours: see torch.h. One thread.
 */
#include "tools/torch/torch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/table.h"
#include "recorder/modules/names.h"
#include "tools/show/show.h"

#define DEVICES 1024			/* more are not read */

/* Add a segment to the current values of its device's statistics, and to those of its pool, small or large. */
static void count_segment(struct gm_stats *stats, const struct gm_snapshot_segment *segment)
{
	int pool = strcmp(segment->type, "small") ? GM_POOL_LARGE : GM_POOL_SMALL;
	int64_t add[GM_STAT_COUNT] = {
		[GM_STAT_ALLOCATED_BYTES] = segment->allocated_size, [GM_STAT_ACTIVE_BYTES] = segment->active_size,
		[GM_STAT_REQUESTED_BYTES] = segment->requested_size, [GM_STAT_RESERVED_BYTES] = segment->total_size,
		[GM_STAT_SEGMENT] = !segment->expandable,
	};

	for (size_t i = 0; i < segment->block_count; i++) {
		const struct gm_snapshot_block *block = &segment->blocks[i];
		bool idle = !strcmp(block->state, "inactive");

		add[GM_STAT_ALLOCATION] += !strcmp(block->state, "active_allocated");
		add[GM_STAT_ACTIVE] += !idle;
		if (idle && segment->block_count > 1 && !segment->expandable) {
			add[GM_STAT_INACTIVE_SPLIT]++;
			add[GM_STAT_INACTIVE_SPLIT_BYTES] = gm_wrap_add(add[GM_STAT_INACTIVE_SPLIT_BYTES], block->size);
		}
	}
	for (int s = 0; s < GM_STAT_COUNT; s++) {
		stats->stat[s][GM_POOL_ALL].current = gm_wrap_add(stats->stat[s][GM_POOL_ALL].current, add[s]);
		stats->stat[s][pool].current = gm_wrap_add(stats->stat[s][pool].current, add[s]);
	}
}

static json_t *device_of(const struct gm_stats *stats, size_t device)
{
	json_t *sums = json_object();
	char key[64];

	for (unsigned int s = 0; s < GM_STAT_COUNT; s++)
		for (unsigned int p = 0; p < GM_POOL_CLASSES; p++) {
			snprintf(key, sizeof(key), "%s.%s.current", gm_stat_name(s), gm_pool_class_name(p));
			json_object_set_new(sums, key, json_integer(stats->stat[s][p].current));
		}
	return json_pack("{sI sb ss sn so s[] s[] sn}", "device", (json_int_t)device, "present", true,
			 "name", "", "total_bytes", "memory_stats", sums, "by_module", "by_kind",
			 "unattributed_bytes");
}

/* Return the list of devices: those with a trace and those with a segment. All of them have a trace then, which may be
 * empty. NULL: out of memory. */
static json_t *devices_of(struct gm_snapshot *snapshot)
{
	struct gm_stats *stats = calloc(DEVICES, sizeof(*stats));
	size_t count = snapshot->trace_count < DEVICES ? snapshot->trace_count : DEVICES;
	int64_t *dropped = calloc(DEVICES + snapshot->trace_count, sizeof(*dropped));
	json_t *list = stats && dropped ? json_array() : NULL;

	for (size_t i = 0; list && i < snapshot->segment_count; i++) {
		int64_t device = snapshot->segments[i].device;

		if (device < 0 || device >= DEVICES)
			continue;
		count_segment(&stats[device], &snapshot->segments[i]);
		if ((size_t)device >= count)
			count = (size_t)device + 1;
	}
	for (size_t device = 0; list && device < count; device++)
		if (json_array_append_new(list, device_of(&stats[device], device))) {
			json_decref(list);
			list = NULL;
		}
	free(stats);
	free(snapshot->dropped);
	snapshot->dropped = dropped;	/* 0: PyTorch does not count dropped events */
	snapshot->trace_count = count > snapshot->trace_count ? count : snapshot->trace_count;
	return list;
}

int gm_torch_finish(struct gm_snapshot *snapshot)
{
	int64_t last = snapshot->row_count ? snapshot->rows[snapshot->row_count - 1].time_us : 0;
	json_t *settings = json_object_get(snapshot->root, "allocator_settings"), *root;
	json_t *annotations = json_object_get(snapshot->root, "annotations"), *devices = devices_of(snapshot);

	settings = json_is_object(settings) ? json_incref(settings) : json_object();
	annotations = json_is_array(annotations) ? json_incref(annotations) : json_array();
	root = json_pack("{ss si ss sI sb s{} so so s[{ss ss}] so}", "format", "gpumem-snapshot",
			 "version", 1, "reason", "pytorch", "time_us", (json_int_t)(last > 0 ? last : 0),
			 "consistent", true, "process", "allocator_settings", settings, "devices", devices,
			 "modules", "path", "", "build_id", "", "annotations", annotations);
	if (!root)
		return -ENOMEM;
	json_decref(snapshot->root);
	snapshot->root = root;
	return 0;
}
