/*
 * symbolize.c - gpumem symbolize: the same snapshot with its native frames named: functions
 * demangled, files and lines, inlined functions as frames of their own.
 *
 * The frames are sorted by module and address and given to a worker process (symbols.h);
 * here its answers are put into the JSON.
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

/* What the worker said of one frame: levels[first .. first + count). */
struct answer { uint32_t first, count; bool closed; };
struct level { const char *name, *file; uint32_t line; };

struct job {
	struct gm_snapshot *snapshot;
	const json_t *module_list;
	size_t frame_count;		/* @frame_count: before inlined ones are added */
	struct gm_sym_frame *wanted;
	size_t wanted_count;
	struct answer *answers;		/* by frame */
	struct level *levels;
	size_t level_count;
	size_t named, lined, inlined, complaints;
};

/* A native frame of a module that no earlier run has given a line. */
static bool is_wanted(const struct gm_snapshot_frame *frame, size_t module_count)
{
	return !frame->python && !frame->inlined && frame->module > 0 &&
	       (uint64_t)frame->module < module_count && frame->offset > 0 && !frame->line;
}

static int collect(struct job *job)
{
	size_t module_count = json_array_size(job->module_list);

	job->wanted = calloc(job->frame_count + 1, sizeof(*job->wanted));
	job->answers = calloc(job->frame_count + 1, sizeof(*job->answers));
	if (!job->wanted || !job->answers)
		return -ENOMEM;
	for (size_t i = 1; i < job->frame_count; i++) {
		const struct gm_snapshot_frame *frame = &job->snapshot->frames[i];

		if (is_wanted(frame, module_count))
			job->wanted[job->wanted_count++] = (struct gm_sym_frame){
				(uint32_t)i, (uint32_t)frame->module, (uint64_t)frame->offset, frame->name
			};
	}
	return 0;
}

/* Text from a file of anybody's, as JSON takes it. NULL: out of memory. */
static const char *clean_text(struct job *job, const char *said)
{
	size_t length = strlen(said);
	char *copy = strdup(said);
	const char *text;

	if (!copy)
		return NULL;
	if (!gm_value_is_text((const unsigned char *)copy, length))
		for (char *c = copy; *c; c++)
			*c = (unsigned char)*c >= 0x80 ? '?' : *c;
	gm_value_repair(copy, length);
	text = gm_values_string(job->snapshot->texts, copy, length);
	free(copy);
	return text;
}

static void take_level(void *arg, uint32_t frame, const struct gm_level *said)
{
	struct job *job = arg;
	struct answer *answer;
	struct level *level;

	if (frame >= job->frame_count)
		return;
	answer = &job->answers[frame];
	/* Said already, before the worker died: what DWARF knew of it is more. */
	if (answer->closed || job->level_count == UINT32_MAX)
		return;
	if (answer->count && answer->first + answer->count != job->level_count)
		answer->count = 0;		/* begun, and not ended before the worker died */
	if (!answer->count)
		answer->first = (uint32_t)job->level_count;
	level = gm_list_add(&job->levels, &job->level_count, sizeof(*level));
	if (!level)
		return;
	*level = (struct level){ clean_text(job, said->name), clean_text(job, said->file),
				 said->line };
	if (!level->name || !level->file) {
		job->level_count--;
		return;
	}
	answer->count++;
	answer->closed = !said->inlined;
}

static void module_done(void *arg, const struct gm_sym_module *module, size_t number, size_t count,
			const char *why)
{
	struct job *job = arg;

	gm_progress("gpumem symbolize: modules", number, count);
	if (!why[0] || job->complaints++ >= COMPLAINTS_MOST)
		return;
	gm_progress_end();
	fprintf(stderr, "gpumem symbolize: %s: %s (%zu frames%s%s)\n",
		gm_show_clean(basename(module->path)), gm_show_clean(why),
		module->count, module->build_id[0] ? ", build id " : "",
		gm_show_clean(module->build_id));
}

static void put(struct gm_snapshot_frame *frame, const struct level *level)
{
	if (level->name[0])
		frame->name = level->name;
	if (level->file[0] || level->line) {
		frame->file = level->file;
		frame->line = level->line;
	}
}

/* Put what is known into frame @i. The functions inlined into it are new frames behind all others:
 * @answer->first is the number of the first, and @answer->count says how many. */
static int expand(struct job *job, size_t i)
{
	struct gm_snapshot *to = job->snapshot;
	struct answer *answer = &job->answers[i];
	const struct level *levels = job->levels + answer->first;
	uint32_t count = answer->closed ? answer->count : 0;

	*answer = (struct answer){ .first = (uint32_t)to->frame_count, .count = count ? count - 1 : 0 };
	if (!count)
		return 0;
	for (uint32_t n = 0; n + 1 < count; n++) {
		struct gm_snapshot_frame *inner = gm_list_add(&to->frames, &to->frame_count,
							      sizeof(*inner));

		if (!inner)
			return -ENOMEM;
		*inner = to->frames[i];
		inner->name = "";
		put(inner, &levels[n]);
		inner->inlined = true;
		job->inlined++;
	}
	put(&to->frames[i], &levels[count - 1]);
	job->named += levels[count - 1].name[0] != '\0';
	job->lined += levels[count - 1].line != 0;
	return 0;
}

/* All stacks with the functions inlined into their frames before each. */
static int rewrite_stacks(struct job *job)
{
	struct gm_snapshot *to = job->snapshot;
	size_t all = to->stack_count ? to->starts[to->stack_count] : 0, longer = 0, at = 0;
	uint32_t *ids;

	for (size_t i = 0; i < all; i++)
		longer += 1 + (size_t)(to->ids[i] ? job->answers[to->ids[i]].count : 0);
	ids = malloc((longer + 1) * sizeof(*ids));
	if (!ids)
		return -ENOMEM;
	for (size_t s = 0, i = 0; s < to->stack_count; s++) {
		for (; i < to->starts[s + 1]; i++) {
			const struct answer *answer = &job->answers[to->ids[i]];

			for (uint32_t n = 0; to->ids[i] && n < answer->count; n++)
				ids[at++] = answer->first + n;
			ids[at++] = to->ids[i];
		}
		to->starts[s + 1] = at;
	}
	free(to->ids);
	to->ids = ids;
	return 0;
}

static int rewrite(struct job *job)
{
	int r = 0;

	for (size_t i = 1; !r && i < job->frame_count; i++)
		r = expand(job, i);
	return !r && job->inlined ? rewrite_stacks(job) : r;
}

static int symbolize(struct gm_snapshot *snapshot, const struct gm_debug_places *places, bool inlines)
{
	struct job job = { .snapshot = snapshot, .frame_count = snapshot->frame_count,
			   .module_list = gm_json_list(snapshot->root, "modules") };
	struct gm_sym_request request = { .places = places, .modules = job.module_list, .inlines = inlines,
					  .level = take_level, .done = module_done, .arg = &job };
	int r;

	r = job.frame_count < UINT32_MAX ? collect(&job) : -EFBIG;
	request.frames = job.wanted;
	request.frame_count = job.wanted_count;
	if (!r)
		r = gm_symbolize(&request);
	gm_progress_end();
	if (!r)
		r = rewrite(&job);
	if (job.complaints > COMPLAINTS_MOST)
		fprintf(stderr, "gpumem symbolize: and %zu more modules\n",
			job.complaints - COMPLAINTS_MOST);
	if (!r)
		fprintf(stderr, "gpumem symbolize: of %zu native frames %zu have a name, %zu a "
			"line; %zu inlined ones added\n", job.wanted_count, job.named, job.lined,
			job.inlined);
	free(job.levels);
	free(job.wanted);
	free(job.answers);
	return r;
}

static int write_out(const struct gm_snapshot *snapshot, const char *path)
{
	struct gm_output output;
	int r = gm_output_open(&output, path, false);

	return r ? r : gm_output_close(&output, gm_snapshot_json(snapshot, output.file));
}

/* One that is not there would look like one that has nothing. */
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
	/* Freed by the next one, if there is one: most often the process ends behind this, and to take
	 * a large snapshot apart for that takes a sixth of the time. */
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
