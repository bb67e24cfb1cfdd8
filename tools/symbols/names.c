/*
 * names.c - put names, lines and inlined functions into a snapshot: see symbols.h. One thread.
 *
 * A worker process (symbolize_worker.c) finds them. This file collects the frames to ask for and puts the answers into
 * the snapshot.
 */
#define _GNU_SOURCE
#include "tools/symbols/symbols.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/snapshot.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/show/show.h"

#define SHOWN_MOST ((size_t)1 << 16)	/* frames that a verb asks for; gpumem symbolize asks for all */
#define SHOWN_SECONDS 5u		/* of a processor, for one child */

/* The worker's answer for one frame: levels[first .. first + count). @closed: it is complete. After expand(), the
 * frames that were added for it. */
struct answer { uint32_t first, count; bool closed; };
struct level { const char *name, *file; uint32_t line; };

struct job {
	struct gm_snapshot *snapshot;
	struct gm_names *names;
	const json_t *module_list;
	size_t frame_count;		/* before inlined ones are added */
	struct gm_sym_frame *wanted;
	size_t wanted_count;
	struct answer *answers;		/* by frame */
	struct level *levels;
	size_t level_count;
};

/* Is it a native frame of a known module that has no line yet? */
static bool is_wanted(const struct gm_snapshot_frame *frame, size_t module_count)
{
	return !frame->python && !frame->inlined && frame->module > 0 &&
	       (uint64_t)frame->module < module_count && frame->offset > 0 && !frame->line;
}

/* ---- answers that are kept -------------------------------------------------------------------- */

/*
 * A worker's answers by build id and offset, kept as long as the process lives: the ranks of a job, and the two
 * snapshots of a diff, run the same builds. Only for gm_names_show.
 */

#define KNOWN_MOST ((size_t)1 << 18)

static struct {
	struct gm_values *texts;
	struct gm_table found;		/* (build id, offset) -> index of an entry + 1 */
	struct { uint32_t first, count; } *entries;
	struct level *levels;
	size_t entry_count, level_count;
} known;

/* Return the one copy of the build id of frame @i's module; NULL: none, or out of memory. */
static const char *build_of(const struct job *job, size_t i)
{
	size_t module = (size_t)job->snapshot->frames[i].module;
	const char *build = gm_json_text(json_array_get(job->module_list, module), "build_id");

	known.texts = known.texts ? known.texts : gm_values_open();
	return build[0] && known.texts ? gm_values_string(known.texts, build, strlen(build)) : NULL;
}

static const char *own_text(struct gm_values *texts, const char *text)
{
	return text[0] ? gm_values_string(texts, text, strlen(text)) : "";
}

/* Answer frame @i from the kept answers. Return false if it must be asked for. */
static bool recall(struct job *job, size_t i)
{
	const char *build = job->names->shown ? build_of(job, i) : NULL;
	uint64_t at = build ? gm_table_get(&known.found, (uint64_t)(uintptr_t)build,
					   (uint64_t)job->snapshot->frames[i].offset) : 0;
	struct answer *answer = &job->answers[i];
	struct level *level;

	if (!at)
		return false;
	answer->first = (uint32_t)job->level_count;
	for (uint32_t n = 0; n < known.entries[at - 1].count; n++) {
		const struct level *from = &known.levels[known.entries[at - 1].first + n];

		level = gm_list_add(&job->levels, &job->level_count, sizeof(*level));
		if (!level)
			return false;
		*level = (struct level){ own_text(job->snapshot->texts, from->name),
					 own_text(job->snapshot->texts, from->file), from->line };
		if (!level->name || !level->file)
			return false;
		answer->count++;
	}
	answer->closed = answer->count != 0;
	return true;
}

/* Keep the answer for frame @i. Without memory it is not kept, which does no harm. */
static void remember(struct job *job, size_t i)
{
	const struct answer *answer = &job->answers[i];
	const char *build = build_of(job, i);
	size_t first = known.level_count, entry = known.entry_count;
	uint32_t count = answer->closed ? answer->count : 0;

	if (!build || known.entry_count + known.level_count >= KNOWN_MOST)
		return;
	for (uint32_t n = 0; n < count; n++) {
		const struct level *from = &job->levels[answer->first + n];
		struct level *level = gm_list_add(&known.levels, &known.level_count, sizeof(*level));

		if (!level)
			return;
		*level = (struct level){ own_text(known.texts, from->name), own_text(known.texts, from->file),
					 from->line };
		if (!level->name || !level->file)
			return;
	}
	if (!gm_list_add(&known.entries, &known.entry_count, sizeof(*known.entries)))
		return;
	known.entries[entry].first = (uint32_t)first;
	known.entries[entry].count = count;
	gm_table_put(&known.found, (uint64_t)(uintptr_t)build, (uint64_t)job->snapshot->frames[i].offset,
		     known.entry_count);
}

/* Ask for frame @i, unless its answer is known. */
static void want(struct job *job, size_t i)
{
	const struct gm_snapshot_frame *frame = &job->snapshot->frames[i];

	if (!recall(job, i))
		job->wanted[job->wanted_count++] = (struct gm_sym_frame){
			(uint32_t)i, (uint32_t)frame->module, (uint64_t)frame->offset, frame->name
		};
}

/* ---- frames that verbs show ------------------------------------------------------------------- */

/* Frames and stacks that were visited. */
struct met { bool *frames, *stacks; };

static void want_stack(struct job *job, struct met *met, int64_t id)
{
	const struct gm_snapshot *of = job->snapshot;
	size_t module_count = json_array_size(job->module_list);

	if (id <= 0 || (uint64_t)id >= of->stack_count || met->stacks[id])
		return;
	met->stacks[id] = true;
	for (size_t i = of->starts[id]; i < of->starts[id + 1] && job->wanted_count < SHOWN_MOST; i++) {
		uint32_t frame = of->ids[i];

		if (!frame || frame >= job->frame_count || met->frames[frame])
			continue;
		met->frames[frame] = true;
		if (is_wanted(&of->frames[frame], module_count))
			want(job, frame);
	}
}

static void want_blocks(struct job *job, struct met *met, const struct gm_snapshot_segment *segments, size_t count)
{
	for (size_t s = 0; s < count; s++)
		for (size_t b = 0; b < segments[s].block_count; b++)
			want_stack(job, met, segments[s].blocks[b].stack);
}

static void want_rows(struct job *job, struct met *met, const struct gm_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		want_stack(job, met, rows[i].stack);
}

/* Want the stacks that held the peak of @of: a device, the host or a pool. */
static void want_peak(struct job *job, struct met *met, const json_t *of)
{
	const json_t *row;
	size_t i;

	json_array_foreach(gm_json_list(json_object_get(of, "at_peak"), "sites"), i, row)
		want_stack(job, met, gm_json_number(row, "stack"));
}

/* Want all stacks, the most important first, because there may be too many: why the program ended, failures, live
 * blocks, who held the peaks, the history. */
static void want_shown(struct job *job, struct met *met)
{
	const struct gm_snapshot *of = job->snapshot;
	const json_t *failures = gm_json_list(of->root, "failures"), *one;
	size_t i;

	want_stack(job, met, gm_json_number(gm_json_object(of->root, "failure"), "stack"));
	json_array_foreach(failures, i, one)
		want_stack(job, met, gm_json_number(one, "stack"));
	want_blocks(job, met, of->segments, of->segment_count);
	for (i = 0; i < of->pool_count; i++)
		want_blocks(job, met, of->pools[i].segments, of->pools[i].segment_count);
	json_array_foreach(gm_json_list(of->root, "devices"), i, one)
		want_peak(job, met, one);
	want_peak(job, met, gm_json_object(of->root, "host"));
	for (i = 0; i < of->pool_count; i++)
		want_peak(job, met, of->pools[i].root);
	want_rows(job, met, of->rows, of->row_count);
	for (i = 0; i < of->pool_count; i++)
		want_rows(job, met, of->pools[i].rows, of->pools[i].row_count);
}

static int collect(struct job *job)
{
	size_t module_count = json_array_size(job->module_list);
	struct met met = { calloc(job->frame_count + 1, 1), calloc(job->snapshot->stack_count + 1, 1) };
	bool whole = met.frames && met.stacks;

	job->wanted = calloc(job->frame_count + 1, sizeof(*job->wanted));
	job->answers = calloc(job->frame_count + 1, sizeof(*job->answers));
	whole &= job->wanted && job->answers;
	if (whole && job->names->shown)
		want_shown(job, &met);
	for (size_t i = 1; whole && !job->names->shown && i < job->frame_count; i++)
		if (is_wanted(&job->snapshot->frames[i], module_count))
			want(job, i);
	free(met.frames);
	free(met.stacks);
	return whole ? 0 : -ENOMEM;
}

/* ---- the answers ------------------------------------------------------------------------------ */

/* Return a text of any content as UTF-8, owned by the snapshot. NULL: out of memory. */
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
	/* The first answer stays: it came with DWARF, before the worker died. */
	if (answer->closed || job->level_count == UINT32_MAX)
		return;
	if (answer->count && answer->first + answer->count != job->level_count)
		answer->count = 0;		/* the worker died within this frame's answer: start again */
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

static void module_done(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why)
{
	const struct gm_names *names = ((struct job *)arg)->names;

	if (names->done)
		names->done(names->arg, module, number, count, why);
}

static void put(struct gm_snapshot_frame *frame, const struct level *level)
{
	if (level->name[0] && level->name != frame->name) {
		frame->symbol = frame->symbol || !frame->name[0] ? frame->symbol : frame->name;
		frame->name = level->name;
	}
	if (level->file[0] || level->line) {
		frame->file = level->file;
		frame->line = level->line;
	}
}

/* Put the answer into frame @i, and add a frame for each function inlined into it, behind all others. Then
 * answer->first and answer->count are the first of these frames and their number. Return 0 or -ENOMEM. */
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
		inner->symbol = NULL;
		inner->inlined = true;
		job->names->inlined++;
	}
	put(&to->frames[i], &levels[count - 1]);
	job->names->named += levels[count - 1].name[0] != '\0';
	job->names->lined += levels[count - 1].line != 0;
	return 0;
}

/* Put the inlined functions of each frame into all stacks, before that frame. Return 0 or -ENOMEM. */
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
	return !r && job->names->inlined ? rewrite_stacks(job) : r;
}

int gm_names_find(struct gm_snapshot *snapshot, struct gm_names *names)
{
	struct job job = { .snapshot = snapshot, .names = names, .frame_count = snapshot->frame_count,
			   .module_list = gm_json_list(snapshot->root, "modules") };
	struct gm_sym_request request = { .places = names->places, .modules = job.module_list,
					  .inlines = !names->no_inlines, .keep_names = names->shown,
					  .cpu_seconds = names->shown ? SHOWN_SECONDS : 0,
					  .level = take_level, .done = module_done, .arg = &job };
	int r;

	r = job.frame_count < UINT32_MAX ? collect(&job) : -EFBIG;
	request.frames = job.wanted;
	request.frame_count = names->wanted = job.wanted_count;
	if (!r && job.wanted_count)
		r = gm_symbolize(&request);
	for (size_t i = 0; !r && names->shown && i < job.wanted_count; i++)
		remember(&job, job.wanted[i].frame);
	if (!r && job.level_count)
		r = rewrite(&job);
	free(job.levels);
	free(job.wanted);
	free(job.answers);
	return r;
}

/* ---- for all verbs ---------------------------------------------------------------------------- */

static bool off, said;

void gm_names_off(void)
{
	off = true;
}

void gm_names_hush(void)
{
	said = true;
}

/* Is it a program of the user's? For libraries and interpreters users seldom have debug information. */
static bool is_program(const struct gm_sym_module *module)
{
	const char *name = basename(module->path);

	return name[0] && !strstr(name, ".so") && strncmp(name, "python", 6);
}

/* Print once why lines are missing, if the user can change the reason. */
static void say_why(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why)
{
	const char *verb = arg;

	(void)number, (void)count;
	if (said || !why[0])
		return;
	if (!strncmp(why, GM_NO_LIBDW, strlen(GM_NO_LIBDW))) {
		fprintf(stderr, "gpumem %s: no source lines: %s\n", verb, gm_show_clean(why));
		said = true;
	} else if (!strcmp(why, GM_NO_DEBUG) && is_program(module)) {
		fprintf(stderr, "gpumem %s: no source lines of %s: it has no debug information (compile with -g, or "
			"install the -dbgsym or -debuginfo package that it is in)\n", verb,
			gm_show_clean(basename(module->path)));
		said = true;
	}
}

int gm_names_show(const char *verb, struct gm_snapshot *snapshot)
{
	const struct gm_debug_places places = { NULL, 0, NULL };
	struct gm_names names = { .places = &places, .shown = true, .done = say_why, .arg = (char *)(uintptr_t)verb };
	int r = off ? 0 : gm_names_find(snapshot, &names);

	return r == -ENOMEM ? r : 0;		/* other errors (no child, too many frames) only cost the lines */
}
