/*
 * explain.c - why memory ran out, from what was asked, free, held, cached and not recorded: see
 * explain.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/explain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/bulk.h"
#include "tools/load.h"
#include "tools/show.h"

/* What is known of one failure. -1: not known. */
struct facts {
	int64_t asked, free, total, live, time_us;
	int64_t cached, pending, largest;	/* of the moment, where the snapshot is of it */
	int device;
	const char *entry, *module;
	int64_t stack;
	bool torch;
};

static void say(char *to, size_t room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void say(char *to, size_t room, const char *format, ...)
{
	size_t length = strlen(to);
	va_list args;

	va_start(args, format);
	vsnprintf(to + length, room - length, format, args);
	va_end(args);
}

/* ---- facts ----------------------------------------------------------------------------------- */

int64_t gm_largest_idle(const json_t *root, int64_t device)
{
	const struct gm_value *segments = gm_bulk_list(root, "segments");
	int64_t largest = 0;

	for (size_t i = 0; i < gm_value_length(segments); i++) {
		const struct gm_value *segment = segments->u.items[i];
		const struct gm_value *blocks = gm_value_list(segment, "blocks");

		if (gm_value_number(segment, "device") != device)
			continue;
		for (size_t k = 0; k < gm_value_length(blocks); k++) {
			const struct gm_value *block = blocks->u.items[k];

			if (!strcmp(gm_value_string(block, "state"), "inactive") &&
			    gm_value_number(block, "size") > largest)
				largest = gm_value_number(block, "size");
		}
	}
	return largest;
}

/* What the cache of that device holds: statistics of the snapshot, its own moment. */
static void find_cache(const json_t *root, struct facts *facts)
{
	const json_t *device = json_array_get(gm_json_list(root, "devices"), (size_t)facts->device);
	const json_t *stats = gm_json_object(device, "memory_stats");
	int64_t active = gm_json_number(stats, "active_bytes.all.current");

	facts->pending = gm_wrap_subtract(active,
					  gm_json_number(stats, "allocated_bytes.all.current"));
	facts->cached = gm_wrap_subtract(gm_json_number(stats, "reserved_bytes.all.current"),
					 active);
	facts->largest = gm_largest_idle(root, facts->device);
	if (facts->live < 0)
		facts->live = gm_json_number(stats, "allocated_bytes.all.current");
}

static bool find_ours(const json_t *root, struct facts *facts)
{
	const json_t *failure = gm_json_object(root, "failure"),
		     *list = gm_json_list(root, "failures");
	bool of_now = !strcmp(gm_json_text(failure, "type"), "oom");

	if (!of_now)
		failure = json_array_get(list, json_array_size(list) - 1);
	if (!failure || !json_is_integer(json_object_get(failure, "device")))
		return false;
	facts->device = (int)gm_json_number(failure, "device");
	facts->asked = gm_json_number(failure, "requested_bytes");
	facts->free = gm_json_number(failure, "free_bytes");
	facts->total = gm_json_number(failure, "total_bytes");
	facts->live = gm_json_number(failure, "live_bytes");
	facts->time_us = gm_json_number(failure, "time_us");
	facts->entry = gm_json_text(failure, "entry");
	facts->module = gm_show_module(root, gm_json_number(failure, "module"));
	facts->stack = gm_json_number(failure, "stack");
	if (of_now)
		find_cache(root, facts);
	/* The cache as it was then: what the snapshot holds may have been given back before it. */
	if (gm_json_number(failure, "reserved_bytes") > 0) {
		facts->cached = gm_json_number(failure, "cached_bytes");
		facts->pending = gm_json_number(failure, "limbo_bytes");
		facts->largest = gm_json_number(failure, "largest_free_bytes");
	}
	return true;
}

/* PyTorch's word of it is an event with what was free; the snapshot is usually of that moment. */
static bool find_torch(const struct gm_scene *scene, struct facts *facts, int64_t *ret_row)
{
	const struct gm_row *last = NULL;

	for (size_t i = 0; i < scene->lives.row_count; i++)
		if (!strcmp(scene->lives.rows[i].action, "oom") &&
		    scene->lives.rows[i].device >= 0) {
			last = &scene->lives.rows[i];
			*ret_row = (int64_t)i;
		}
	if (!last)
		return false;
	*facts = (struct facts){
		.asked = last->size,
		.free = (int64_t)last->address,
		.total = -1,
		.live = -1,
		.largest = -1,
		.device = last->device,
		.entry = "",
		.module = "",
		.stack = last->stack,
		.torch = true,
	};
	find_cache(scene->root, facts);
	return true;
}

static int64_t row_of(const struct gm_scene *scene, const struct facts *facts)
{
	for (size_t i = scene->lives.row_count; i--;)
		if (scene->lives.rows[i].device == facts->device &&
		    scene->lives.rows[i].time_us <= facts->time_us &&
		    !strcmp(scene->lives.rows[i].action, "oom"))
			return (int64_t)i;
	return GM_EXPLAIN_END;
}

/* ---- judgement ------------------------------------------------------------------------------- */

static int64_t others_of(const struct facts *facts)
{
	int64_t held = facts->live + (facts->cached > 0 ? facts->cached : 0) +
		       (facts->pending > 0 ? facts->pending : 0);

	return facts->total > 0 ? facts->total - facts->free - held : 0;
}

static enum gm_cause cause_of(const struct facts *facts)
{
	int64_t others = others_of(facts), lacks = facts->asked - facts->free;

	if (facts->total > 0 && facts->asked > facts->total)
		return GM_CAUSE_TOO_LARGE;
	if (facts->torch &&
	    facts->asked > facts->free + facts->live + facts->cached + facts->pending)
		return GM_CAUSE_TOO_LARGE;
	if (lacks <= 0)
		return GM_CAUSE_REFUSED;
	if (facts->cached >= lacks)
		return GM_CAUSE_FRAGMENTED;
	if (facts->pending >= lacks)
		return GM_CAUSE_PENDING;
	/* Most of what lacks, and more than the program itself has. */
	if (others > lacks / 2 && others > facts->total / 10 && others > facts->live)
		return GM_CAUSE_OTHERS;
	return GM_CAUSE_FULL;
}

const char *gm_cause_name(enum gm_cause cause)
{
	static const char *const names[] = {
		"none", "too_large", "refused", "others", "fragmented", "pending", "full"
	};

	return names[cause];
}

static void say_why(const struct gm_scene *scene, const struct facts *facts,
		    struct gm_explanation *ret)
{
	const struct gm_frame *site = gm_stack_site(&scene->stacks, facts->stack);
	int64_t lacks = facts->asked - facts->free;

	if (facts->stack <= 0)
		say(ret->why, sizeof(ret->why), "%s",
		    facts->module[0] ? facts->module : "the program");
	else if (site->python)
		say(ret->why, sizeof(ret->why), "%s (%s:%lld)", gm_show_clean(site->name),
		    gm_show_clean(site->file), (long long)site->line);
	else
		say(ret->why, sizeof(ret->why), "%s%s%s%s", gm_show_clean(site->name),
		    site->module[0] ? " (" : "", gm_show_clean(site->module),
		    site->module[0] ? ")" : "");
	say(ret->why, sizeof(ret->why), " asked for %s on device %d, where %s were free: ",
	    gm_show_bytes(facts->asked), facts->device, gm_show_bytes(facts->free));
	switch (ret->cause) {
	case GM_CAUSE_TOO_LARGE:
		say(ret->why, sizeof(ret->why), "more than the whole device has%s%s.",
		    facts->total > 0 ? ", " : "",
		    facts->total > 0 ? gm_show_bytes(facts->total) : "");
		break;
	case GM_CAUSE_REFUSED:
		say(ret->why, sizeof(ret->why),
		    "that would have fitted, and the driver refused it all the same.");
		break;
	case GM_CAUSE_FRAGMENTED:
		say(ret->why, sizeof(ret->why),
		    "%s too little, while %s lay idle in the cache in pieces that are too small",
		    gm_show_bytes(lacks), gm_show_bytes(facts->cached));
		if (facts->largest > 0)
			say(ret->why, sizeof(ret->why), " (the largest: %s)",
			    gm_show_bytes(facts->largest));
		say(ret->why, sizeof(ret->why), ": fragmentation.");
		break;
	case GM_CAUSE_PENDING:
		say(ret->why, sizeof(ret->why),
		    "%s too little, while %s were freed and not yet reusable, since the GPU "
		    "may have been using them.",
		    gm_show_bytes(lacks), gm_show_bytes(facts->pending));
		break;
	case GM_CAUSE_OTHERS:
		say(ret->why, sizeof(ret->why),
		    "%s too little, while %s were held by nobody that was recorded here: "
		    "other processes, contexts.",
		    gm_show_bytes(lacks), gm_show_bytes(others_of(facts)));
		break;
	default:
		say(ret->why, sizeof(ret->why), "%s too little. The program itself held %s.",
		    gm_show_bytes(lacks), gm_show_bytes(facts->live));
	}
}

/* The largest holder by call site and by module, if it can be told: for the advice. */
static void say_holder(const struct gm_scene *scene, const struct facts *facts,
		       struct gm_explanation *ret)
{
	struct gm_groups sites, modules;
	int64_t lacks = facts->asked - facts->free;
	bool torch = facts->torch;

	if (!gm_explain_holders(scene, ret, GM_BY_MODULE, &modules)) {
		torch |= modules.count && !strncmp(modules.list[0].key, "libc10_cuda", 11);
		gm_groups_close(&modules);
	}
	if (gm_explain_holders(scene, ret, GM_BY_SITE, &sites))
		return;
	if (sites.count) {
		const struct gm_group *most = &sites.list[0];

		say(ret->change, sizeof(ret->change), "%s holds the most, %s in %s%s",
		    gm_show_clean(most->key), gm_show_bytes(most->bytes[1]),
		    gm_show_count(most->count[1], "block"),
		    most->bytes[1] < lacks ? "" : ": enough, if it held less");
		if (most->count[1] >= 100)
			say(ret->change, sizeof(ret->change),
			    "; so many blocks may be a leak (gpumem leaks)");
		say(ret->change, sizeof(ret->change), ". ");
	}
	if (torch && !facts->torch)
		say(ret->change, sizeof(ret->change),
		    "Part of what PyTorch's allocator holds may lie idle in its own "
		    "cache: its own snapshot tells (torch.cuda.memory._dump_snapshot; gpumem reads "
		    "it). ");
	say(ret->change, sizeof(ret->change), "Free earlier, or make batches or shards smaller.");
	gm_groups_close(&sites);
}

static void say_change(const struct gm_scene *scene, const struct facts *facts,
		       struct gm_explanation *ret)
{
	switch (ret->cause) {
	case GM_CAUSE_TOO_LARGE:
		say(ret->change, sizeof(ret->change),
		    "Nothing that is freed would help: look at how that size is "
		    "computed, or spread the work over several devices.");
		break;
	case GM_CAUSE_REFUSED:
		say(ret->change, sizeof(ret->change),
		    "Look for a limit of this process (MPS, a pool's maximum, a "
		    "container) or for another process that took it at that moment.");
		break;
	case GM_CAUSE_FRAGMENTED:
		/* Segments that are idle whole need no advice: they were given back before the
		 * call failed. PyTorch has a setting more than this library. */
		say(ret->change, sizeof(ret->change),
		    "Settings of the allocator: gpumem replay --search says which. %s",
		    facts->torch ? "expandable_segments:True helps most programs of PyTorch." :
		    "What else keeps large pieces whole: large requests first, and blocks that live "
		    "long not among those that come and go.");
		break;
	case GM_CAUSE_PENDING:
		say(ret->change, sizeof(ret->change),
		    "Synchronise before large requests, or free on the stream that "
		    "used the memory last.");
		break;
	case GM_CAUSE_OTHERS:
		say(ret->change, sizeof(ret->change),
		    "nvidia-smi shows the other processes on the device; end them, "
		    "or take another device.");
		break;
	default:
		say_holder(scene, facts, ret);
	}
}

/* Of some memory, or the difference of two: four of them add up without overflow. */
static bool is_size(int64_t bytes)
{
	return bytes >= -(INT64_MAX / 4) && bytes <= INT64_MAX / 4;
}

void gm_explain(const struct gm_scene *scene, struct gm_explanation *ret)
{
	struct facts facts = {
		.live = -1, .cached = -1, .pending = -1, .largest = -1, .entry = "", .module = ""
	};
	int64_t row = GM_EXPLAIN_END;
	bool found = find_ours(scene->root, &facts);

	memset(ret, 0, sizeof(*ret));
	ret->row = GM_EXPLAIN_END;
	if (found)
		row = row_of(scene, &facts);
	else if (!find_torch(scene, &facts, &row))
		return;
	ret->row = row;
	ret->device = facts.device;
	if (facts.asked < 0 || facts.free < 0 || !is_size(facts.asked) || !is_size(facts.free) ||
	    !is_size(facts.live) || !is_size(facts.total) || !is_size(facts.cached) ||
	    !is_size(facts.pending))
		return;
	ret->cause = cause_of(&facts);
	say_why(scene, &facts, ret);
	say_change(scene, &facts, ret);
}

int gm_explain_holders(const struct gm_scene *scene, const struct gm_explanation *explanation,
		       enum gm_by by, struct gm_groups *ret)
{
	char device[16];
	struct gm_lives_filter filter = { .device = device };
	int r = gm_groups_open(ret, by);

	snprintf(device, sizeof(device), "%d", explanation->device);
	if (r)
		return r;
	r = explanation->row == GM_EXPLAIN_END ? gm_groups_add(ret, 1, scene, &filter, NULL, NULL) :
		gm_groups_add_at(ret, 1, scene, &filter, explanation->row);
	if (r)
		gm_groups_close(ret);
	else
		gm_groups_sort(ret);
	return r;
}
