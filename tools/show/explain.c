/*
 * explain.c - why memory ran out: the facts of a failure (bytes asked for, free, held, cached, not recorded), and the
 * cause that follows from them: see explain.h.
 */
#define _GNU_SOURCE
#include "tools/show/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/heap.h"
#include "tools/read/snapshot.h"
#include "tools/show/show.h"

#define PAGE INT64_C(2097152)		/* bytes; the driver's unit of device memory */

/* ---- facts ----------------------------------------------------------------------------------- */

int64_t gm_largest_idle(const struct gm_snapshot *snapshot, int64_t device)
{
	int64_t largest = 0;

	for (size_t i = 0; i < snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &snapshot->segments[i];

		for (size_t k = 0; segment->device == device && k < segment->block_count; k++)
			if (!strcmp(segment->blocks[k].state, "inactive") && segment->blocks[k].size > largest)
				largest = segment->blocks[k].size;
	}
	return largest;
}

/* Fill in what the cache of the device holds, by the statistics at the moment of the snapshot. */
static void find_cache(const struct gm_snapshot *snapshot, struct gm_facts *facts)
{
	const json_t *device = json_array_get(gm_json_list(snapshot->root, "devices"), (size_t)facts->device);
	const json_t *stats = gm_json_object(device, "memory_stats");
	int64_t active = gm_json_number(stats, "active_bytes.all.current");

	facts->pending = gm_wrap_subtract(active,
					  gm_json_number(stats, "allocated_bytes.all.current"));
	facts->cached = gm_wrap_subtract(gm_json_number(stats, "reserved_bytes.all.current"),
					 active);
	facts->largest = gm_largest_idle(snapshot, facts->device);
	if (facts->live < 0)
		facts->live = gm_json_number(stats, "allocated_bytes.all.current");
	if (facts->live == gm_json_number(stats, "allocated_bytes.all.current"))
		facts->rounding = gm_wrap_subtract(active, gm_json_number(stats, "requested_bytes.all.current"));
}

/* Return the bytes of the segment that a cache asks the driver for, to serve a request of @bytes. */
static int64_t segment_of(const json_t *root, int64_t bytes)
{
	const json_t *settings = gm_json_object(root, "allocator_settings");
	const json_t *large = gm_json_object(gm_json_object(settings, "gpumem"),
					     "large_segment_size_mb");
	const char *conf = strstr(gm_json_text(settings, "PYTORCH_CUDA_ALLOC_CONF"),
				  "large_segment_size_mb:");
	struct gm_heap_config config;
	uint64_t megabytes = strtoull(conf ? conf + 22 : gm_json_text(large, "value"), NULL, 10);

	if (bytes <= 0 || bytes > INT64_MAX / 4)
		return bytes;
	gm_heap_config_default(&config);
	if (megabytes && megabytes < UINT32_MAX)
		config.large_segment_size = megabytes << 20;
	return (int64_t)gm_heap_segment_bytes(&config, gm_heap_round(&config, (uint64_t)bytes));
}

/* Does our cache ask for a segment of the request's own size if a larger one is refused (option shared_segments)? */
static bool cuts_to_size(const json_t *root)
{
	const json_t *option = gm_json_object(gm_json_object(gm_json_object(root, "allocator_settings"), "gpumem"),
					      "shared_segments");
	const char *value = gm_json_text(option, "value");

	return *value && strtod(value, NULL) < 1;
}

/* Fill in the failure of a pool's request, which PyTorch's allocator reported: the driver, or a limit of PyTorch's,
 * refused the memory. */
static void find_pool(const struct gm_snapshot *snapshot, const json_t *failure, struct gm_facts *facts)
{
	const json_t *device = json_array_get(gm_json_list(snapshot->root, "devices"), (size_t)facts->device);
	const json_t *settings = gm_json_object(snapshot->root, "allocator_settings");
	int64_t all = gm_json_number(gm_json_object(device, "memory_stats"), "reserved_bytes.all.current");
	int64_t beside = gm_wrap_subtract(all, gm_json_number(failure, "reserved_bytes"));

	facts->torch = true;
	facts->pool_held = gm_json_number(failure, "reserved_bytes");
	facts->conf = gm_json_text(settings, "PYTORCH_CUDA_ALLOC_CONF");
	facts->expandable = strstr(facts->conf, "expandable_segments:True") != NULL;
	for (size_t i = 0; i < snapshot->pool_count; i++)
		facts->expandable |= snapshot->pools[i].number == facts->pool &&
				     gm_pool_is_expandable(&snapshot->pools[i]);
	facts->needed = facts->expandable ? facts->asked : segment_of(snapshot->root, facts->asked);
	facts->live = gm_json_number(failure, "live_bytes");
	facts->rounding = 0;		/* not known for the pool's blocks */
	if (beside > 0 && all < INT64_MAX / 4)	/* memory that the program has outside the pool */
		facts->live = gm_wrap_add(facts->live, beside);
	facts->largest = gm_json_number(failure, "largest_idle_block_bytes");
}

/* Fill in the failure that our library recorded. Returns false if there is none. */
static bool find_ours(const struct gm_snapshot *snapshot, struct gm_facts *facts)
{
	const json_t *root = snapshot->root;
	const json_t *failure = gm_json_object(root, "failure"),
		     *list = gm_json_list(root, "failures");
	bool of_now = !strcmp(gm_json_text(failure, "type"), "oom");
	const json_t *device;
	const char *kind;

	if (!of_now)
		failure = json_array_get(list, json_array_size(list) - 1);
	device = json_object_get(failure, "device");
	if (!json_is_integer(device) && !json_is_null(device))
		return false;
	kind = gm_json_text(failure, "kind");
	facts->device = json_is_null(device) ? GM_ROW_HOST : (int)json_integer_value(device);
	facts->asked = gm_json_number(failure, "requested_bytes");
	facts->needed = facts->asked;
	/* cuMemAlloc and its kin take whole pages of the device. */
	if ((!strcmp(kind, "device") || !strcmp(kind, "pool") || !strcmp(kind, "vmm")) && facts->asked > 0 &&
	    facts->asked <= INT64_MAX - PAGE)
		facts->needed = (facts->asked + PAGE - 1) / PAGE * PAGE;
	facts->free = gm_json_number(failure, "free_bytes");
	facts->total = gm_json_number(failure, "total_bytes");
	facts->live = gm_json_number(failure, "live_bytes");
	facts->time_us = gm_json_number(failure, "time_us");
	facts->module = gm_show_module(root, gm_json_number(failure, "module"));
	facts->stack = gm_json_number(failure, "stack");
	facts->refused_by = gm_json_text(failure, "refused_by");
	if (json_is_integer(json_object_get(failure, "limit_bytes"))) {
		facts->limit = gm_json_number(failure, "limit_bytes");
		facts->limit_used = gm_json_number(failure, "limit_used_bytes");
		if (!cuts_to_size(root))
			facts->needed = segment_of(root, facts->asked);
	}
	facts->holders_known = of_now;
	if (facts->device == GM_ROW_HOST)
		return true;
	facts->capturing = json_is_true(json_object_get(failure, "capturing"));
	if (of_now)
		find_cache(snapshot, facts);
	facts->pool = gm_json_number(failure, "pool");
	if (facts->pool > 0)
		find_pool(snapshot, failure, facts);
	/* The cache at the failure: before the snapshot, some of its memory may have been given back. */
	if (gm_json_number(failure, "reserved_bytes") > 0) {
		facts->cached = gm_json_number(failure, "cached_bytes");
		facts->pending = gm_json_number(failure, "limbo_bytes");
		if (!facts->pool)
			facts->largest = gm_json_number(failure, "largest_free_bytes");
	}
	return true;
}

/* Correct what PyTorch's allocator had to the moment after @row, if the history has later events of the device. */
static void find_cache_at(const struct gm_scene *scene, struct gm_facts *facts, size_t row)
{
	int64_t live = 0, reserved = gm_wrap_add(gm_wrap_add(facts->live, facts->cached), facts->pending);
	bool other = false;

	for (size_t i = row + 1; i < scene->lives.row_count; i++) {
		const struct gm_row *later = &scene->lives.rows[i];
		bool more = !strcmp(later->action, "segment_alloc") ||
			    !strcmp(later->action, "segment_map");
		bool less = !strcmp(later->action, "segment_free") ||
			    !strcmp(later->action, "segment_unmap");

		if (later->device != facts->device)
			continue;
		if (more || less)
			reserved = more ? gm_wrap_subtract(reserved, later->size) :
				   gm_wrap_add(reserved, later->size);
		other |= more || less || !strcmp(later->action, "alloc") ||
			 !strncmp(later->action, "free_", 5);
	}
	if (!other)
		return;
	for (size_t i = 0; i < scene->lives.count; i++)
		if (scene->lives.list[i].device == facts->device &&
		    gm_life_at(&scene->lives.list[i], (int64_t)row))
			live = gm_wrap_add(live, scene->lives.list[i].size);
	facts->live = live;
	facts->rounding = 0;
	facts->cached = reserved > live ? gm_wrap_subtract(reserved, live) : 0;
	facts->pending = 0;		/* in @live */
	facts->largest = -1;
}

/* Fill in the last failure in a snapshot of PyTorch, an event whose address is what was free. Returns false if there is
 * none. */
static bool find_torch(const struct gm_scene *scene, struct gm_facts *facts, int64_t *ret_row)
{
	const json_t *settings = gm_json_object(scene->root, "allocator_settings");
	const struct gm_row *last = NULL;

	for (size_t i = 0; i < scene->lives.row_count; i++)
		if (!strcmp(scene->lives.rows[i].action, "oom") &&
		    scene->lives.rows[i].device >= 0) {
			last = &scene->lives.rows[i];
			*ret_row = (int64_t)i;
		}
	if (!last)
		return false;
	facts->asked = last->size;
	facts->needed = segment_of(scene->root, last->size);
	facts->free = (int64_t)last->address;
	facts->total = -1;
	facts->device = last->device;
	facts->conf = gm_json_text(settings, "PYTORCH_CUDA_ALLOC_CONF");
	facts->stack = last->stack;
	facts->torch = true;
	facts->expandable = json_is_true(json_object_get(settings, "expandable_segments"));
	facts->holders_known = true;
	if (facts->expandable)
		facts->needed = facts->asked;
	find_cache(scene->snapshot, facts);
	find_cache_at(scene, facts, (size_t)*ret_row);
	return true;
}

/* Return the row of the failure; GM_LIVES_END: the history does not have it. */
static int64_t row_of(const struct gm_scene *scene, const struct gm_facts *facts)
{
	for (size_t i = scene->lives.row_count; i--;)
		if (scene->lives.rows[i].device == facts->device &&
		    scene->lives.rows[i].time_us <= facts->time_us &&
		    !strcmp(scene->lives.rows[i].action, "oom"))
			return (int64_t)i;
	return GM_LIVES_END;
}

/* ---- judgement ------------------------------------------------------------------------------- */

int64_t gm_facts_missing(const struct gm_facts *facts)
{
	return (facts->asked > facts->free ? facts->asked : facts->needed) - facts->free;
}

int64_t gm_facts_torch_held(const struct gm_facts *facts)
{
	return facts->pool ? facts->pool_held : facts->live + facts->cached + facts->pending;
}

int64_t gm_facts_others(const struct gm_facts *facts)
{
	int64_t held = facts->live + (facts->cached > 0 ? facts->cached : 0) +
		       (facts->pending > 0 ? facts->pending : 0);

	return facts->total > 0 ? facts->total - facts->free - held : 0;
}

static enum gm_cause cause_of(const struct gm_facts *facts)
{
	int64_t others = gm_facts_others(facts), missing = gm_facts_missing(facts);
	int64_t idle = facts->cached > 0 ? facts->cached : 0;
	int64_t pending = facts->pending > 0 ? facts->pending : 0;
	int64_t all = facts->total > 0 ? facts->total :
		      facts->free + facts->live + idle + pending;

	if (facts->device == GM_ROW_HOST)
		return GM_CAUSE_HOST;
	if (facts->total > 0 && facts->asked > facts->total)
		return GM_CAUSE_TOO_LARGE;
	if (facts->limit > 0 || (facts->torch && missing <= 0))
		return GM_CAUSE_LIMIT;
	if (facts->torch && facts->asked > all)
		return GM_CAUSE_TOO_LARGE;
	if (missing <= 0)
		return GM_CAUSE_REFUSED;
	/* Enough is idle or pending, and without fragmentation the live memory and the request would have fitted. */
	if (idle + pending >= missing && facts->live + facts->asked <= all - (others > 0 ? others : 0))
		return idle >= pending ? GM_CAUSE_FRAGMENTED : GM_CAUSE_PENDING;
	/* Others hold most of what was missing, and more than the program holds. */
	if (others > missing / 2 && others > facts->total / 10 && others > facts->live)
		return GM_CAUSE_OTHERS;
	/* The request is more than all holders have together, so none of them is the cause. */
	if (facts->asked > all / 2 && facts->asked > facts->live)
		return GM_CAUSE_LARGE;
	return GM_CAUSE_FULL;
}

const char *gm_cause_name(enum gm_cause cause)
{
	static const char *const names[] = {
		"none", "too_large", "limit", "refused", "others", "fragmented", "pending", "leak", "large",
		"full", "host"
	};

	return names[cause];
}

const char *gm_explain_device(const struct gm_explanation *explanation, char ret[16])
{
	snprintf(ret, 16, explanation->device == GM_ROW_HOST ? "host" : "%d", explanation->device);
	return ret;
}

/* Is @bytes a size or a difference of sizes? Four such numbers add up without overflow. */
static bool is_size(int64_t bytes)
{
	return bytes >= -(INT64_MAX / 4) && bytes <= INT64_MAX / 4;
}

void gm_explain(const struct gm_scene *scene, struct gm_explanation *ret)
{
	struct gm_facts facts = {
		.live = -1, .cached = -1, .pending = -1, .largest = -1, .limit = -1,
		.module = "", .refused_by = "", .conf = ""
	};
	int64_t row = GM_LIVES_END;
	bool found = find_ours(scene->snapshot, &facts);

	memset(ret, 0, sizeof(*ret));
	ret->row = GM_LIVES_END;
	if (found)
		row = row_of(scene, &facts);
	else if (!find_torch(scene, &facts, &row))
		return;
	ret->row = row;
	ret->device = facts.device;
	ret->pool = facts.pool;
	if (facts.asked < 0 || facts.free < 0 || !is_size(facts.asked) || !is_size(facts.free) ||
	    !is_size(facts.live) || !is_size(facts.total) || !is_size(facts.cached) ||
	    !is_size(facts.pending) || !is_size(facts.limit) || !is_size(facts.limit_used) ||
	    !is_size(facts.needed) || !is_size(facts.pool_held))
		return;
	facts.holders_known |= row != GM_LIVES_END;
	ret->cause = cause_of(&facts);
	ret->stack = facts.stack;
	if (facts.holders_known)
		gm_explain_growth(scene, ret, facts.live, &facts.growth);
	/* A leak soon takes the idle memory, too. */
	if (facts.growth.leaks && (ret->cause == GM_CAUSE_FRAGMENTED || ret->cause == GM_CAUSE_FULL ||
				   ret->cause == GM_CAUSE_PENDING))
		ret->cause = GM_CAUSE_LEAK;
	gm_explain_say(scene, &facts, ret);
}

int gm_explain_holders(const struct gm_scene *scene, const struct gm_explanation *explanation,
		       enum gm_by by, struct gm_groups *ret)
{
	char device[16];

	return gm_groups_of(ret, by, scene, gm_explain_device(explanation, device), explanation->row, NULL);
}
