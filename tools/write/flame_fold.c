/*
 * flame_fold.c - folded and inverted stacks for flame graphs: see flame.h. One thread.
 *
 * pathsOf in tools/viewer/src/model/flame.js makes the same stacks for the page of `gpumem view`.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/write/flame.h"

#define LONG 16u			/* a stack of fewer frames was not cut */
#define NOBODY UINT32_MAX

/* The stacks with a weight, as they are shown, outermost frame first. A stack is taken as cut by the limit on depth if
 * no recorded stack is longer, it has LONG frames or more, and no shorter stack has its outermost frame. */
struct paths {
	struct gm_flame *flame;
	const struct gm_stacks *from;
	uint32_t *ids;
	size_t *starts;			/* as in struct gm_snapshot; stacks without a weight have no frames */
	size_t longest;			/* frames of the longest stack, as recorded */
	struct gm_table roots;		/* the outermost frames of stacks that are not the longest */
	struct gm_table above;		/* two frames in a row -> 1 + (stack << 16 | place of the first frame in it) */
};

/* Return the frame that is shown for frame @id: itself, one of the two frames for folded code (behind all others), or
 * NOBODY, none. */
static uint32_t shown_as(const struct paths *p, uint32_t id, bool folded)
{
	enum gm_fold fold = folded ? gm_frame_fold(&p->from->frames[id]) : GM_FOLD_NOT;

	return fold == GM_FOLD_NOT ? id : fold == GM_FOLD_INTERPRETER ? NOBODY :
	       (uint32_t)p->from->frame_count + (fold == GM_FOLD_DISPATCHER);
}

/* Give @flame frames of its own: those of @from, with short names if @folded, and two for folded code. Return 0 or
 * -ENOMEM. */
static int make_frames(struct gm_flame *flame, const struct gm_stacks *from, bool folded)
{
	char text[1200];

	flame->own = *from;
	flame->own.frame_count = from->frame_count + 2;
	flame->own.frames = calloc(flame->own.frame_count, sizeof(*flame->own.frames));
	if (!flame->own.frames)
		return -ENOMEM;
	memcpy(flame->own.frames, from->frames, from->frame_count * sizeof(*from->frames));
	for (size_t i = 0; i < flame->own.frame_count; i++) {
		struct gm_frame *frame = &flame->own.frames[i];
		bool made = i >= from->frame_count;

		if (made) {
			*frame = (struct gm_frame){ .symbol = "", .file = "", .module = "" };
			snprintf(text, sizeof(text), "(%s)", gm_fold_name(i == from->frame_count ? GM_FOLD_ALLOCATOR :
									  GM_FOLD_DISPATCHER));
		} else if (folded && !frame->python) {
			gm_frame_shorten(frame->name, text, sizeof(text));
		}
		if (made || (folded && !frame->python && strcmp(text, frame->name)))
			frame->name = gm_values_string(from->texts, text, strlen(text));
		if (!frame->name)
			return -ENOMEM;
	}
	return 0;
}

/* Are all frames of the stack the interpreter's? Such a stack is shown unfolded, because nothing would be left. */
static bool is_of_interpreter(const struct paths *p, const uint32_t *ids, size_t count)
{
	while (count && gm_frame_fold(&p->from->frames[ids[count - 1]]) == GM_FOLD_INTERPRETER)
		count--;
	return !count;
}

static int make_paths(struct paths *p, bool folded)
{
	const struct gm_snapshot *snapshot = p->from->snapshot;
	size_t at = 0;

	p->starts = calloc(p->flame->count + 1, sizeof(*p->starts));
	p->ids = calloc((p->from->count ? snapshot->starts[p->from->count] : 0) + 1, sizeof(*p->ids));
	if (!p->starts || !p->ids)
		return -ENOMEM;
	for (size_t s = 0; s < p->flame->count; s++) {
		size_t count;
		const uint32_t *ids = gm_stack(p->from, (int64_t)s, &count);
		bool here = folded && !is_of_interpreter(p, ids, count);

		p->starts[s] = at;
		if (!p->flame->weights[s])
			continue;
		p->longest = count > p->longest ? count : p->longest;
		while (count--) {
			uint32_t as = shown_as(p, ids[count], here);
			bool again = at > p->starts[s] && p->ids[at - 1] == as && as >= p->from->frame_count;

			if (as != NOBODY && !again)
				p->ids[at++] = as;
		}
	}
	p->starts[p->flame->count] = at;
	return 0;
}

/* ---- stacks that were cut --------------------------------------------------------------------- */

/* Return frame @at of stack @s as it is shown; NOBODY: the stack has fewer frames. */
static uint32_t frame_of(const struct paths *p, size_t s, size_t at)
{
	return p->starts[s] + at < p->starts[s + 1] ? p->flame->alike[p->ids[p->starts[s] + at]] : NOBODY;
}

static bool is_longest(const struct paths *p, size_t s)
{
	size_t count;

	gm_stack(p->from, (int64_t)s, &count);
	return count == p->longest && count >= LONG;
}

static bool is_cut(const struct paths *p, size_t s)
{
	return is_longest(p, s) && !gm_table_get(&p->roots, frame_of(p, s, 0), 0);
}

/* Find for each two frames in a row the stack in which the fewest frames are above them. Return 0 or -ENOMEM. */
static int find_above(struct paths *p)
{
	int r = 0;

	for (size_t s = 1; !r && s < p->flame->count; s++)
		if (p->flame->weights[s] && !is_longest(p, s))
			r = gm_table_put(&p->roots, frame_of(p, s, 0), 0, 1);
	for (size_t s = 1; !r && s < p->flame->count; s++) {
		if (!p->flame->weights[s] || is_cut(p, s))
			continue;
		for (size_t k = 0; !r && frame_of(p, s, k + 1) != NOBODY; k++) {
			uint64_t known = gm_table_get(&p->above, frame_of(p, s, k), frame_of(p, s, k + 1));

			if (!known || k < ((known - 1) & UINT16_MAX))
				r = gm_table_put(&p->above, frame_of(p, s, k), frame_of(p, s, k + 1),
						 1 + ((uint64_t)s << 16 | (k < UINT16_MAX ? k : UINT16_MAX)));
		}
	}
	return r;
}

/* Return the @ret_count frames that a cut stack @s gets as its outermost ones; NULL: none, and a count of 0. */
static const uint32_t *above(const struct paths *p, size_t s, size_t *ret_count)
{
	uint64_t known = p->flame->weights[s] && is_cut(p, s) && frame_of(p, s, 1) != NOBODY ?
			 gm_table_get(&p->above, frame_of(p, s, 0), frame_of(p, s, 1)) : 0;

	*ret_count = known ? (known - 1) & UINT16_MAX : 0;
	return *ret_count ? p->ids + p->starts[(known - 1) >> 16] : NULL;
}

/* ---- the stacks that are shown ---------------------------------------------------------------- */

static void put(uint32_t *to, size_t count, size_t at, uint32_t id, bool invert)
{
	to[invert ? at : count - 1 - at] = id;
}

/* Write the stacks to flame->view. As in struct gm_snapshot, the graph's root is the last frame. Return 0 or
 * -ENOMEM. */
static int write_stacks(struct paths *p, bool folded, bool invert)
{
	struct gm_snapshot *view = &p->flame->view;
	size_t room = 1, at = 0, more, count;

	for (size_t s = 0; s < p->flame->count; s++) {
		if (folded)
			above(p, s, &more);
		room += p->starts[s + 1] - p->starts[s] + (folded ? more : 0);
	}
	view->starts = calloc(p->flame->count + 1, sizeof(*view->starts));
	view->ids = calloc(room, sizeof(*view->ids));
	if (!view->starts || !view->ids)
		return -ENOMEM;
	for (size_t s = 0; s < p->flame->count; s++) {
		const uint32_t *upper = folded ? above(p, s, &more) : NULL;

		more = upper ? more : 0;
		count = more + p->starts[s + 1] - p->starts[s];
		view->starts[s] = at;
		for (size_t i = 0; i < count; i++)
			put(view->ids + at, count, i, i < more ? upper[i] : p->ids[p->starts[s] + i - more], invert);
		at += count;
	}
	view->starts[p->flame->count] = at;
	view->stack_count = p->flame->count;
	return 0;
}

int gm_flame_fold(struct gm_flame *flame, const struct gm_stacks *stacks, bool folded, bool invert)
{
	struct paths p = { .flame = flame, .from = stacks };
	int r = make_frames(flame, stacks, folded);

	if (!r)
		r = make_paths(&p, folded);
	flame->stacks = &flame->own;
	if (!r)
		r = gm_flame_find_alike(flame, false);
	if (!r && folded)
		r = find_above(&p);
	if (!r)
		r = write_stacks(&p, folded, invert);
	flame->own.snapshot = &flame->view;
	flame->own.count = r ? 0 : flame->count;
	gm_table_free(&p.roots);
	gm_table_free(&p.above);
	free(p.starts);
	free(p.ids);
	return r;
}
