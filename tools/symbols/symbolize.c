/*
 * symbolize.c - gpumem symbolize: the same snapshot with its native frames named: functions
 * demangled, files and lines, inlined functions as frames of their own.
 *
 * The frames are sorted by module and address and given to a worker process (symbolize_worker.h);
 * here its answers are put into the JSON. Single-threaded, no signal context.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/read/bulk.h"
#include "tools/verbs/arguments.h"
#include "tools/symbols/dwarf.h"
#include "tools/read/limit.h"
#include "tools/read/load.h"
#include "tools/write/output.h"
#include "tools/show/progress.h"
#include "tools/show/show.h"
#include "tools/symbols/symbolize_worker.h"
#include "tools/verbs/verbs.h"

#define COMPLAINTS_MOST 20		/* modules that are named on stderr */

/* What the worker said of one frame: levels[first .. first + count). */
struct answer { uint32_t first, count; bool closed; };
struct level { json_t *name, *file; uint32_t line; bool inlined; };

struct job {
	json_t *root, *frames;
	struct gm_values *values;	/* where longer stacks lie: until the root is written */
	const json_t *module_list;
	size_t frame_count;		/* before inlined ones are added */
	struct gm_sym_frame *wanted;	/* sorted by module and offset */
	size_t wanted_count;
	struct gm_sym_module *modules;
	size_t module_count;
	struct answer *answers;		/* by frame */
	struct level *levels;
	size_t level_count, level_room;
	size_t named, lined, inlined, complaints;
};

struct want { uint32_t module; struct gm_sym_frame frame; };

static int by_module_and_offset(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	if (x->frame.offset != y->frame.offset)
		return x->frame.offset < y->frame.offset ? -1 : 1;
	return 0;
}

/* A native frame of a module that no earlier run has given a line. */
static bool is_wanted(const json_t *frame, size_t module_count)
{
	int64_t module = gm_json_number(frame, "module"), offset = gm_json_number(frame, "offset");

	return json_is_object(frame) && !json_is_true(json_object_get(frame, "python")) &&
	       !json_is_true(json_object_get(frame, "inlined")) && module > 0 &&
	       (uint64_t)module < module_count && offset > 0 &&
	       !gm_json_number(frame, "line");
}

static int collect(struct job *job)
{
	size_t module_count = json_array_size(job->module_list), n = 0;
	struct want *wants = calloc(job->frame_count + 1, sizeof(*wants));

	job->wanted = calloc(job->frame_count + 1, sizeof(*job->wanted));
	job->modules = calloc(module_count + 1, sizeof(*job->modules));
	job->answers = calloc(job->frame_count + 1, sizeof(*job->answers));
	if (!wants || !job->wanted || !job->modules || !job->answers) {
		free(wants);
		return -ENOMEM;
	}
	for (size_t i = 1; i < job->frame_count; i++) {
		const json_t *frame = json_array_get(job->frames, i);

		if (is_wanted(frame, module_count))
			wants[n++] = (struct want){
				(uint32_t)gm_json_number(frame, "module"),
				{ (uint32_t)i, (uint64_t)gm_json_number(frame, "offset"),
				  gm_json_text(frame, "name") } };
	}
	qsort(wants, n, sizeof(*wants), by_module_and_offset);
	for (size_t i = 0; i < n; i++) {
		struct gm_sym_module *module = &job->modules[job->module_count];

		job->wanted[i] = wants[i].frame;
		if (!i || wants[i].module != wants[i - 1].module) {
			const json_t *info = json_array_get(job->module_list, wants[i].module);

			job->module_count++;
			module->path = gm_json_text(info, "path");
			module->build_id = gm_json_text(info, "build_id");
			module->frames = &job->wanted[i];
		}
		job->modules[job->module_count - 1].count++;
	}
	job->wanted_count = n;
	free(wants);
	return 0;
}

/* Text from a file of anybody's, as JSON takes it. */
static json_t *clean_string(const char *text)
{
	json_t *string = json_string(text);
	char *copy = string ? NULL : strdup(text);

	if (!copy)
		return string;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	string = json_string(copy);
	free(copy);
	return string;
}

static void take_level(void *arg, uint32_t frame, const struct gm_sym_level *said)
{
	struct job *job = arg;
	struct answer *answer;

	if (frame >= job->frame_count)
		return;
	answer = &job->answers[frame];
	/* Said already, before the worker died: what DWARF knew of it is more. */
	if (answer->closed)
		return;
	if (job->level_count == job->level_room) {
		size_t room = job->level_room ? job->level_room * 2 : 4096;
		struct level *larger = realloc(job->levels, room * sizeof(*larger));

		if (!larger || room > UINT32_MAX)
			return;
		job->levels = larger;
		job->level_room = room;
	}
	if (answer->count && answer->first + answer->count != job->level_count)
		answer->count = 0;		/* begun, and not ended before the worker died */
	if (!answer->count)
		answer->first = (uint32_t)job->level_count;
	job->levels[job->level_count++] = (struct level){ clean_string(said->name),
							  clean_string(said->file), said->line,
							  said->inlined };
	answer->count++;
	answer->closed = !said->inlined;
}

static void module_done(void *arg, size_t index, const char *why)
{
	struct job *job = arg;
	const struct gm_sym_module *module = &job->modules[index];
	const char *slash = strrchr(module->path, '/');

	gm_progress("gpumem symbolize: modules", index + 1, job->module_count);
	if (!why[0] || job->complaints++ >= COMPLAINTS_MOST)
		return;
	gm_progress_end();
	fprintf(stderr, "gpumem symbolize: %s: %s (%zu frames%s%s)\n",
		gm_show_clean(slash ? slash + 1 : module->path), gm_show_clean(why),
		module->count, module->build_id[0] ? ", build id " : "",
		gm_show_clean(module->build_id));
}

static void put(json_t *frame, const struct level *level)
{
	if (json_string_length(level->name))
		json_object_set(frame, "name", level->name);
	if (json_string_length(level->file) || level->line) {
		json_object_set(frame, "filename", level->file);
		json_object_set_new(frame, "line", json_integer(level->line));
	}
}

/* The numbers of the frames that stand for frame @i: the functions inlined into it, then itself.
 * NULL: just itself. */
static json_t *expand(struct job *job, size_t i)
{
	const struct answer *answer = &job->answers[i];
	const struct level *levels = job->levels + answer->first;
	json_t *frame, *list = NULL;

	if (!answer->count || !answer->closed)
		return NULL;
	/* A copy: what was loaded may be shared. */
	frame = json_copy(json_array_get(job->frames, i));
	if (answer->count > 1)
		list = json_array();
	for (uint32_t n = 0; list && n + 1 < answer->count; n++) {
		json_t *inner = json_copy(frame);

		json_object_set_new(inner, "name", json_string(""));
		put(inner, &levels[n]);
		json_object_set_new(inner, "inlined", json_true());
		json_array_append_new(list, json_integer((json_int_t)
							 json_array_size(job->frames)));
		json_array_append_new(job->frames, inner);
		job->inlined++;
	}
	put(frame, &levels[answer->count - 1]);
	json_array_set_new(job->frames, i, frame);
	job->named += json_string_length(levels[answer->count - 1].name) != 0;
	job->lined += levels[answer->count - 1].line != 0;
	if (list)
		json_array_append_new(list, json_integer((json_int_t)i));
	return list;
}

/* @stack with what stands for each of its frames; itself when that is what it has. NULL: no memory. */
static const struct gm_value *rewrite_stack(struct job *job, const struct gm_value *stack,
					    json_t *const *lists)
{
	size_t length = gm_value_length(gm_value_as_row(stack)), longer = 0, at = 0;
	int64_t *numbers;
	const struct gm_value *made;

	for (size_t i = 0; i < length; i++) {
		int64_t id = gm_value_int_at(stack, i);

		longer += id > 0 && (uint64_t)id < job->frame_count && lists[id] ?
			  json_array_size(lists[id]) : 1;
	}
	if (longer == length)			/* a list is of two frames at least */
		return stack;
	made = gm_value_room(job->values, longer, &numbers);
	for (size_t i = 0; made && i < length; i++) {
		int64_t id = gm_value_int_at(stack, i);
		const json_t *list = id > 0 && (uint64_t)id < job->frame_count ? lists[id] : NULL;

		for (size_t n = 0; n < json_array_size(list); n++)
			numbers[at++] = json_integer_value(json_array_get(list, n));
		if (!list)
			numbers[at++] = id;
	}
	return made;
}

static int rewrite_stacks(struct job *job, json_t *const *lists)
{
	const struct gm_value *stacks = gm_bulk_list(job->root, "stacks"), *stack;
	struct gm_value *longer = gm_value_container(job->values, GM_VALUE_LIST);

	for (size_t i = 0; longer && i < gm_value_length(stacks); i++) {
		stack = rewrite_stack(job, stacks->u.items[i], lists);
		if (!stack || gm_value_append(job->values, longer, &stack, 1))
			longer = NULL;
	}
	if (longer && stacks)
		gm_bulk_replace(job->root, "stacks", longer);
	return longer ? 0 : -ENOMEM;
}

static int rewrite(struct job *job)
{
	json_t **lists = calloc(job->frame_count + 1, sizeof(*lists));
	int r = -ENOMEM;

	if (lists && (job->frames || !job->frame_count)) {
		for (size_t i = 1; i < job->frame_count; i++)
			lists[i] = expand(job, i);
		r = job->inlined ? rewrite_stacks(job, lists) : 0;
	}
	for (size_t i = 1; lists && i < job->frame_count; i++)
		json_decref(lists[i]);
	free(lists);
	return r;
}

static void job_free(struct job *job)
{
	for (size_t i = 0; i < job->level_count; i++) {
		json_decref(job->levels[i].name);
		json_decref(job->levels[i].file);
	}
	free(job->levels);
	free(job->wanted);
	free(job->modules);
	free(job->answers);
}

static int symbolize(json_t *root, const struct gm_debug_places *places, bool inlines,
		     struct gm_values *values)
{
	struct job job = { .root = root, .values = values, .frames = gm_bulk_json(root, "frames"),
			   .module_list = gm_json_list(root, "modules") };
	struct gm_sym_request request = { .places = places, .inlines = inlines,
					  .level = take_level, .done = module_done, .arg = &job };
	int r;

	job.frame_count = json_array_size(job.frames);
	r = job.frame_count < UINT32_MAX ? collect(&job) : -EFBIG;
	request.modules = job.modules;
	request.module_count = job.module_count;
	if (!r && job.module_count)
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
	job_free(&job);
	return r;
}

static int write_out(const json_t *root, const char *path)
{
	struct gm_output output;
	int r = gm_output_open(&output, path), end;

	if (r)
		return r;
	r = gm_bulk_write(root, output.file);
	end = gm_output_close(&output, !r);
	return r ? r : end;
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
	if (gm_load(argv[optind], &loaded))
		return gm_input_bad("symbolize", argv[optind], loaded.error);
	missing = gm_dwarf_missing();
	if (missing)
		fprintf(stderr, "gpumem symbolize: names only, no lines: %s\n", missing);
	places = (struct gm_debug_places){ dirs.list, dirs.count, sysroot };
	r = symbolize(loaded.root, &places, !no_inlines, loaded.values);
	if (r) {
		fprintf(stderr, "gpumem symbolize: %s\n", gm_limit_why(r));
		return GM_EXIT_FAILED;
	}
	r = write_out(loaded.root, output);
	if (r) {
		fprintf(stderr, "gpumem symbolize: %s: %s\n",
			gm_show_clean(output ? output : "standard output"), gm_limit_why(r));
		return GM_EXIT_FAILED;
	}
	return GM_EXIT_OK;
}
