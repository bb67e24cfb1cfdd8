/*
 * explain_more.c - why memory ran out: which call site only grows, and which settings would have served a request that
 * our own cache could not serve: see explain.h. One thread.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/replay.h"
#include "tools/show/explain.h"
#include "tools/show/show.h"

#define QUARTERS 4u
#define BLOCKS_LEAST 16u		/* live blocks; with fewer, a call site does not count as growing */
#define PAGE INT64_C(2097152)		/* bytes; the driver's unit of device memory */

/* ---- what only grows ---------------------------------------------------------------------------- */

/* Return for each stack whether its call site is @key; the caller frees the list. NULL: out of memory. */
static bool *stacks_of(const struct gm_scene *scene, const char *key)
{
	bool *is = calloc(scene->stacks.count + 1, sizeof(*is));
	char site[1024];

	for (size_t i = 1; is && i < scene->stacks.count; i++)
		is[i] = !strcmp(gm_site_text(&scene->stacks, (int64_t)i, site, sizeof(site)), key);
	return is;
}

struct ages {
	size_t survivors[QUARTERS];	/* live blocks, by the quarter in which they were allocated */
	size_t all, freed, freed_elsewhere;
};

/* Return the quarter of rows @first to @rows in which row @born lies. */
static unsigned int quarter_of(uint32_t born, uint32_t first, uint32_t rows)
{
	if (born == GM_LIFE_BEFORE || rows <= first)
		return 0;
	return (unsigned int)((uint64_t)(born - first) * QUARTERS / (rows - first + 1));
}

static void count_ages(const struct gm_scene *scene, const char *device, const bool *stacks, int64_t row,
		       struct ages *ret)
{
	uint32_t rows = row == GM_LIVES_END ? (uint32_t)scene->lives.row_count : (uint32_t)row, first = rows;

	for (size_t i = 0; i < scene->lives.count; i++) {
		const struct gm_life *life = &scene->lives.list[i];

		if (gm_life_counts(life, device) && life->stack > 0 && (size_t)life->stack < scene->stacks.count &&
		    stacks[life->stack] && life->born < first)
			first = life->born;
	}
	for (size_t i = 0; i < scene->lives.count; i++) {
		const struct gm_life *life = &scene->lives.list[i];
		bool of_site = life->stack > 0 && (size_t)life->stack < scene->stacks.count && stacks[life->stack];

		if (!gm_life_counts(life, device) || (life->born != GM_LIFE_BEFORE && life->born > rows))
			continue;
		if (!gm_life_at(life, row)) {
			ret->freed += of_site;
			ret->freed_elsewhere += !of_site;
		} else if (of_site) {
			ret->survivors[quarter_of(life->born, first, rows)]++;
			ret->all++;
		}
	}
}

void gm_explain_growth(const struct gm_scene *scene, const struct gm_explanation *explanation, int64_t live,
		       struct gm_growth *ret)
{
	struct gm_groups groups;
	struct ages ages = { .all = 0 };
	bool *stacks = NULL;
	char device[16];

	memset(ret, 0, sizeof(*ret));
	if (gm_explain_holders(scene, explanation, GM_BY_SITE, &groups))
		return;
	/* Segments that PyTorch's allocator gets from the driver are its cache, and no leak. */
	if (groups.count && groups.list[0].bytes[1] > live / 2 && strcmp(groups.list[0].key, GM_NO_STACK) &&
	    (explanation->pool || strncmp(gm_show_module(scene->root, groups.list[0].module), "libc10_cuda", 11)))
		stacks = stacks_of(scene, groups.list[0].key);
	if (stacks) {
		count_ages(scene, gm_explain_device(explanation, device), stacks, explanation->row, &ages);
		snprintf(ret->site, sizeof(ret->site), "%s", gm_show_clean(groups.list[0].key));
		ret->bytes = groups.list[0].bytes[1];
		ret->blocks = groups.list[0].count[1];
		ret->grows = ages.all >= BLOCKS_LEAST;
	}
	/* Blocks from each quarter of the site's time are still live. */
	for (unsigned int q = 0; q < QUARTERS; q++)
		ret->grows &= ages.survivors[q] >= ages.all / (QUARTERS * QUARTERS) && ages.survivors[q] > 0;
	/* The program frees other blocks meanwhile. If not, it may still be loading what it needs. */
	ret->leaks = ret->grows && ages.freed + ages.freed_elsewhere >= ages.all / 2;
	ret->freed = (int64_t)ages.freed;
	free(stacks);
	gm_groups_close(&groups);
}

/* ---- which settings of our own cache would have served the request ------------------------------ */

/* Return the bytes of the device that the memory live after @row takes without a cache: large blocks take whole
 * pages. */
static int64_t native_bytes(const struct gm_scene *scene, const char *device, int64_t row)
{
	int64_t large = 0, small = 0;

	for (size_t i = 0; i < scene->lives.count; i++) {
		const struct gm_life *life = &scene->lives.list[i];

		if (!gm_life_counts(life, device) || !gm_life_at(life, row) || life->size > INT64_MAX / 4)
			continue;
		if (life->size >= PAGE / 2)
			large = gm_wrap_add(large, (life->size + PAGE - 1) / PAGE * PAGE);
		else
			small = gm_wrap_add(small, (life->size + 511) / 512 * 512);
	}
	return gm_wrap_add(large, (small + PAGE - 1) / PAGE * PAGE);
}

static bool is_ours(const struct gm_scene *scene)
{
	const json_t *options = gm_json_object(gm_json_object(scene->root, "allocator_settings"), "gpumem");

	return !strcmp(gm_json_text(gm_json_object(options, "allocator"), "value"), "caching");
}

bool gm_explain_ours(const struct gm_scene *scene, const struct gm_facts *facts, int64_t row, char *ret, size_t room)
{
	int64_t others = gm_facts_others(facts), could = facts->total - (others > 0 ? others : 0), native;
	struct gm_would would = { .result = GM_WOULD_UNKNOWN };
	size_t length = 0;
	char device[16];

	ret[0] = '\0';
	snprintf(device, sizeof(device), "%d", facts->device);
	if (facts->pool || facts->torch || facts->total <= 0 || could <= 0 || !is_ours(scene))
		return false;
	for (size_t i = 0; i < scene->snapshot->pool_count; i++)
		if (scene->snapshot->pools[i].device == facts->device)
			return false;		/* the rows are the pool's, and not our cache's */
	if (facts->limit > 0 && facts->limit < could)
		could = facts->limit;
	if (!gm_would_serve(scene->snapshot, NULL, facts->device, (uint64_t)could, &would) &&
	    would.result == GM_WOULD_SERVE)
		length += (size_t)snprintf(ret, room, "Replayed with GPUMEM_CONF=%s, the run would have fitted, with "
					   "at most %s reserved where %s were available%s. ", would.setting,
					   gm_show_bytes((int64_t)would.peak), gm_show_bytes(could), would.sure ? "" :
					   ". This estimate is within 5%; with 5% less memory it would not fit");
	native = gm_wrap_add(native_bytes(scene, device, row), (facts->asked + PAGE - 1) / PAGE * PAGE);
	if (facts->limit <= 0 && native <= could)
		length += (size_t)snprintf(ret + length, room - length, "Without this library's cache "
					   "(GPUMEM_CONF=allocator:native) it fits: live memory and the "
					   "request then take %s of the device. ", gm_show_bytes(native));
	return length != 0;
}
