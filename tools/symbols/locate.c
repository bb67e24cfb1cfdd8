/*
 * locate.c - source lines of native frames: see symbols.h.
 */
#define _GNU_SOURCE
#include "tools/symbols/symbols.h"

#include <stdlib.h>
#include <string.h>

#include "tools/show/groups.h"
#include "tools/read/value.h"

#define SECONDS 5u			/* of a processor, for one child */

struct locating {
	struct gm_scene *scene;
	bool *seen;			/* by frame */
	struct gm_sym_frame *wants;
	size_t count;
};

/* ---- which frames ---------------------------------------------------------------------------- */

static void want_frame(struct locating *l, size_t id)
{
	const struct gm_snapshot *snapshot = l->scene->snapshot;
	const struct gm_frame *frame = &l->scene->stacks.frames[id];
	int64_t module = id < snapshot->frame_count ? snapshot->frames[id].module : 0;
	int64_t offset = id < snapshot->frame_count ? snapshot->frames[id].offset : 0;

	if (l->seen[id] || l->count == GM_LOCATE_MOST || frame->python || frame->line > 0 ||
	    module <= 0 || module > UINT32_MAX || offset <= 0)
		return;
	l->seen[id] = true;
	l->wants[l->count++] = (struct gm_sym_frame){ (uint32_t)id, (uint32_t)module, (uint64_t)offset,
						      frame->symbol };
}

/* A stack number that is none has a site that is in no list of frames. */
static void want_site(struct locating *l, int64_t stack)
{
	const struct gm_stacks *stacks = &l->scene->stacks;
	const struct gm_frame *site = gm_stack_site(stacks, stack);

	if (site >= stacks->frames && site < stacks->frames + stacks->frame_count)
		want_frame(l, (size_t)(site - stacks->frames));
}

static void want_stack(struct locating *l, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(&l->scene->stacks, stack, &count);

	for (size_t i = 0; i < count; i++)
		want_frame(l, ids[i]);
}

static void collect(struct locating *l)
{
	const json_t *failures = gm_json_list(l->scene->root, "failures"), *one;
	const struct gm_lives *lives = &l->scene->lives;
	bool *done = calloc(l->scene->stacks.count + 1, sizeof(*done));
	size_t i;

	json_array_foreach(failures, i, one)
		want_stack(l, gm_json_number(one, "stack"));
	for (i = 0; done && i < lives->count && l->count < GM_LOCATE_MOST; i++) {
		int64_t stack = lives->list[i].stack;

		if (stack <= 0 || (uint64_t)stack >= l->scene->stacks.count || done[stack])
			continue;
		done[stack] = true;
		want_site(l, stack);
	}
	free(done);
}

/* ---- their lines ------------------------------------------------------------------------------ */

/* Of a debug file, which may hold anything. NULL: none, or none that is text. */
static const char *text_of(struct gm_stacks *stacks, const char *said)
{
	size_t length = strlen(said);

	return length && gm_value_is_text((const unsigned char *)said, length) ?
	       gm_values_string(stacks->texts, said, length) : NULL;
}

/* The last of a frame's levels is the function itself; those before are inlined into it. */
static void take_level(void *arg, uint32_t id, const struct gm_level *level)
{
	struct gm_stacks *stacks = &((struct locating *)arg)->scene->stacks;
	struct gm_frame *frame;
	const char *text;

	if (level->inlined || id >= stacks->frame_count)
		return;
	frame = &stacks->frames[id];
	text = frame->symbol[0] ? NULL : text_of(stacks, level->name);
	frame->name = text ? text : frame->name;
	text = level->line ? text_of(stacks, level->file) : NULL;
	if (!text)
		return;
	frame->file = text;
	frame->line = level->line;
}

void gm_locate(struct gm_scene *scene)
{
	struct locating l = { .scene = scene };
	struct gm_debug_places places = { 0 };
	struct gm_sym_request request = { .places = &places, .modules = gm_json_list(scene->root, "modules"),
					  .inlines = true, .cpu_seconds = SECONDS, .level = take_level, .arg = &l };

	l.seen = calloc(scene->stacks.frame_count, sizeof(*l.seen));
	request.frames = l.wants = calloc(GM_LOCATE_MOST, sizeof(*l.wants));
	if (l.seen && l.wants)
		collect(&l);
	request.frame_count = l.count;
	gm_symbolize(&request);
	free(l.seen);
	free(l.wants);
}
