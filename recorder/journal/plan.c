/*
 * plan.c - where the areas of a journal lie in its file, and how large they are: see journal.h.
 *
 * Depends on no property of this machine, because readers on other machines check layouts by it.
 */
#include "recorder/journal/journal.h"

#include <errno.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define ROOMY (16 * MIB)		/* a span from which on small areas have their full size */
#define SEGMENTS_MOST (UINT64_C(512) * 1024)
#define BLOCKS_MOST (UINT64_C(1024) * 1024)
#define LIVES_MOST (UINT64_C(2048) * 1024)
#define INTERNED_MOST (112 * MIB)	/* interned areas and the rows of SITES together */
#define SPAN_MOST (UINT64_C(1) << 40)
#define EVENTS_MOST (UINT64_C(1) << 30)	/* the maximum of option `history` (options.def) */

static const uint32_t item_bytes[GM_REGION_COUNT] = {
	[GM_REGION_DOMAINS] = sizeof(struct gm_domain),
	[GM_REGION_THREADS] = sizeof(struct gm_thread),
	[GM_REGION_SEGMENTS] = sizeof(struct gm_segment),
	[GM_REGION_BLOCKS] = sizeof(struct gm_block),
	[GM_REGION_USAGE] = sizeof(struct gm_usage),
	[GM_REGION_TCACHES] = sizeof(struct gm_tcache_record),
	[GM_REGION_LIVES] = sizeof(struct gm_live),
	[GM_REGION_SITES] = sizeof(struct gm_site),
	[GM_REGION_MODULES] = sizeof(struct gm_module),
	[GM_REGION_FRAMES] = sizeof(struct gm_frame),
	[GM_REGION_SETTINGS] = sizeof(struct gm_setting),
	[GM_REGION_FAILURES] = sizeof(struct gm_failure),
	[GM_REGION_EVENTS] = GM_CHUNK_BYTES,
};

uint32_t gm_plan_item_bytes(enum gm_region_id region)
{
	return item_bytes[region];
}

/* Set the capacity of the areas with a fixed number of items. Returns the sum of their bytes. */
static uint64_t plan_fixed(bool roomy, uint64_t *capacity)
{
	uint64_t sum = 0;

	capacity[GM_REGION_DOMAINS] = sizeof(struct gm_domain) * GM_DOMAINS;
	capacity[GM_REGION_THREADS] = sizeof(struct gm_thread) * (roomy ? GM_MAX_THREADS : 512);
	capacity[GM_REGION_USAGE] = sizeof(struct gm_usage) * (roomy ? GM_USAGE_ROWS : 1024);
	capacity[GM_REGION_TCACHES] = sizeof(struct gm_tcache_record) * (roomy ? GM_MAX_TCACHES : 64);
	capacity[GM_REGION_MODULES] = sizeof(struct gm_module) * (roomy ? GM_MAX_MODULES : 1024);
	capacity[GM_REGION_SETTINGS] = sizeof(struct gm_setting) * 256;
	capacity[GM_REGION_FAILURES] = sizeof(struct gm_failure) * 64;
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		sum += capacity[r];
	return sum;
}

int gm_plan_make(uint64_t span, uint64_t history_events, struct gm_plan *ret_plan)
{
	struct gm_plan plan = { .chunks = 0 };
	uint64_t fixed = GM_HEADER_BYTES + plan_fixed(span >= ROOMY, plan.capacity);
	uint64_t tables = SEGMENTS_MOST * sizeof(struct gm_segment) +
			  BLOCKS_MOST * sizeof(struct gm_block) + LIVES_MOST * sizeof(struct gm_live);
	uint64_t interned = INTERNED_MOST, events, rest, segments;

	if (history_events > UINT32_MAX / 2 * GM_CHUNK_EVENTS)
		history_events = UINT32_MAX / 2 * GM_CHUNK_EVENTS;
	events = (history_events + GM_CHUNK_EVENTS - 1) / GM_CHUNK_EVENTS * GM_CHUNK_BYTES;
	if (span < fixed + GM_REGION_COUNT * GM_PAGE + 512 * KIB)
		return -ENOSPC;
	rest = span - fixed - GM_REGION_COUNT * GM_PAGE;	/* for rounding up to pages */
	if (tables + interned + events > rest) {
		interned = gm_min_u64(interned, rest / 8);
		events = gm_min_u64(events, rest - interned - gm_min_u64(tables, rest / 2)) /
			 GM_CHUNK_BYTES * GM_CHUNK_BYTES;
		tables = gm_min_u64(tables, rest - interned - events);
	}
	/* Two blocks for each segment: the cache splits its segments, segments of the driver's calls have one block.
	 * Four lines of pools for each segment, because tables of lines are seldom half full. */
	segments = tables / (sizeof(struct gm_segment) + 2 * sizeof(struct gm_block) + 4 * sizeof(struct gm_live));
	plan.capacity[GM_REGION_SEGMENTS] = segments * sizeof(struct gm_segment);
	plan.capacity[GM_REGION_BLOCKS] = 2 * segments * sizeof(struct gm_block);
	plan.capacity[GM_REGION_LIVES] = 4 * segments * sizeof(struct gm_live);
	plan.capacity[GM_REGION_STRINGS] = interned / 7;
	plan.capacity[GM_REGION_STACKS] = interned / 7 * 4;
	plan.capacity[GM_REGION_FRAMES] = interned / 7;
	plan.capacity[GM_REGION_SITES] = interned / 7;
	plan.capacity[GM_REGION_EVENTS] = events;
	plan.chunks = (uint32_t)(events / GM_CHUNK_BYTES);
	plan.file_bytes = GM_HEADER_BYTES;
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		plan.capacity[r] = gm_whole_pages(plan.capacity[r]);
		plan.offset[r] = plan.file_bytes;
		plan.file_bytes += plan.capacity[r];
	}
	*ret_plan = plan;
	return 0;
}

uint64_t gm_plan_most(enum gm_region_id region)
{
	struct gm_plan plan;

	return gm_plan_make(SPAN_MOST, EVENTS_MOST, &plan) ? 0 : plan.capacity[region];
}
