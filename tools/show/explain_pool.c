/*
 * explain_pool.c - why a pool, for example PyTorch's, could not serve a request: see explain.h. One thread.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/replay/replay.h"
#include "tools/show/explain.h"
#include "tools/show/show.h"

#define SITES_SAID 5u			/* call sites that are named */
#define TEXT 1600			/* bytes of a sentence */
#define REPLAYED "Replayed with PYTORCH_CUDA_ALLOC_CONF="

static void add(json_t *lines, const char *text)
{
	json_array_append_new(lines, json_string(gm_show_clean(text)));
}

static const struct gm_snapshot_pool *pool_of(const struct gm_scene *scene, int64_t number)
{
	for (size_t i = 0; number > 0 && i < scene->snapshot->pool_count; i++)
		if (scene->snapshot->pools[i].number == number)
			return &scene->snapshot->pools[i];
	return NULL;
}

/* Say which call sites held the device's memory at the failure. */
static void say_holders(json_t *lines, const struct gm_scene *scene, const struct gm_explanation *explanation)
{
	struct gm_groups groups;
	char text[TEXT];

	if (gm_explain_holders(scene, explanation, GM_BY_SITE, &groups))
		return;
	if (groups.count) {
		snprintf(text, sizeof(text), "What was handed out then: %s in %s.", gm_show_bytes(groups.all_bytes[1]),
			 gm_show_count(groups.all_count[1], "block"));
		add(lines, text);
	}
	for (size_t i = 0; i < groups.count && i < SITES_SAID; i++) {
		snprintf(text, sizeof(text), "%12s in %s  %.900s", gm_show_bytes(groups.list[i].bytes[1]),
			 gm_show_count(groups.list[i].count[1], "block"), groups.list[i].key);
		add(lines, text);
	}
	gm_groups_close(&groups);
}

/* ---- what was idle ---------------------------------------------------------------------------- */

struct gm_idle gm_pool_idle(const struct gm_snapshot_pool *pool)
{
	struct gm_idle idle = { .bytes = 0 };

	for (size_t i = 0; i < pool->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &pool->segments[i];

		if (!segment->outside)
			idle.held = gm_wrap_add(idle.held, segment->total_size);
		for (size_t k = 0; k < segment->block_count; k++) {
			const struct gm_snapshot_block *block = &segment->blocks[k];

			if (strcmp(block->state, "inactive") || block->size <= 0)
				continue;
			idle.bytes = gm_wrap_add(idle.bytes, block->size);
			idle.largest = block->size > idle.largest ? block->size : idle.largest;
			if (segment->allocated_size > 0)
				idle.stuck = gm_wrap_add(idle.stuck, block->size);
			idle.pieces++;
		}
	}
	return idle;
}

static void say_idle(json_t *lines, const struct gm_snapshot_pool *pool, int64_t asked)
{
	struct gm_idle idle = gm_pool_idle(pool);
	char text[TEXT];

	if (!idle.pieces)
		snprintf(text, sizeof(text), "Pool %.60s held nothing idle.", gm_show_clean(pool->name));
	else if (idle.largest < asked)
		snprintf(text, sizeof(text), "Pool %.60s held %s idle in %s, the largest %s: too small.",
			 gm_show_clean(pool->name), gm_show_bytes(idle.bytes),
			 gm_show_count(idle.pieces, "piece"), gm_show_bytes(idle.largest));
	else
		snprintf(text, sizeof(text), "Pool %.60s held %s idle in %s, the largest %s. That was large enough, so "
			 "it was kept for another stream or another private pool, or waited for a stream; PyTorch "
			 "does not report which.",
			 gm_show_clean(pool->name), gm_show_bytes(idle.bytes),
			 gm_show_count(idle.pieces, "piece"), gm_show_bytes(idle.largest));
	add(lines, text);
}

/* Name the segment with the fewest bytes in use of those that are large enough for the request and at most half in use:
 * without these blocks the segment could have served the request, or gone back to the driver. */
static void say_kept(json_t *lines, const struct gm_scene *scene, const struct gm_snapshot_pool *pool, int64_t asked)
{
	const struct gm_snapshot_segment *kept = NULL;
	const struct gm_snapshot_block *block = NULL;
	char site[1024], text[TEXT];

	for (size_t i = 0; i < pool->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &pool->segments[i];

		if (segment->outside || segment->total_size < asked || segment->allocated_size <= 0 ||
		    segment->allocated_size > segment->total_size / 2)
			continue;
		if (!kept || segment->allocated_size < kept->allocated_size)
			kept = segment;
	}
	for (size_t k = 0; kept && k < kept->block_count; k++)
		if (strcmp(kept->blocks[k].state, "inactive") && (!block || kept->blocks[k].size > block->size))
			block = &kept->blocks[k];
	if (!block)
		return;
	snprintf(text, sizeof(text),
		 "A segment of %s at %#llx is kept by %s of live blocks; the largest, of %.900s, has %s.",
		 gm_show_bytes(kept->total_size), (unsigned long long)kept->address,
		 gm_show_bytes(kept->allocated_size),
		 gm_site_text(&scene->stacks, block->stack, site, sizeof(site)), gm_show_bytes(block->size));
	add(lines, text);
}

/* ---- what would have served ------------------------------------------------------------------- */

/* Return the bytes that the pool could have: its peak or, if that is more, what it had at the failure and what was
 * free. */
static uint64_t limit_of(const struct gm_snapshot_pool *pool, const json_t *failure)
{
	int64_t peak = gm_json_number(gm_json_object(pool->root, "memory_stats"), "reserved_bytes.all.peak");
	int64_t had = gm_json_number(failure, "reserved_bytes");
	int64_t asked = gm_json_number(failure, "requested_bytes");
	int64_t free_bytes = gm_json_number(failure, "free_bytes");

	if (had < 0 || free_bytes < 0 || had > INT64_MAX / 4 || free_bytes > INT64_MAX / 4)
		return 0;
	if (free_bytes < asked)		/* else a limit of PyTorch's refused the request */
		had += free_bytes;
	return (uint64_t)(peak > had ? peak : had);
}

/* Say whether the driver's pool, in place of PyTorch's, would have served the run. */
static void say_async(json_t *lines, const struct gm_would *would)
{
	static const char model[] = GM_WOULD_ASYNC " is modelled by a heap that moves pages of 2 MiB, in units of "
				    "32 MiB; on an H200 the driver's pool took 2% to 28% more than that";
	char text[TEXT];

	if (would->result != GM_WOULD_NOT && would->result != GM_WOULD_SERVE)
		return;
	if (would->async)
		snprintf(text, sizeof(text), REPLAYED GM_WOULD_ASYNC ", the run would%s have fitted, with at most %s "
			 "reserved; %s if the driver's pool takes 28%% more than the replay. (%s.)",
			 would->result == GM_WOULD_SERVE ? " also" : "", gm_show_bytes((int64_t)would->async_peak),
			 would->async_sure ? "even" : "but not", model);
	else
		snprintf(text, sizeof(text), REPLAYED GM_WOULD_ASYNC ", the run would not have fitted. (%s.)", model);
	add(lines, text);
}

static void say_setting(json_t *lines, const struct gm_scene *scene, const struct gm_snapshot_pool *pool,
			const json_t *failure)
{
	struct gm_would would;
	char text[TEXT];

	if (gm_would_serve(scene->snapshot, pool, (int)pool->device, limit_of(pool, failure), &would))
		return;
	switch (would.result) {
	case GM_WOULD_UNKNOWN:
		return;
	case GM_WOULD_UNSEEN:
		snprintf(text, sizeof(text), "Replayed as it was, the run would have fitted. So the cause is not "
			 "recorded, for example the streams that blocks belong to or wait for, and no setting "
			 "can be named.");
		break;
	case GM_WOULD_NOT:
		snprintf(text, sizeof(text), "Replayed within %s, the run would not have fitted with any of "
			 "expandable_segments, max_split_size_mb, garbage_collection_threshold and "
			 "roundup_power2_divisions%s. This estimate is within 5%%. With 5%% more memory %s%s.",
			 gm_show_bytes((int64_t)would.limit),
			 would.async || would.setting_with_more ? "" : ": the program must hold less",
			 would.setting_with_more ? "it would have fitted with " : "it would not have fitted, either",
			 would.setting_with_more ? would.setting_with_more : "");
		break;
	case GM_WOULD_SERVE:
		snprintf(text, sizeof(text), REPLAYED "%s, the run would have fitted, with at most %s reserved "
			 "where %s were available. This estimate is within 5%%. With 5%% less memory the run "
			 "would %s.", would.setting,
			 gm_show_bytes((int64_t)would.peak), gm_show_bytes((int64_t)would.limit),
			 would.sure ? "have fitted, too" : "not have fitted");
		break;
	}
	add(lines, text);
	say_async(lines, &would);
	if (would.dropped > 0) {
		snprintf(text, sizeof(text), "%lld older events of the pool are not in its history, so the replay "
			 "begins without the blocks that they left.", (long long)would.dropped);
		add(lines, text);
	}
}

json_t *gm_explain_pool(const struct gm_scene *scene, const struct gm_explanation *explanation)
{
	const json_t *failure = gm_json_object(scene->root, "failure");
	const json_t *failures = gm_json_list(scene->root, "failures");
	const struct gm_snapshot_pool *pool = pool_of(scene, explanation->pool);
	json_t *lines = json_array();
	bool of_now = !strcmp(gm_json_text(failure, "type"), "oom");

	if (!pool || explanation->cause == GM_CAUSE_NONE)
		return lines;
	if (!of_now)
		failure = json_array_get(failures, json_array_size(failures) - 1);
	say_holders(lines, scene, explanation);
	if (of_now) {			/* the blocks of @pool are those of the snapshot's moment */
		say_idle(lines, pool, gm_json_number(failure, "requested_bytes"));
		say_kept(lines, scene, pool, gm_json_number(failure, "requested_bytes"));
	}
	say_setting(lines, scene, pool, failure);
	return lines;
}
