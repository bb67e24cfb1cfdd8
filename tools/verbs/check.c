/*
 * check.c - gpumem check --max-peak 10GiB FILE: is a run within its limits? For CI.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	const char *baseline;		/* what was live there may be live at the end; NULL: none */
	struct gm_opened *reference;	/* the baseline, if it is a snapshot; NULL: it is an annotation */
	size_t top;			/* the most stacks that are named */
};

struct checking {
	const struct limits *limits;
	const char *word;
	const struct gm_scene *scene;
	json_t *offences;		/* of all inputs */
	size_t failed;			/* offences of this input */
	int64_t mark;			/* row of the baseline: of a mark, or of the end of a range */
};

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

/* Check @value against @most bytes. @limit is the limit's name in JSON, @said its name in text. Returns
 * the offence; NULL: none. */
static json_t *check_bytes(struct checking *c, const char *where, const char *limit, const char *said, int64_t value,
			   uint64_t most)
{
	if (value <= 0 || (uint64_t)value <= most)
		return NULL;
	print_offence(c, where, said, gm_show_bytes(value), gm_show_bytes((int64_t)most));
	return note(c, where, limit, json_integer(value), json_integer((json_int_t)most));
}

/* Return the most bytes that the program held at once: what it had asked for and not freed. @peak counts a freed block
 * until the GPU is done with it, which differs from run to run. Two other peaks end a block when the program frees it:
 * that of the history, if the history is whole, and that of the blocks' statistics, which includes rounding. Return the
 * smallest of the three. */
static int64_t held_peak(const struct checking *c, const json_t *device, int64_t peak)
{
	int64_t held = gm_lives_held_peak(&c->scene->lives, c->scene->snapshot, gm_json_number(device, "device"));
	int64_t blocks = gm_json_number(gm_json_object(device, "memory_stats"), "allocated_bytes.all.peak");

	peak = blocks > 0 && blocks < peak ? blocks : peak;
	return held > 0 && held < peak ? held : peak;
}

/* Check @value against the limit of the peak. The message also names @peak if freed blocks made @peak higher, because
 * gpumem summary shows @peak. */
static json_t *check_peak(struct checking *c, const char *where, int64_t value, int64_t peak)
{
	char is[120];

	if (value <= 0 || (uint64_t)value <= c->limits->peak)
		return NULL;
	snprintf(is, sizeof(is), value < peak ? "%s (%s with freed blocks that the GPU still used)" : "%s",
		 gm_show_bytes(value), gm_show_bytes(peak));
	print_offence(c, where, "peak", is, gm_show_bytes((int64_t)c->limits->peak));
	return note(c, where, "peak", json_integer(value), json_integer((json_int_t)c->limits->peak));
}

/* Does @group hold more than at the baseline? Without a baseline, everything is a leak. */
static bool leaks(const struct checking *c, const struct gm_group *group)
{
	return gm_group_growth(group) > 0 || (!c->limits->baseline && group->count[1]);
}

/* Print the largest stacks that leak (@leaking), or else that hold more than @above bytes. */
static void blame(const struct checking *c, const struct gm_groups *groups, bool leaking, int64_t above)
{
	size_t shown = 0, left = 0;

	for (size_t i = 0; i < groups->count && !c->limits->json; i++) {
		const struct gm_group *group = &groups->list[i];

		if (leaking ? !leaks(c, group) : group->bytes[1] <= above)
			continue;
		if (shown == c->limits->top) {
			left++;
			continue;
		}
		shown++;
		printf("  %s in %s", gm_show_bytes(group->bytes[1]), gm_show_count(group->count[1], "block"));
		if (c->limits->baseline)
			printf(", %s of them beyond the baseline", gm_show_bytes(gm_group_growth(group)));
		printf(" (%s)\n", gm_show_clean(group->kind));
		gm_groups_print_stack(stdout, group->scene, group->stack, 6);
	}
	if (left)
		gm_more_rows(stdout, left, "more stack");
}

/* Print the named ranges in which live blocks were allocated (@leaks), or else in which more than @most bytes were live
 * at once, and add them to @offence. */
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

/* Sum what each stack holds at the end, and what it held at the baseline. Returns 0, or -ENOMEM and nothing to
 * close. */
static int sum_stacks(struct checking *c, struct gm_groups *groups, const char *device)
{
	struct gm_suppressions known = c->limits->known, known_then = c->limits->known;
	const struct gm_scene *then = c->limits->reference ? &c->limits->reference->scene : c->scene;
	int r = gm_groups_open(groups, GM_BY_STACK);

	if (!r && c->limits->baseline)
		r = gm_groups_add(groups, 0, then, device, c->limits->reference ? GM_LIVES_END : c->mark, &known_then);
	if (!r)
		r = gm_groups_add(groups, 1, c->scene, device, GM_LIVES_END, &known);
	if (r)
		gm_groups_close(groups);
	else
		gm_groups_sort(groups);
	return r;
}

static void check_live(struct checking *c, const char *where, const char *device)
{
	struct gm_groups groups;
	int64_t bytes = 0, blocks = 0;
	const struct gm_group *most;

	if (!c->limits->no_leaks && c->limits->stack == NONE)
		return;
	if (sum_stacks(c, &groups, device)) {
		note(c, where, "memory", json_null(), json_null());
		fprintf(stderr, "gpumem check: %s\n", gm_limit_why(-ENOMEM));
		return;
	}
	most = groups.list;
	for (size_t i = 0; i < groups.count; i++) {
		const struct gm_group *group = &groups.list[i];

		most = group->bytes[1] > most->bytes[1] ? group : most;
		if (!leaks(c, group))
			continue;
		bytes = gm_wrap_add(bytes, gm_group_growth(group));
		blocks += group->count[1] - group->count[0];
	}
	if (c->limits->no_leaks && (blocks > 0 || bytes > 0)) {
		json_t *offence = note(c, where, "leaks", json_integer(bytes), json_integer(0));

		json_object_set_new(offence, "blocks", json_integer(blocks));
		if (!c->limits->json)
			printf("%s: %s: leaks: %s in %s%s\n", gm_show_clean(c->word), where, gm_show_bytes(bytes),
			       gm_show_count(blocks, "block"), c->limits->baseline ? " beyond the baseline" : "");
		if (c->limits->by)
			blame_phases(c, device, offence, true, 0);
		blame(c, &groups, true, 0);
	}
	if (groups.count) {
		json_t *offence = check_bytes(c, where, "stack", "stack", most->bytes[1], c->limits->stack);

		if (offence)
			json_object_set_new(offence, "stack", gm_groups_json_stack(most->scene, most->stack));
		if (offence)
			blame(c, &groups, false, (int64_t)c->limits->stack);
	}
	gm_groups_close(&groups);
}

/* Return the statistic @key; @otherwise if the snapshot (PyTorch's) does not have it. */
static int64_t stat_of(const json_t *stats, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(stats, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* Check @share, the percentage of reserved memory that is idle within segments in use. */
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

/* Check fragmentation and ooms of each pool of the device. A pool with a limit of its own can run out of memory while
 * the driver refuses nothing. */
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
	int64_t peak, held, row;

	snprintf(number, sizeof(number), "%lld", (long long)gm_json_number(device, "device"));
	if (!json_is_true(json_object_get(device, "present")) ||
	    (c->limits->device && strcmp(c->limits->device, number)))
		return;
	snprintf(where, sizeof(where), "device %s", number);
	peak = c->limits->level == GM_LEVEL_POOL ? gm_scene_pool_peak(c->scene, number) : INT64_MIN;
	held = peak;			/* a pool's blocks end when the program frees them */
	if (peak == INT64_MIN) {
		peak = stat_of(stats, "requested_bytes.all.peak", INT64_MIN);
		if (peak == INT64_MIN)	/* no statistics: take the peak of the history */
			peak = gm_lives_peak(&c->scene->lives, number, &row);
		held = held_peak(c, device, peak);
	}
	offence = check_peak(c, where, held, peak);
	if (offence && c->limits->by)
		blame_phases(c, number, offence, false, (int64_t)c->limits->peak);
	check_bytes(c, where, "reserved", reserved == now ? "reserved" : "reserved at the peak", reserved,
		    c->limits->reserved);
	check_share(c, where, share);
	check_ooms(c, where, ooms);
	if (c->limits->level == GM_LEVEL_POOL)
		check_pools(c, number);
	check_live(c, where, number);
}

/* Find the row of the baseline: the last mark of that name, or the end of the last range, because what was allocated
 * within the range may stay. A range that has not ended is not a baseline. Returns 0, or the exit status after a
 * message. */
static int find_mark(struct checking *c)
{
	const struct gm_snapshot *snapshot = c->scene->snapshot;
	bool open = false;
	char why[240];

	for (size_t i = snapshot->row_count; i--;) {
		const json_t *note = !strcmp(snapshot->rows[i].action, "annotate") ?
				     gm_row_annotation(c->scene->root, &snapshot->rows[i]) : NULL;

		if (!note || strcmp(gm_json_text(note, "name"), c->limits->baseline))
			continue;
		if (!strcmp(gm_json_text(note, "stage"), "START")) {
			open = true;
			continue;
		}
		c->mark = (int64_t)i;
		return 0;
	}
	if (open)
		snprintf(why, sizeof(why), "the range '%.80s' had not ended, so it is not a baseline",
			 c->limits->baseline);
	else
		snprintf(why, sizeof(why), "no annotation is called '%.80s' in its history, and there is no such file",
			 c->limits->baseline);
	return gm_input_bad("check", c->word, why);
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
	if (limits->baseline && !limits->reference)
		status = find_mark(&c);
	if (status) {
		gm_opened_close(&opened);
		return status;
	}
	json_array_foreach(gm_json_list(c.scene->root, "devices"), i, device)
		check_device(&c, device);
	if (!limits->device || !strcmp(limits->device, "host"))
		check_ooms(&c, "pinned host memory", stat_of(gm_json_object(gm_json_object(c.scene->root, "host"),
									    "memory_stats"), "num_ooms", 0));
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

		gm_show_document(stdout, all, 2);
	}
	json_decref(offences);
	return gm_show_finish("check", status);
}

static bool any(const struct limits *limits)
{
	return limits->peak != NONE || limits->reserved != NONE || limits->stack != NONE ||
	       limits->ooms != SIZE_MAX || limits->fragmentation >= 0 || limits->no_leaks;
}

/* Read the options that gm_arguments leaves as text: the percentage, and the file of suppressions. Returns 0, or the
 * exit status after a message. */
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
		.peak = NONE, .reserved = NONE, .stack = NONE, .ooms = SIZE_MAX, .fragmentation = -1, .top = 5
	};
	struct gm_opened reference;
	const char *fragmentation = NULL, *suppressions = NULL;
	const struct gm_argument arguments[] = {
		{ "max-peak", GM_ARG_SIZE, &limits.peak }, { "max-reserved", GM_ARG_SIZE, &limits.reserved },
		{ "max-stack", GM_ARG_SIZE, &limits.stack }, { "max-ooms", GM_ARG_COUNT, &limits.ooms },
		{ "max-fragmentation", GM_ARG_TEXT, &fragmentation }, { "no-leaks", GM_ARG_FLAG, &limits.no_leaks },
		{ "suppressions", GM_ARG_TEXT, &suppressions }, { "device", GM_ARG_DEVICE, &limits.device },
		{ "by", GM_ARG_WORD, &limits.by }, { "level", GM_ARG_WORD, &limits.level },
		{ "baseline", GM_ARG_TEXT, &limits.baseline }, { "top", GM_ARG_COUNT, &limits.top },
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
	if (!status && limits.baseline && !access(limits.baseline, F_OK)) {
		status = gm_open("check", limits.baseline, NULL, (enum gm_pool_level)limits.level, &reference);
		limits.reference = status ? NULL : &reference;
	}
	if (!status)
		status = check_all(&limits, argv + optind, argc - optind);
	if (limits.reference)
		gm_opened_close(limits.reference);
	gm_suppressions_free(&limits.known);
	return status;
}
