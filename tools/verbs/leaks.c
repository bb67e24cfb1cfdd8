/*
 * leaks.c - gpumem leaks FILE and gpumem leaks BEFORE AFTER: what was never freed, by stack.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/show/show.h"
#include "tools/show/groups.h"
#include "tools/verbs/opened.h"

struct ask {
	const char *device;
	struct gm_suppressions known;
	uint64_t min_size;
	size_t top;
	int level;			/* enum gm_pool_level */
	bool json;
};

static bool wanted(const struct ask *ask, const struct gm_group *group)
{
	return gm_group_growth(group) > 0 && (uint64_t)gm_group_growth(group) >= ask->min_size;
}

static bool has_stack(const struct gm_group *group)
{
	size_t count;

	gm_stack(&group->scene->stacks, group->stack, &count);
	return count != 0;
}

/* Print the stack of a group or, without a stack, the module that asked for memory. */
static void print_where(const struct gm_group *group)
{
	if (has_stack(group))
		gm_groups_print_stack(stdout, group->scene, group->stack, 4);
	else
		printf("    %s %s\n", GM_NO_STACK, gm_show_module(group->scene->root, group->module));
}

/* Return ", named NAME" for a group whose blocks the program named; "": it did not. Static memory. */
static const char *named(const struct gm_group *group)
{
	static char text[320];

	text[0] = '\0';
	if (group->name)
		snprintf(text, sizeof(text), ", named \"%.256s\"%s", gm_show_clean(group->name),
			 group->other_names ? " and otherwise" : "");
	return gm_show_repair(text);
}

static void print_text(const struct ask *ask, const struct gm_groups *groups, const json_t *root, bool two)
{
	bool living = !strcmp(gm_json_text(gm_json_object(root, "process"), "life"), "running");
	const char *what = two ? "grew" : living ? "not freed yet" : "never freed";
	int64_t bytes = 0, blocks = 0;
	size_t shown = 0, all = 0, bare = 0;

	for (size_t i = 0; i < groups->count; i++) {
		const struct gm_group *group = &groups->list[i];

		if (!wanted(ask, group))
			continue;
		bytes = gm_wrap_add(bytes, gm_group_growth(group));
		blocks += group->count[1] - group->count[0];
		bare += !has_stack(group);
		if (++all > ask->top)
			continue;
		shown++;
		if (two)
			gm_show_heading(stdout, "%s more: %s in %s, before %s in %lld (%s)%s",
					gm_show_bytes(gm_group_growth(group)), gm_show_bytes(group->bytes[1]),
					gm_show_count(group->count[1], "block"), gm_show_bytes(group->bytes[0]),
					(long long)group->count[0], gm_show_clean(group->kind), named(group));
		else
			gm_show_heading(stdout, "%s in %s (%s)%s", gm_show_bytes(group->bytes[1]),
					gm_show_count(group->count[1], "block"), gm_show_clean(group->kind),
					named(group));
		print_where(group);
	}
	if (shown < all)
		gm_more_rows(stdout, all - shown, "more stack");
	if (!all)
		printf("nothing %s%s%s", two ? "grew" : living ? "is live" : "leaked",
		       ask->min_size ? " that is at least " : "",
		       ask->min_size ? gm_show_bytes((int64_t)ask->min_size) : "");
	else
		printf("%s: %s in %s", what, gm_show_bytes(bytes), gm_show_count(blocks, "block"));
	if (bare)
		printf("; %s without a stack, by kind and module", gm_show_count((int64_t)bare, "row"));
	else if (all)
		printf(" from %s", gm_show_count((int64_t)all, "stack"));
	if (ask->known.matched)
		printf("; %s of known leaks left out", gm_show_count((int64_t)ask->known.matched, "block"));
	putchar('\n');
}

static void print_json(const struct ask *ask, const struct gm_groups *groups)
{
	json_t *list = json_array(), *all;
	int64_t bytes = 0;

	for (size_t i = 0; i < groups->count; i++) {
		const struct gm_group *group = &groups->list[i];

		if (!wanted(ask, group))
			continue;
		bytes = gm_wrap_add(bytes, gm_group_growth(group));
		json_array_append_new(list, json_pack("{sI sI sI sI ss ss ss* so}",
			"bytes", (json_int_t)group->bytes[1], "blocks", (json_int_t)group->count[1],
			"bytes_before", (json_int_t)group->bytes[0], "blocks_before", (json_int_t)group->count[0],
			"kind", group->kind, "module", gm_show_module(group->scene->root, group->module),
			"name", group->name, "stack", gm_groups_json_stack(group->scene, group->stack)));
	}
	all = json_pack("{sI sI so}", "bytes", (json_int_t)bytes, "suppressed_blocks",
			(json_int_t)ask->known.matched, "leaks", list);
	gm_show_document(stdout, all, 2);
}

/* @words: one input, or an earlier and a later one. */
static int leaks(struct ask *ask, char **words, int count)
{
	struct gm_compared both;
	int status = gm_compare("leaks", words, count, ask->device, (enum gm_pool_level)ask->level, &ask->known,
				GM_BY_STACK, &both);

	if (status)
		return status;
	if (ask->json)
		print_json(ask, &both.groups);
	else
		print_text(ask, &both.groups, both.inputs[count - 1].loaded.snapshot.root, count == 2);
	gm_compared_close(&both);
	return gm_show_finish("leaks", GM_EXIT_OK);
}

int gm_verb_leaks(int argc, char **argv)
{
	struct ask ask = { .top = 20 };
	const char *suppressions = NULL;
	const struct gm_argument arguments[] = {
		{ "device", GM_ARG_DEVICE_OR_HOST, &ask.device }, { "suppressions", GM_ARG_TEXT, &suppressions },
		{ "min-size", GM_ARG_SIZE, &ask.min_size }, { "since", GM_ARG_TIME, &ask.known.since },
		{ "top", GM_ARG_COUNT, &ask.top },
		{ "level", GM_ARG_WORD, &ask.level },
		{ "json", GM_ARG_FLAG, &ask.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, 2);
	char why[128];

	if (status >= 0)
		return status;
	if (suppressions && gm_suppressions_read(&ask.known, suppressions, why, sizeof(why)))
		status = gm_argument_wrong("leaks", "suppressions", suppressions, why);
	else
		status = leaks(&ask, argv + optind, argc - optind);
	gm_suppressions_free(&ask.known);
	return status;
}
