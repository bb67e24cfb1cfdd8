/*
 * diff.c - gpumem diff A B: what is live in one snapshot and in another, side by side.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>

#include "tools/verbs/arguments.h"
#include "tools/show/phases.h"
#include "tools/show/show.h"
#include "tools/verbs/opened.h"

struct ask { const char *device; enum gm_by by; enum gm_pool_level level; bool all, json; };

static bool wanted(const struct ask *ask, const struct gm_group *group)
{
	return ask->all || gm_group_growth(group) || group->count[0] != group->count[1];
}

static void print_row(enum gm_by by, const char *name, int64_t before, int64_t after, int64_t blocks_before,
		      int64_t blocks_after)
{
	int64_t grown = gm_wrap_subtract(after, before);
	char text[48];
	int used;

	snprintf(text, sizeof(text), "%s%s", grown > 0 ? "+" : "", gm_show_bytes(grown));
	used = printf("%12s %12s %12s %10lld %10lld", text, gm_show_bytes(before), gm_show_bytes(after),
		      (long long)blocks_before, (long long)blocks_after);
	gm_groups_put_key(stdout, by, name, (size_t)used);
}

static void print_text(const struct ask *ask, const struct gm_groups *groups)
{
	size_t rows = 0;

	gm_show_heading(stdout, "%12s %12s %12s %10s %10s  %s", "growth", "A", "B", "blocks A", "blocks B",
			gm_by_name(ask->by));
	for (size_t i = 0; i < groups->count; i++) {
		const struct gm_group *group = &groups->list[i];

		if (!wanted(ask, group))
			continue;
		rows++;
		if (ask->by == GM_BY_STACK)
			print_row(GM_BY_SITE, gm_stack_site(&group->scene->stacks, group->stack)->name, group->bytes[0],
				  group->bytes[1], group->count[0], group->count[1]);
		else
			print_row(ask->by, group->key, group->bytes[0], group->bytes[1], group->count[0],
				  group->count[1]);
		if (ask->by == GM_BY_STACK)
			gm_groups_print_stack(stdout, group->scene, group->stack, 64);
	}
	print_row(ask->by, "all", groups->all_bytes[0], groups->all_bytes[1], groups->all_count[0],
		  groups->all_count[1]);
	if (!rows)
		puts(groups->count ? "nothing changed (--all shows what stayed)" : "nothing is live in either");
}

static void print_json(const struct ask *ask, const struct gm_groups *groups)
{
	json_t *list = json_array();

	for (size_t i = 0; i < groups->count; i++) {
		const struct gm_group *group = &groups->list[i];
		json_t *one;

		if (!wanted(ask, group))
			continue;
		one = json_pack("{sI sI sI sI sI}", "growth", (json_int_t)gm_group_growth(group),
				"bytes_a", (json_int_t)group->bytes[0], "bytes_b", (json_int_t)group->bytes[1],
				"blocks_a", (json_int_t)group->count[0], "blocks_b", (json_int_t)group->count[1]);
		if (ask->by == GM_BY_STACK)
			json_object_set_new(one, "stack", gm_groups_json_stack(group->scene, group->stack));
		else
			json_object_set_new(one, "name", json_string(group->key));
		json_array_append_new(list, one);
	}
	gm_show_document(stdout, list, 2);
}

static int diff(const struct ask *ask, char **words)
{
	struct gm_compared both;
	int status = gm_compare("diff", words, 2, ask->device, ask->level, NULL, ask->by, &both);

	if (status)
		return status;
	if (ask->json)
		print_json(ask, &both.groups);
	else
		print_text(ask, &both.groups);
	for (int i = 0; i < 2 && ask->by == GM_BY_ANNOTATION; i++) {
		const char *missing = gm_phases_missing(&both.inputs[i].loaded.snapshot);

		if (missing)
			fprintf(ask->json ? stderr : stdout, "%c: %s\n", 'A' + i, missing);
	}
	gm_compared_close(&both);
	return gm_show_finish("diff", GM_EXIT_OK);
}

int gm_verb_diff(int argc, char **argv)
{
	struct ask ask = { .by = GM_BY_SITE };
	const struct gm_argument arguments[] = {
		{ "by", GM_ARG_WORD, &ask.by }, { "level", GM_ARG_WORD, &ask.level },
		{ "device", GM_ARG_DEVICE_OR_HOST, &ask.device }, { "all", GM_ARG_FLAG, &ask.all },
		{ "json", GM_ARG_FLAG, &ask.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 2, 2);

	return status >= 0 ? status : diff(&ask, argv + optind);
}
