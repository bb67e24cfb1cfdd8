/*
 * symbolize.c - gpumem symbolize: write a snapshot again with demangled names, files and lines of its native frames,
 * and inlined functions as frames of their own. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/verbs/arguments.h"
#include "tools/symbols/symbols.h"
#include "tools/read/input.h"
#include "tools/read/load.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/write/output.h"
#include "tools/write/writer.h"
#include "tools/show/show.h"

#define COMPLAINTS_MOST 20		/* modules that are named on stderr */

static void module_done(void *arg, const struct gm_sym_module *module, size_t number, size_t count,
			const char *why)
{
	size_t *complaints = arg;

	gm_progress("gpumem symbolize: modules", number, count);
	if (!why[0] || (*complaints)++ >= COMPLAINTS_MOST)
		return;
	gm_progress_end();
	fprintf(stderr, "gpumem symbolize: %s: %s (%zu frames%s%s)\n",
		gm_show_clean(basename(module->path)), gm_show_clean(why),
		module->count, module->build_id[0] ? ", build id " : "",
		gm_show_clean(module->build_id));
}

static int symbolize(struct gm_snapshot *snapshot, const struct gm_debug_places *places, bool inlines)
{
	size_t complaints = 0;
	struct gm_names names = { .places = places, .no_inlines = !inlines, .done = module_done, .arg = &complaints };
	int r = gm_names_find(snapshot, &names);

	gm_progress_end();
	if (complaints > COMPLAINTS_MOST)
		fprintf(stderr, "gpumem symbolize: and %zu more modules\n", complaints - COMPLAINTS_MOST);
	if (!r)
		fprintf(stderr, "gpumem symbolize: of %zu native frames %zu have a name, %zu a "
			"line; %zu inlined ones added\n", names.wanted, names.named, names.lined, names.inlined);
	return r;
}

static int write_out(const struct gm_snapshot *snapshot, const char *path)
{
	struct gm_output output;
	int r = gm_output_open(&output, path, false);

	return r ? r : gm_output_close(&output, gm_snapshot_json(snapshot, output.file));
}

/* Warn about a missing directory, which otherwise looks like an empty one. */
static void check_directory(const char *option, const char *directory)
{
	struct stat st;
	int error = stat(directory, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;

	if (error)
		gm_argument_wrong("symbolize", option, directory, strerror(error));
}

int gm_verb_symbolize(int argc, char **argv)
{
	const char *output = NULL, *sysroot = NULL, *missing;
	struct gm_texts dirs = { .count = 0 };
	bool no_inlines = false;
	const struct gm_argument arguments[] = {
		{ "output", GM_ARG_TEXT, &output }, { "sysroot", GM_ARG_TEXT, &sysroot },
		{ "debug-dir", GM_ARG_TEXTS, &dirs }, { "no-inlines", GM_ARG_FLAG, &no_inlines }, { NULL, 0, NULL }
	};
	/* Freed only by the next call: the process usually ends after this verb, and to free a large snapshot takes a
	 * sixth of the verb's time. */
	static struct gm_loaded loaded;
	struct gm_debug_places places;
	int status = gm_arguments(argc, argv, arguments, 1, 1), r;

	if (status >= 0)
		return status;
	if (sysroot)
		check_directory("sysroot", sysroot);
	for (size_t i = 0; i < dirs.count; i++)
		check_directory("debug-dir", dirs.list[i]);
	if (gm_output_check("symbolize", output, ".json"))
		return GM_EXIT_USAGE;
	gm_load_free(&loaded);
	if (gm_load(argv[optind], GM_LOAD_WHOLE, &loaded))
		return gm_input_bad("symbolize", argv[optind], loaded.error);
	missing = gm_dwarf_missing();
	if (missing)
		fprintf(stderr, "gpumem symbolize: names only, no lines: %s\n", missing);
	places = (struct gm_debug_places){ dirs.list, dirs.count, sysroot };
	r = symbolize(&loaded.snapshot, &places, !no_inlines);
	if (r) {
		fprintf(stderr, "gpumem symbolize: %s\n", gm_limit_why(r));
		return GM_EXIT_FAILED;
	}
	r = write_out(&loaded.snapshot, output);
	if (r) {
		fprintf(stderr, "gpumem symbolize: %s: %s\n",
			gm_show_clean(output ? output : "standard output"), gm_limit_why(r));
		return GM_EXIT_FAILED;
	}
	return GM_EXIT_OK;
}
