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

struct ask { const char *device, *output; int weigh, format, by, level; };

static int write_flame(FILE *out, const struct ask *ask, const struct gm_flame *flame,
		       const char *title)
{
	if (ask->format == SVG)
		return gm_flame_svg(out, flame, title);
	if (ask->format == SPEEDSCOPE)
		return gm_flame_speedscope(out, flame, 1, title);
	gm_flame_folded(out, flame);
	return 0;
}

static int write_out(const struct ask *ask, const struct gm_flame *flame, const char *title)
{
	struct gm_output output;
	int r = gm_output_open(&output, ask->output, false);

	if (!r)
		r = gm_output_close(&output, write_flame(output.file, ask, flame, title));
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
	struct gm_opened opened;
	struct gm_flame_phases phases = { .view.root = NULL };
	struct gm_flame flame;
	int status = gm_open("flame", word, ask->device, (enum gm_pool_level)ask->level, &opened), r = 0;

	if (status)
		return status;
	if (ask->by == BY_ANNOTATION && gm_phases_missing(&opened.loaded.snapshot))
		fprintf(stderr, "gpumem flame: %s\n", gm_phases_missing(&opened.loaded.snapshot));
	if (ask->by == BY_ANNOTATION)
		r = gm_flame_phases_open(&phases, &opened.scene.stacks, &opened.scene.lives, &opened.loaded.snapshot,
					 ask->device);
	if (!r)
		r = gm_flame_open(&flame, &opened.scene.stacks, &opened.scene.lives, ask->device,
			  (enum gm_weigh)ask->weigh, ask->format == SPEEDSCOPE);
	if (r) {
		status = gm_input_bad("flame", word, gm_limit_why(r));
	} else {
		status = write_out(ask, &flame, gm_json_text(gm_json_object(opened.scene.root, "process"),
							     "command"));
		gm_flame_close(&flame);
	}
	gm_opened_close(&opened);
	gm_flame_phases_close(&phases);
	return status;
}

int gm_verb_flame(int argc, char **argv)
{
	struct ask ask = { .weigh = GM_WEIGH_LIVE };
	const struct gm_argument arguments[] = {
		{ "weigh", GM_ARG_WORD, &ask.weigh }, { "by", GM_ARG_WORD, &ask.by },
		{ "level", GM_ARG_WORD, &ask.level }, { "format", GM_ARG_WORD, &ask.format },
		{ "device", GM_ARG_DEVICE_OR_HOST, &ask.device }, { "output", GM_ARG_TEXT, &ask.output },
		{ NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, 1);

	if (status < 0 && gm_output_check("flame", ask.output, endings[ask.format]))
		status = GM_EXIT_USAGE;
	if (status < 0 && (!ask.output || !strcmp(ask.output, "-")) && ask.format == SVG && isatty(STDOUT_FILENO)) {
		fputs("gpumem flame: an SVG is not for a terminal: -o FILE.svg, or --format folded\n", stderr);
		status = GM_EXIT_USAGE;
	}
	return status >= 0 ? status : flame(&ask, argv[optind]);
}
