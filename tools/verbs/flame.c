/*
 * flame.c - gpumem flame FILE: a flame graph of who holds, held, or keeps asking for memory.
 *
 * One thread, no signal context.
 */
#define _GNU_SOURCE
#include "tools/write/flame.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/verbs/cli.h"
#include "tools/verbs/given.h"
#include "tools/show/groups.h"
#include "tools/read/limit.h"
#include "tools/read/load.h"
#include "tools/write/output.h"
#include "tools/show/show.h"
#include "tools/verbs/verbs.h"

static const char *const weighs[] = { "live", "peak", "count", "bytes", "churn" };
static const char *const formats[] = { "svg", "folded", "speedscope" };
static const char *const endings[] = { ".svg", ".folded .txt", ".json" };

struct ask { struct gm_lives_filter filter; const char *output; int weigh, format; };

static int write_flame(FILE *out, const struct ask *ask, const struct gm_flame *flame,
		       const char *title)
{
	if (ask->format == 0)
		return gm_flame_svg(out, flame, title);
	if (ask->format == 2)
		return gm_flame_speedscope(out, flame, 1, title);
	gm_flame_folded(out, flame);
	return 0;
}

static int write_out(const struct ask *ask, const struct gm_flame *flame, const char *title)
{
	struct gm_output output;
	int r = gm_output_open(&output, ask->output), end;

	if (!r) {
		r = write_flame(output.file, ask, flame, title);
		end = gm_output_close(&output, !r);
		r = r ? r : end;
	}
	if (!r) {
		if (!flame->total)
			fprintf(stderr, "gpumem flame: nothing to draw: no %s; other weights, as --weigh %s, may "
				"have more\n", gm_weigh_name(flame->weigh), ask->weigh ? "count" : "peak");
		return GM_EXIT_OK;
	}
	fprintf(stderr, "gpumem flame: %s: the output could not be written: %s\n",
		gm_show_clean(ask->output ? ask->output : "-"), gm_limit_why(r));
	return GM_EXIT_FAILED;
}

static int flame(const struct ask *ask, const char *word)
{
	struct gm_scene scene = { .root = NULL };
	struct gm_loaded loaded;
	struct gm_flame flame;
	int status, r;

	if (gm_load(word, &loaded))
		return gm_given_bad("flame", word, loaded.error);
	status = gm_given_device("flame", ask->filter.device, word, &loaded, 1);
	if (status) {
		gm_load_free(&loaded);
		return status;
	}
	r = gm_scene_open(&scene, loaded.root);
	if (!r)
		r = gm_flame_open(&flame, &scene.stacks, &scene.lives, &ask->filter,
				  (enum gm_weigh)ask->weigh, ask->format == 2);
	if (r) {
		status = gm_given_bad("flame", word, gm_limit_why(r));
	} else {
		status = write_out(ask, &flame,
				   gm_json_text(gm_json_object(loaded.root, "process"), "command"));
		gm_flame_close(&flame);
	}
	gm_scene_close(&scene);
	gm_load_free(&loaded);
	return status;
}

/* The place of @word among @count @words, or a line and -1. */
static int choose(const char *option, const char *word, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(word, words[i]))
			return i;
	fprintf(stderr, "gpumem flame: %s %s: not one of", option, word);
	for (int i = 0; i < count; i++)
		fprintf(stderr, " %s", words[i]);
	fputs("\n", stderr);
	return -1;
}

int gm_verb_flame(int argc, char **argv)
{
	struct ask ask = { .weigh = 0 };
	char *end;
	int c;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		if (c == 'h' || c == '?') {
			return gm_cli_end(c);
		}
		if (c == 'w')
			ask.weigh = choose("--weigh", optarg, weighs, 5);
		else if (c == 'f')
			ask.format = choose("--format", optarg, formats, 3);
		else if (c == 'd')
			ask.filter.device = optarg;
		else
			ask.output = optarg;
		if (ask.weigh < 0 || ask.format < 0)
			return GM_EXIT_USAGE;
		if (c != 'd' || !strcmp(optarg, "host"))
			continue;
		strtol(optarg, &end, 10);
		if (end == optarg || *end) {
			fprintf(stderr, "gpumem flame: --device %s: not a number or 'host'\n", optarg);
			return GM_EXIT_USAGE;
		}
	}
	if (argc - optind != 1) {
		return gm_cli_inputs("flame", argc - optind);
	}
	return gm_given_output("flame", ask.output, endings[ask.format]) ? GM_EXIT_USAGE : flame(&ask, argv[optind]);
}
