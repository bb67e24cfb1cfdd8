/*
 * check.c - gpumem check --max-peak 10GiB FILE: is a run within its limits? For CI.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/show/explain.h"
#include "tools/show/groups.h"
#include "tools/show/phases.h"
#include "tools/torch/torch.h"
#include "tools/verbs/opened.h"

#define NONE UINT64_MAX

struct limits {
	uint64_t peak, reserved, stack;
	size_t ooms;
	double fragmentation;		/* percent; below 0: none */
	bool no_leaks, json;
	const char *device;
	int by, level;			/* @by 1: by annotation, too */
	struct gm_suppressions known;
};

struct checking {
	const struct limits *limits;
	const char *word;
	const struct gm_scene *scene;
	json_t *offences;		/* of all inputs */
	size_t failed;			/* of this one */
};

#define SHOWN 5				/* offending stacks */

static void print_offence(const struct checking *c, const char *where, const char *limit,
			  const char *is, const char *allowed)
{
	if (!c->limits->json)
		printf("%s: %s: %s %s, allowed: %s\n", gm_show_clean(c->word), where, limit, is, allowed);
}

static json_t *note(struct checking *c, const char *where, const char *limit, json_t *is,
		    json_t *allowed)
{
	json_t *offence = json_pack("{ss ss ss so so}", "input", c->word, "where", where, "limit", limit,
				    "value", is, "allowed", allowed);

	json_array_append_new(c->offences, offence);
	c->failed++;
	return offence;
}

/* @value bytes against @most. */
static json_t *check_bytes(struct checking *c, const char *where, const char *limit, int64_t value,
			   uint64_t most)
{
	if (value <= 0 || (uint64_t)value <= most)
		return NULL;
	print_offence(c, where, limit, gm_show_bytes(value), gm_show_bytes((int64_t)most));
	return note(c, where, limit, json_integer(value), json_integer((json_int_t)most));
}

/* The largest stacks of @groups: who is to blame. */
static void blame(const struct checking *c, const struct gm_groups *groups, int64_t above)
{
	for (size_t i = 0; i < groups->count && i < SHOWN && !c->limits->json; i++) {
		const struct gm_group *group = &groups->list[i];

		if (group->bytes[1] <= above)
			break;
		printf("  %s in %lld block%s (%s)\n", gm_show_bytes(group->bytes[1]),
		       (long long)group->count[1], group->count[1] == 1 ? "" : "s",
		       gm_show_clean(group->kind));
		gm_groups_print_stack(stdout, group->scene, group->stack, 6);
	}
}

/* The named ranges in which more than @most was live at once, or in which what leaks was allocated (@leaks). */
static void blame_phases(const struct checking *c, const char *device, json_t *offence, bool leaks, int64_t most)
{
	json_t *list = json_array();
	const struct gm_phase **sorted;
	struct gm_phases phases;
	size_t count;

	if (gm_phases_open(&phases, c->scene->snapshot, &c->scene->lives, device)) {
		json_decref(list);
		return;
	}
	sorted = gm_phases_sorted(&phases, &count);
	for (size_t i = 0; i < count; i++) {
		const struct gm_phase *phase = sorted[i];

		if (leaks ? !phase->blocks : !phase->ranges || phase->peak <= most)
			continue;
		json_array_append_new(list, gm_phase_json(phase));
		if (!c->limits->json)
			printf("  %s %s%s\n", gm_show_bytes(leaks ? phase->live : phase->peak),
			       leaks ? "allocated in " : "in ", gm_show_clean(phase->name));
	}
	if (!c->limits->json && gm_phases_missing(c->scene->snapshot))
		printf("  (%s)\n", gm_phases_missing(c->scene->snapshot));
	json_object_set_new(offence, "by_annotation", list);
	free(sorted);
	gm_phases_close(&phases);
}

static void check_live(struct checking *c, const char *where, const char *device)
{
	struct gm_suppressions known = c->limits->known;
	struct gm_groups groups;
	int64_t bytes = 0, blocks = 0;

	if (!c->limits->no_leaks && c->limits->stack == NONE)
		return;
	if (gm_groups_of(&groups, GM_BY_STACK, c->scene, device, GM_LIVES_END, &known)) {
		note(c, where, "memory", json_null(), json_null());
		fprintf(stderr, "gpumem check: %s\n", gm_limit_why(-ENOMEM));
		return;
	}
	for (size_t i = 0; i < groups.count; i++) {
		bytes = gm_wrap_add(bytes, groups.list[i].bytes[1]);
		blocks += groups.list[i].count[1];
	}
	if (c->limits->no_leaks && blocks) {
		json_t *offence = note(c, where, "leaks", json_integer(bytes), json_integer(0));

		json_object_set_new(offence, "blocks", json_integer(blocks));
		if (!c->limits->json)
			printf("%s: %s: leaks: %s in %s\n", gm_show_clean(c->word), where,
			       gm_show_bytes(bytes), gm_show_count(blocks, "block"));
		if (c->limits->by)
			blame_phases(c, device, offence, true, 0);
		blame(c, &groups, INT64_MIN);
	}
	if (groups.count) {
		json_t *offence = check_bytes(c, where, "stack", groups.list[0].bytes[1], c->limits->stack);

		if (offence)
			json_object_set_new(offence, "stack", gm_groups_json_stack(c->scene,
										   groups.list[0].stack));
		if (offence)
			blame(c, &groups, (int64_t)c->limits->stack);
	}
	gm_groups_close(&groups);
}

/* A statistic; where the snapshot has none (PyTorch's), what @otherwise is. */
static int64_t stat_of(const json_t *stats, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(stats, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* What part of what is reserved is idle within segments that are in use. */
static void check_share(struct checking *c, const char *where, double share)
{
	char is[32], allowed[32];

	if (c->limits->fragmentation < 0 || share <= c->limits->fragmentation)
		return;
	snprintf(is, sizeof(is), "%.2f%%", share);
	snprintf(allowed, sizeof(allowed), "%.2f%%", c->limits->fragmentation);
	print_offence(c, where, "fragmentation", is, allowed);
	note(c, where, "fragmentation", json_real(share), json_real(c->limits->fragmentation));
}

static void check_ooms(struct checking *c, const char *where, int64_t ooms)
{
	char is[32], allowed[32];

	if (ooms <= 0 || (size_t)ooms <= c->limits->ooms)
		return;
	snprintf(is, sizeof(is), "%lld", (long long)ooms);
	snprintf(allowed, sizeof(allowed), "%zu", c->limits->ooms);
	print_offence(c, where, "ooms", is, allowed);
	note(c, where, "ooms", json_integer(ooms), json_integer((json_int_t)c->limits->ooms));
}

/* The same of each pool of the device: a pool may run out, by a limit of its own, of what the driver never refused. */
static void check_pools(struct checking *c, const char *device)
{
	for (size_t i = 0; i < c->scene->snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &c->scene->snapshot->pools[i];
		struct gm_idle idle = gm_pool_idle(pool);
		char where[120];

		if (strtol(device, NULL, 10) != pool->device)
			continue;
		snprintf(where, sizeof(where), "device %s, pool %s", device, gm_show_cut(pool->name, 60));
		check_share(c, where, idle.held > 0 ? 100.0 * (double)idle.stuck / (double)idle.held : 0);
		check_ooms(c, where, stat_of(gm_json_object(pool->root, "memory_stats"), "num_ooms", 0));
	}
}

static void check_device(struct checking *c, const json_t *device)
{
	const json_t *stats = gm_json_object(device, "memory_stats");
	int64_t now = stat_of(stats, "reserved_bytes.all.current", 0);
	int64_t reserved = stat_of(stats, "reserved_bytes.all.peak", now);
	int64_t ooms = stat_of(stats, "num_ooms", 0);
	double share = now > 0 ? 100.0 * (double)stat_of(stats, "inactive_split_bytes.all.current", 0) /
		       (double)now : 0;
	char number[24], where[40];
	json_t *offence;
	int64_t peak, row;

	snprintf(number, sizeof(number), "%lld", (long long)gm_json_number(device, "device"));
	if (!json_is_true(json_object_get(device, "present")) ||
	    (c->limits->device && strcmp(c->limits->device, number)))
		return;
	snprintf(where, sizeof(where), "device %s", number);
	peak = c->limits->level == GM_LEVEL_POOL ? gm_scene_pool_peak(c->scene, number) : INT64_MIN;
	if (peak == INT64_MIN)
		peak = stat_of(stats, "requested_bytes.all.peak", INT64_MIN);
	if (peak == INT64_MIN)	/* nobody counted it: the peak of the history */
		peak = gm_lives_peak(&c->scene->lives, number, &row);
	offence = check_bytes(c, where, "peak", peak, c->limits->peak);
	if (offence && c->limits->by)
		blame_phases(c, number, offence, false, (int64_t)c->limits->peak);
	check_bytes(c, where, "reserved", reserved, c->limits->reserved);
	check_share(c, where, share);
	check_ooms(c, where, ooms);
	if (c->limits->level == GM_LEVEL_POOL)
		check_pools(c, number);
	check_live(c, where, number);
}

static int check_one(const struct limits *limits, const char *word, json_t *offences)
{
	struct checking c = { .limits = limits, .word = word, .offences = offences };
	struct gm_opened opened;
	const json_t *device;
	int status = gm_open("check", word, limits->device, (enum gm_pool_level)limits->level, &opened);
	size_t i;

	if (status)
		return status;
	if (opened.loaded.from == GM_LOADED_TORCH)
		gm_torch_stats(&opened.loaded.snapshot);
	c.scene = &opened.scene;
	json_array_foreach(gm_json_list(c.scene->root, "devices"), i, device)
		check_device(&c, device);
	if (!c.failed && !limits->json)
		printf("%s: within its limits\n", gm_show_clean(word));
	gm_opened_close(&opened);
	return c.failed ? GM_EXIT_FAILED : GM_EXIT_OK;
}

static int check_all(const struct limits *limits, char **words, int count)
{
	json_t *offences = json_array();
	int status = GM_EXIT_OK;

	for (int i = 0; i < count; i++) {
		int s = check_one(limits, words[i], offences);

		status = s > status ? s : status;
	}
	if (limits->json) {
		json_t *all = json_pack("{sb sO}", "ok", status == GM_EXIT_OK, "offences", offences);

		gm_show_document(stdout, all, JSON_INDENT(2));
	}
	json_decref(offences);
	return gm_show_end("check", status);
}

static bool any(const struct limits *limits)
{
	return limits->peak != NONE || limits->reserved != NONE || limits->stack != NONE ||
	       limits->ooms != SIZE_MAX || limits->fragmentation >= 0 || limits->no_leaks;
}

/* What is more than a word or a number: a percentage, and a file to read. */
static int take_texts(struct limits *limits, const char *fragmentation, const char *suppressions)
{
	char *end, why[128];

	if (fragmentation) {
		limits->fragmentation = strtod(fragmentation, &end);
		if (end == fragmentation || (*end && strcmp(end, "%")) ||
		    !(limits->fragmentation >= 0 && limits->fragmentation <= 100))
			return gm_argument_wrong("check", "max-fragmentation", fragmentation,
						 "not a percentage, as 5%");
	}
	if (suppressions && gm_suppressions_read(&limits->known, suppressions, why, sizeof(why)))
		return gm_argument_wrong("check", "suppressions", suppressions, why);
	return 0;
}

int gm_verb_check(int argc, char **argv)
{
	struct limits limits = {
		.peak = NONE, .reserved = NONE, .stack = NONE, .ooms = SIZE_MAX, .fragmentation = -1
	};
	const char *fragmentation = NULL, *suppressions = NULL;
	const struct gm_argument arguments[] = {
		{ "max-peak", GM_ARG_SIZE, &limits.peak }, { "max-reserved", GM_ARG_SIZE, &limits.reserved },
		{ "max-stack", GM_ARG_SIZE, &limits.stack }, { "max-ooms", GM_ARG_COUNT, &limits.ooms },
		{ "max-fragmentation", GM_ARG_TEXT, &fragmentation }, { "no-leaks", GM_ARG_FLAG, &limits.no_leaks },
		{ "suppressions", GM_ARG_TEXT, &suppressions }, { "device", GM_ARG_DEVICE, &limits.device },
		{ "by", GM_ARG_WORD, &limits.by }, { "level", GM_ARG_WORD, &limits.level },
		{ "json", GM_ARG_FLAG, &limits.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 0, INT_MAX);

	if (status >= 0)
		return status;
	status = take_texts(&limits, fragmentation, suppressions);
	if (!status && !any(&limits)) {
		fputs("gpumem check: no limit was given (gpumem help check)\n", stderr);
		status = GM_EXIT_USAGE;
	} else if (!status && optind == argc) {
		status = gm_inputs_wrong("check", 0);
	}
	if (!status)
		status = check_all(&limits, argv + optind, argc - optind);
	gm_suppressions_free(&limits.known);
	return status;
}
