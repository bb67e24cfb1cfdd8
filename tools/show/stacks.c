/*
 * stacks.c - the stacks and frames of a snapshot, ready to be shown: see stacks.h.
 */
#define _GNU_SOURCE
#include "tools/show/stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/symbols/symbols.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"

/* Demangle the name of @frame, once for each symbol: equal symbols are the same pointer. In a hostile file many short
 * symbols may become 16 KiB each, so a name that would grow that much stays as it is. */
static int demangle(struct gm_stacks *stacks, struct gm_table *known, struct gm_frame *frame)
{
	const char *name;
	uint64_t at;

	if (frame->symbol[0] != '_' || frame->python || frame->name != frame->symbol)
		return 0;
	at = gm_table_get(known, (uint64_t)(uintptr_t)frame->symbol, 0);
	if (at) {
		frame->name = (const char *)(uintptr_t)at;
		return 0;
	}
	name = gm_demangle(frame->symbol);
	if (name != frame->symbol && strlen(name) <= 1024 + 8 * strlen(frame->symbol)) {
		frame->name = gm_values_string(stacks->texts, name, strlen(name));
		if (!frame->name)
			return -ENOMEM;
	}
	return gm_table_put(known, (uint64_t)(uintptr_t)frame->symbol, 0, (uint64_t)(uintptr_t)frame->name);
}

static int read_frame(struct gm_stacks *stacks, const json_t *root, const struct gm_snapshot_frame *from,
		      struct gm_frame *frame, struct gm_table *known)
{
	char made[320];

	*frame = (struct gm_frame){
		.name = from->name, .symbol = from->symbol ? from->symbol : from->name,
		.file = from->file, .line = from->line,
		.module = basename(gm_show_module_path(root, from->module)), .python = from->python,
		.inlined = from->inlined,
	};
	if (!frame->file[0])
		frame->file = frame->module;
	if (!frame->name[0] && frame->module[0]) {
		snprintf(made, sizeof(made), "%.255s+%#llx", frame->module, (unsigned long long)from->offset);
		frame->name = gm_values_string(stacks->texts, gm_show_repair(made), strlen(made));
		if (!frame->name)
			return -ENOMEM;
	}
	if (!frame->name[0])
		frame->name = "??";
	return demangle(stacks, known, frame);
}

/* Is a frame a function of an installed header that was inlined into the program? */
static bool is_of_header(const struct gm_frame *frame)
{
	static const char *const places[] = { "/usr/include/", "/usr/local/include/", "/include/c++/",
					      "/targets/x86_64-linux/include/", "/targets/sbsa-linux/include/",
					      "/cuda/include/" };

	for (size_t i = 0; frame->inlined && i < sizeof(places) / sizeof(places[0]); i++)
		if (strstr(frame->file, places[i]))
			return true;
	return false;
}

static enum gm_frame_sort sort_of(const struct gm_frame *frame)
{
	const char *name;
	int length;

	if (frame->python)
		return gm_frame_is_runner(frame->file) ? GM_FRAME_PLUMBING : gm_frame_is_installed(frame->file) ?
		       GM_FRAME_PYTHON_OTHER : GM_FRAME_PYTHON_OWN;
	if (gm_frame_is_plumbing(frame->name, frame->module) || is_of_header(frame))
		return GM_FRAME_PLUMBING;
	return gm_frame_is_backward(frame->name, &name, &length) ? GM_FRAME_BACKWARD : GM_FRAME_NATIVE;
}

/* Frame 0 always exists, and stands for everything unknown. */
static int read_frames(struct gm_stacks *stacks, const struct gm_snapshot *snapshot)
{
	static const struct gm_snapshot_frame nobody = { .name = "", .file = "" };
	struct gm_table known = { NULL, 0, 0 };
	int r;

	stacks->frame_count = snapshot->frame_count ? snapshot->frame_count : 1;
	stacks->frames = calloc(stacks->frame_count, sizeof(*stacks->frames));
	r = stacks->frames ? 0 : -ENOMEM;
	for (size_t i = 0; !r && i < stacks->frame_count; i++)
		r = read_frame(stacks, snapshot->root,
			       i < snapshot->frame_count ? &snapshot->frames[i] : &nobody,
			       &stacks->frames[i], &known);
	for (size_t i = 0; !r && i < stacks->frame_count; i++)
		stacks->frames[i].sort = (uint8_t)sort_of(&stacks->frames[i]);
	gm_table_free(&known);
	return r;
}

int gm_stacks_open(struct gm_stacks *stacks, const struct gm_snapshot *snapshot)
{
	*stacks = (struct gm_stacks){ .snapshot = snapshot, .count = snapshot->stack_count };
	stacks->texts = gm_values_open();
	if (stacks->texts && !read_frames(stacks, snapshot))
		return 0;
	gm_stacks_close(stacks);
	return -ENOMEM;
}

void gm_stacks_close(struct gm_stacks *stacks)
{
	free(stacks->frames);
	free(stacks->used);
	gm_values_close(stacks->texts);
	*stacks = (struct gm_stacks){ .count = 0 };
}

const uint32_t *gm_stack(const struct gm_stacks *stacks, int64_t id, size_t *ret_count)
{
	*ret_count = 0;
	if (id < 0 || (uint64_t)id >= stacks->count)
		return NULL;
	*ret_count = stacks->snapshot->starts[id + 1] - stacks->snapshot->starts[id];
	return stacks->snapshot->ids + stacks->snapshot->starts[id];
}

/* ---- who asked ------------------------------------------------------------------------------- */

static enum gm_frame_sort best_of(const struct gm_stacks *stacks, const uint32_t *ids, size_t count)
{
	enum gm_frame_sort best = GM_FRAME_PLUMBING;

	for (size_t i = 0; i < count && best != GM_FRAME_PYTHON_OWN; i++) {
		enum gm_frame_sort sort = (enum gm_frame_sort)stacks->frames[ids[i]].sort;

		best = sort > best ? sort : best;
	}
	return best;
}

/* Return the next frame of @sort from place *@at on, and set *@at behind the frame; NULL: there is none. */
static const struct gm_frame *next_of(const struct gm_stacks *stacks, const uint32_t *ids, size_t count,
				      enum gm_frame_sort sort, size_t *at)
{
	while (*at < count) {
		const struct gm_frame *frame = &stacks->frames[ids[(*at)++]];

		if (frame->sort == sort)
			return frame;
	}
	return NULL;
}

static bool is_same(const struct gm_frame *a, const struct gm_frame *b, bool exact)
{
	return a == b || (!exact && !strcmp(a->name, b->name) &&
			  !strcmp(a->python ? a->file : a->module, b->python ? b->file : b->module));
}

/* Return the best sort in all stacks that allocated memory of the kinds @of. */
static enum gm_frame_sort best_used(const struct gm_stacks *stacks, unsigned int of)
{
	enum gm_frame_sort best = GM_FRAME_PLUMBING;

	for (size_t s = 1; s < stacks->count && best != GM_FRAME_PYTHON_OWN; s++) {
		size_t count;
		const uint32_t *ids = gm_stack(stacks, (int64_t)s, &count);
		enum gm_frame_sort here = stacks->used[s] & of ? best_of(stacks, ids, count) : GM_FRAME_PLUMBING;

		best = here > best ? here : best;
	}
	return best;
}

/* Count the first frames of @sort that all stacks of the kinds @of share, among stacks whose best sort is @sort.
 * @exact: only one and the same frame is shared, else frames of one function are, too. *@ret_first: one of these
 * stacks. */
static size_t shared_by(const struct gm_stacks *stacks, unsigned int of, enum gm_frame_sort sort, bool exact,
			int64_t *ret_first)
{
	const uint32_t *first = NULL;
	size_t length = 0, shared = SIZE_MAX;

	for (size_t s = 1; s < stacks->count && shared; s++) {
		size_t count, i = 0, k = 0, same = 0;
		const uint32_t *ids = gm_stack(stacks, (int64_t)s, &count);
		const struct gm_frame *a, *b;

		if (!(stacks->used[s] & of) || best_of(stacks, ids, count) != sort)
			continue;
		if (!first) {
			first = ids;
			length = count;
			*ret_first = (int64_t)s;
		}
		do {
			a = next_of(stacks, first, length, sort, &i);
			b = next_of(stacks, ids, count, sort, &k);
		} while (a && b && is_same(a, b, exact) && ++same < shared);
		shared = same < shared ? same : shared;
	}
	return shared == SIZE_MAX ? 0 : shared;
}

/* Has each of these stacks a frame of @sort behind the @shared ones? */
static bool is_longer(const struct gm_stacks *stacks, unsigned int of, enum gm_frame_sort sort, size_t shared)
{
	for (size_t s = 1; s < stacks->count; s++) {
		size_t count, at = 0, n = 0;
		const uint32_t *ids = gm_stack(stacks, (int64_t)s, &count);
		bool meant = (stacks->used[s] & of) && best_of(stacks, ids, count) == sort;

		while (meant && n <= shared && next_of(stacks, ids, count, sort, &at))
			n++;
		if (meant && n <= shared)
			return false;
	}
	return true;
}

static struct gm_shared share(const struct gm_stacks *stacks, unsigned int of)
{
	struct gm_shared ret = { .sort = best_used(stacks, of) };

	if (ret.sort == GM_FRAME_PLUMBING)
		return ret;
	ret.count = shared_by(stacks, of, ret.sort, false, &ret.by);
	/* Some stack is all shared functions: the stacks differ in the places of calls, or not at all. */
	if (ret.count && !is_longer(stacks, of, ret.sort, ret.count))
		ret.count = shared_by(stacks, of, ret.sort, true, &ret.by);
	if (ret.count && !is_longer(stacks, of, ret.sort, ret.count))
		ret.count = 0;
	return ret;
}

/* The kinds of memory, in the order of gm_stacks.shared. */
static const uint8_t whose[] = { GM_STACK_OF_DEVICE, GM_STACK_OF_HOST, GM_STACK_OF_DEVICE | GM_STACK_OF_HOST };

void gm_stacks_share(struct gm_stacks *stacks, uint8_t *used)
{
	free(stacks->used);
	stacks->used = used;
	for (size_t i = 0; i < sizeof(whose) / sizeof(whose[0]); i++)
		stacks->shared[i] = share(stacks, whose[i]);
}

/* Return the stack's first frame of @sort behind the *@ret_passed frames of @shared that it begins with; its last
 * frame of @sort if none is behind them. */
static const struct gm_frame *behind(const struct gm_stacks *stacks, const struct gm_shared *shared,
				     const uint32_t *ids, size_t count, enum gm_frame_sort sort, size_t *ret_passed)
{
	size_t left = shared->sort == sort ? shared->count : 0, length, at = 0, in = 0;
	const uint32_t *first = gm_stack(stacks, shared->by, &length);
	const struct gm_frame *found = NULL, *frame, *other;

	*ret_passed = 0;
	while ((frame = next_of(stacks, ids, count, sort, &at))) {
		found = frame;
		other = left ? next_of(stacks, first, length, sort, &in) : NULL;
		if (!other || !is_same(frame, other, false))
			break;
		left--;
		++*ret_passed;
	}
	return found;
}

const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id)
{
	static const struct gm_frame none = { .name = GM_NO_STACK, .file = "", .module = "" };
	size_t count, passed, most = 0;
	const uint32_t *ids = gm_stack(stacks, id, &count);
	enum gm_frame_sort sort = best_of(stacks, ids, count);
	const struct gm_frame *found = NULL;
	uint8_t of;

	if (!count)
		return &none;
	if (sort == GM_FRAME_PLUMBING)
		return &stacks->frames[ids[0]];
	of = stacks->used ? stacks->used[id] : 0;
	for (size_t i = 0; i < sizeof(whose) / sizeof(whose[0]); i++) {
		const struct gm_frame *frame;

		if (of && !(of & whose[i]))
			continue;
		frame = behind(stacks, &stacks->shared[i], ids, count, sort, &passed);
		if (!found || passed > most) {
			found = frame;
			most = passed;
		}
	}
	return found;
}

const char *gm_stack_file(const struct gm_stacks *stacks, const char *file)
{
	const char *directory = gm_json_text(gm_json_object(stacks->snapshot->root, "process"), "directory");
	size_t length = strlen(directory);

	return length > 1 && !strncmp(file, directory, length) && file[length] == '/' && file[length + 1] ?
	       file + length + 1 : file;
}

const char *gm_frame_text(const struct gm_stacks *stacks, const struct gm_frame *frame, char *to, size_t room)
{
	const char *name;
	int length;

	if (frame->sort == GM_FRAME_BACKWARD && gm_frame_is_backward(frame->name, &name, &length))
		snprintf(to, room, "%.*s (%.200s)", length, name, frame->module[0] ? frame->module : "backward");
	else if (frame->python || frame->line > 0)
		snprintf(to, room, "%.300s (%.300s:%lld)", frame->name,
			 frame->python ? gm_stack_file(stacks, frame->file) : basename(frame->file),
			 (long long)frame->line);
	else
		snprintf(to, room, "%.400s%s%.200s%s", frame->name, frame->module[0] ? " (" : "",
			 frame->module, frame->module[0] ? ")" : "");
	return gm_show_repair(to);
}

const char *gm_site_text(const struct gm_stacks *stacks, int64_t id, char *to, size_t room)
{
	return gm_frame_text(stacks, gm_stack_site(stacks, id), to, room);
}
