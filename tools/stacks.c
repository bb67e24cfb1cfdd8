/*
 * stacks.c - the stacks and frames of a snapshot, ready to be shown: see stacks.h. One thread.
 */
#include "tools/stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bulk.h"
#include "tools/demangle.h"
#include "tools/show.h"
#include "tools/sites.h"
#include "tools/table.h"
#include "tools/value.h"

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* The name of a function as people read it, once for each symbol: the same text is the same pointer. In a
 * file of anybody's a short one may stand for 16 KiB, over and over: such stay as they are. */
static int demangle(struct gm_stacks *stacks, struct gm_table *known, struct gm_frame *frame)
{
	const struct gm_value *text;
	const char *name;
	uint64_t at;

	if (frame->symbol[0] != '_' || frame->python)
		return 0;
	at = gm_table_get(known, (uint64_t)(uintptr_t)frame->symbol, 0);
	if (at) {
		frame->name = (const char *)(uintptr_t)at;
		return 0;
	}
	name = gm_demangle(frame->symbol);
	if (name != frame->symbol && strlen(name) <= 1024 + 8 * strlen(frame->symbol)) {
		text = gm_value_text(stacks->texts, name, strlen(name));
		if (!text)
			return -ENOMEM;
		frame->name = text->u.text;
	}
	return gm_table_put(known, (uint64_t)(uintptr_t)frame->symbol, 0, (uint64_t)(uintptr_t)frame->name);
}

static int read_frame(struct gm_stacks *stacks, const json_t *root, const struct gm_value *from,
		      struct gm_frame *frame, struct gm_table *known)
{
	char made[320];
	const struct gm_value *text;

	frame->module = file_name(gm_show_module_path(root, gm_value_number(from, "module")));
	frame->symbol = frame->name = gm_value_string(from, "name");
	frame->file = gm_value_string(from, "filename");
	frame->line = gm_value_number(from, "line");
	frame->python = gm_value_get(from, "python") == gm_value_bool(true);
	if (!frame->file[0])
		frame->file = frame->module;
	if (!frame->name[0] && frame->module[0]) {
		snprintf(made, sizeof(made), "%.255s+%#llx", frame->module,
			 (unsigned long long)gm_value_number(from, "offset"));
		text = gm_value_text(stacks->texts, gm_show_repair(made), strlen(made));
		if (!text)
			return -ENOMEM;
		frame->name = text->u.text;
	}
	if (!frame->name[0])
		frame->name = "??";
	return demangle(stacks, known, frame);
}

static int read_frames(struct gm_stacks *stacks, const json_t *root)
{
	const struct gm_value *list = gm_bulk_list(root, "frames");
	struct gm_table known = { NULL, 0, 0 };
	int r;

	stacks->frame_count = gm_value_length(list) + !gm_value_length(list);
	stacks->frames = calloc(stacks->frame_count, sizeof(*stacks->frames));
	r = stacks->frames ? 0 : -ENOMEM;
	for (size_t i = 0; !r && i < stacks->frame_count; i++)
		r = read_frame(stacks, root, gm_value_at(list, i), &stacks->frames[i], &known);
	gm_table_free(&known);
	return r;
}

int gm_stacks_open(struct gm_stacks *stacks, const json_t *root)
{
	const struct gm_value *list = gm_bulk_list(root, "stacks");
	size_t all = 0;

	*stacks = (struct gm_stacks){ .count = gm_value_length(list) };
	stacks->texts = gm_values_open(SIZE_MAX);
	if (!stacks->texts || read_frames(stacks, root))
		goto out_close;
	for (size_t i = 0; i < stacks->count; i++)
		all += gm_value_length(gm_value_as_row(gm_value_at(list, i)));
	stacks->starts = calloc(stacks->count + 1, sizeof(*stacks->starts));
	stacks->ids = calloc(all + 1, sizeof(*stacks->ids));
	if (!stacks->starts || !stacks->ids)
		goto out_close;
	all = 0;
	for (size_t i = 0; i < stacks->count; i++) {
		const struct gm_value *stack = gm_value_as_row(gm_value_at(list, i));

		for (size_t k = 0; k < gm_value_length(stack); k++) {
			int64_t id = gm_value_int_at(stack, k);

			stacks->ids[all++] = id > 0 && (uint64_t)id < stacks->frame_count ? (uint32_t)id : 0;
		}
		stacks->starts[i + 1] = all;
	}
	return 0;

out_close:
	gm_stacks_close(stacks);
	return -ENOMEM;
}

void gm_stacks_close(struct gm_stacks *stacks)
{
	free(stacks->frames);
	free(stacks->ids);
	free(stacks->starts);
	gm_values_close(stacks->texts);
	*stacks = (struct gm_stacks){ .count = 0 };
}

const uint32_t *gm_stack(const struct gm_stacks *stacks, int64_t id, size_t *ret_count)
{
	*ret_count = 0;
	if (id < 0 || (uint64_t)id >= stacks->count)
		return NULL;
	*ret_count = stacks->starts[id + 1] - stacks->starts[id];
	return stacks->ids + stacks->starts[id];
}

const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id)
{
	static const struct gm_frame none = { .name = GM_NO_STACK, .file = "", .module = "" };
	const struct gm_frame *python = NULL, *native = NULL;
	size_t count;
	const uint32_t *ids = gm_stack(stacks, id, &count);

	for (size_t i = 0; i < count; i++) {
		const struct gm_frame *frame = &stacks->frames[ids[i]];

		if (frame->python && !gm_stack_installed(frame->file))
			return frame;
		if (frame->python && !python)
			python = frame;
		if (!frame->python && !native && !gm_stack_plumbing(frame->name, frame->module))
			native = frame;
	}
	return python ? python : native ? native : count ? &stacks->frames[ids[0]] : &none;
}

const char *gm_site_text(const struct gm_stacks *stacks, int64_t id, char *to, size_t room)
{
	const struct gm_frame *site = gm_stack_site(stacks, id);

	if (site->python)
		snprintf(to, room, "%.300s (%.300s:%lld)", site->name, site->file,
			 (long long)site->line);
	else
		snprintf(to, room, "%.400s%s%.200s%s", site->name, site->module[0] ? " (" : "",
			 site->module, site->module[0] ? ")" : "");
	return gm_show_repair(to);
}
