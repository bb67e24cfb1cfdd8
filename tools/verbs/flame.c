/*
 * flame.c - gpumem flame FILE: a flame graph of who holds, held, or keeps asking for memory.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "tools/write/flame.h"

#include <getopt.h>

#include "tools/verbs/arguments.h"
#include "tools/read/input.h"
#include "tools/write/output.h"
#include "tools/show/phases.h"
#include "tools/show/show.h"
#include "tools/verbs/opened.h"

enum { BY_STACK, BY_ANNOTATION };
enum { SVG, FOLDED, SPEEDSCOPE };
static const char *const endings[] = { ".svg", ".folded .txt", ".json" };

struct ask { const char *device, *output; int weigh, format, by, level; bool invert; };

/* An input and its flame graph. */
struct input { struct gm_opened opened; struct gm_flame_phases phases; struct gm_flame flame; };

static int write_flame(FILE *out, const struct ask *ask, const struct gm_flame *flame, const struct gm_flame *before,
		       const char *title)
{
	if (ask->format == SVG)
		return gm_flame_svg(out, flame, before, title);
	if (ask->format == SPEEDSCOPE)
		return gm_flame_speedscope(out, flame, 1, title);
	gm_flame_folded(out, flame);
	return 0;
}

static int write_out(const struct ask *ask, const struct gm_flame *flame, const struct gm_flame *before,
		     const char *title)
{
	struct gm_output output;
	int r = gm_output_open(&output, ask->output, false);

	if (!r)
		r = gm_output_close(&output, write_flame(output.file, ask, flame, before, title));
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

/* Say what the graph leaves out: past allocations are known only if their events were kept or they are still live. */
static void say_late(const struct ask *ask, const char *word, const struct gm_snapshot *snapshot)
{
	const json_t *history = gm_json_object(snapshot->root, "history");
	int64_t dropped = gm_json_number(history, "dropped");
	const char *weigh = gm_weigh_name((enum gm_weigh)ask->weigh);

	if (ask->weigh == GM_WEIGH_LIVE || ask->weigh == GM_WEIGH_PEAK)
		return;
	if (dropped > 0)
		fprintf(stderr, "gpumem flame: %s: the history begins late: %s dropped from its beginning; the %s "
			"leave out what was allocated and freed before\n", gm_show_clean(word),
			gm_show_count(dropped, "event"), weigh);
	else if (!snapshot->row_count)
		fprintf(stderr, "gpumem flame: %s: the history has no events: the %s leave out what was freed\n",
			gm_show_clean(word), weigh);
}

static int open_input(const struct ask *ask, const char *word, struct input *in)
{
	const struct gm_flame_ways ways = {
		.weigh = (enum gm_weigh)ask->weigh, .by_line = ask->format == SPEEDSCOPE,
		.fold = gm_stacks_folded() && ask->format != SPEEDSCOPE, .invert = ask->invert,
	};
	struct gm_scene *scene = &in->opened.scene;
	int status = gm_open("flame", word, ask->device, (enum gm_pool_level)ask->level, &in->opened), r = 0;

	if (status)
		return status;
	say_late(ask, word, &in->opened.loaded.snapshot);
	if (ask->by == BY_ANNOTATION && gm_phases_missing(&in->opened.loaded.snapshot))
		fprintf(stderr, "gpumem flame: %s\n", gm_phases_missing(&in->opened.loaded.snapshot));
	if (ask->by == BY_ANNOTATION)
		r = gm_flame_phases_open(&in->phases, &scene->stacks, &scene->lives, &in->opened.loaded.snapshot,
					 ask->device);
	if (!r)
		r = gm_flame_open(&in->flame, &scene->stacks, &scene->lives, ask->device, &ways);
	return r ? gm_input_bad("flame", word, gm_limit_why(r)) : GM_EXIT_OK;
}

/* @words: one input, or an earlier and a later one. */
static int flame(const struct ask *ask, char **words, int count)
{
	struct input inputs[2];
	const struct input *in = &inputs[count - 1];
	int status = GM_EXIT_OK;

	memset(inputs, 0, sizeof(inputs));
	for (int i = 0; !status && i < count; i++)
		status = open_input(ask, words[i], &inputs[i]);
	if (!status)
		status = write_out(ask, &in->flame, count == 2 ? &inputs[0].flame : NULL,
				   gm_json_text(gm_json_object(in->opened.scene.root, "process"), "command"));
	for (int i = 0; i < count; i++) {
		gm_flame_close(&inputs[i].flame);
		gm_opened_close(&inputs[i].opened);
		gm_flame_phases_close(&inputs[i].phases);
	}
	return status;
}

int gm_verb_flame(int argc, char **argv)
{
	struct ask ask = { .weigh = GM_WEIGH_LIVE };
	const struct gm_argument arguments[] = {
		{ "weigh", GM_ARG_WORD, &ask.weigh }, { "by", GM_ARG_WORD, &ask.by },
		{ "level", GM_ARG_WORD, &ask.level }, { "format", GM_ARG_WORD, &ask.format },
		{ "device", GM_ARG_DEVICE_OR_HOST, &ask.device }, { "output", GM_ARG_TEXT, &ask.output },
		{ "invert", GM_ARG_FLAG, &ask.invert }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, 2);

	if (status < 0 && argc - optind == 2 && ask.format != SVG) {
		fputs("gpumem flame: two runs beside each other are an SVG: without --format\n", stderr);
		status = GM_EXIT_USAGE;
	}
	if (status < 0 && ask.invert && ask.format == SPEEDSCOPE) {
		fputs("gpumem flame: speedscope turns stacks round by itself: without --invert\n", stderr);
		status = GM_EXIT_USAGE;
	}
	if (status < 0 && gm_output_check("flame", ask.output, endings[ask.format]))
		status = GM_EXIT_USAGE;
	if (status < 0 && (!ask.output || !strcmp(ask.output, "-")) && ask.format == SVG && isatty(STDOUT_FILENO)) {
		fputs("gpumem flame: an SVG is not for a terminal: -o FILE.svg, or --format folded\n", stderr);
		status = GM_EXIT_USAGE;
	}
	return status >= 0 ? status : flame(&ask, argv + optind, argc - optind);
}
