/*
 * torch_device.c - what a snapshot of PyTorch says of each device, its statistics counted from its
 * segments: see torch_device.h. One thread.
 */
#include "tools/torch/torch_device.h"

#include <stdio.h>
#include <string.h>

#define DEVICES 1024			/* traces of more are not read */

/* Add what a segment of PyTorch's is to the statistics of its device and its pool. */
static void count_segment(int64_t stats[][3], const struct gm_value *segment)
{
	enum { ALLOCATED, ACTIVE, REQUESTED, RESERVED, INACTIVE, ALLOCATION, ACTIVES, SEGMENTS, SPLITS };
	const struct gm_value *blocks = gm_value_list(segment, "blocks");
	int pool = strcmp(gm_value_string(segment, "segment_type"), "small") ? 1 : 2;
	bool expandable = gm_value_number(segment, "is_expandable");
	int64_t add[9] = {
		[ALLOCATED] = gm_value_number(segment, "allocated_size"),
		[ACTIVE] = gm_value_number(segment, "active_size"),
		[REQUESTED] = gm_value_number(segment, "requested_size"),
		[RESERVED] = gm_value_number(segment, "total_size"), [SEGMENTS] = !expandable,
	};

	for (size_t i = 0; i < gm_value_length(blocks); i++) {
		const char *state = gm_value_string(blocks->u.items[i], "state");
		bool idle = !strcmp(state, "inactive");

		add[ALLOCATION] += !strcmp(state, "active_allocated");
		add[ACTIVES] += !idle;
		if (idle && blocks->count > 1 && !expandable) {
			add[SPLITS]++;
			add[INACTIVE] += gm_value_number(blocks->u.items[i], "size");
		}
	}
	for (int k = 0; k < 9; k++) {
		stats[k][0] = (int64_t)((uint64_t)stats[k][0] + (uint64_t)add[k]);
		stats[k][pool] = (int64_t)((uint64_t)stats[k][pool] + (uint64_t)add[k]);
	}
}

const struct gm_value *gm_torch_device(struct gm_maker *m, const struct gm_value *root,
				       size_t device)
{
	static const char *const names[9] = {
		"allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes",
		"inactive_split_bytes", "allocation", "active", "segment", "inactive_split"
	};
	static const char *const pools[3] = { "all", "large_pool", "small_pool" };
	const struct gm_value *segments = gm_value_list(root, "segments");
	const struct gm_value *nothing = gm_make_list(m, &(struct gm_list){ .count = 0 });
	struct gm_dict stats = { .count = 0 }, made_of = { .count = 0 }, *to = &made_of;
	int64_t sums[9][3] = { { 0 } };
	char key[64];

	for (size_t i = 0; i < gm_value_length(segments); i++)
		if (gm_value_number(segments->u.items[i], "device") == (int64_t)device)
			count_segment(sums, segments->u.items[i]);
	for (int k = 0; k < 9; k++)
		for (int p = 0; p < 3; p++) {
			snprintf(key, sizeof(key), "%s.%s.current", names[k], pools[p]);
			gm_make_set(m, &stats, key, gm_make_int(m, sums[k][p]));
		}
	gm_make_set(m, to, "device", gm_make_int(m, (int64_t)device));
	gm_make_set(m, to, "present", gm_value_bool(true));
	gm_make_set(m, to, "name", gm_make_text(m, ""));
	gm_make_set(m, to, "total_bytes", gm_value_null());
	gm_make_set(m, to, "memory_stats", gm_make_dict(m, &stats));
	gm_make_set(m, to, "by_module", nothing);
	gm_make_set(m, to, "by_kind", nothing);
	gm_make_set(m, to, "unattributed_bytes", gm_value_null());
	return gm_make_dict(m, to);
}

size_t gm_torch_device_count(const struct gm_value *root)
{
	const struct gm_value *segments = gm_value_list(root, "segments");
	size_t count = gm_value_length(gm_value_list(root, "device_traces"));

	for (size_t i = 0; i < gm_value_length(segments); i++) {
		int64_t device = gm_value_number(segments->u.items[i], "device");

		if (device >= (int64_t)count && device < DEVICES)
			count = (size_t)device + 1;
	}
	return count < DEVICES ? count : DEVICES;
}
