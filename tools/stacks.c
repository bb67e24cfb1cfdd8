/*
 * stacks.c - the stacks and frames of a snapshot, ready to be shown: see stacks.h. One thread.
 */
#include "tools/stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/load.h"
#include "tools/show.h"
#include "tools/value.h"

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static int read_frame(struct gm_stacks *stacks, const json_t *root, const json_t *json,
		      struct gm_frame *frame)
{
	char made[320];
	const struct gm_value *text;

	frame->module = file_name(gm_show_module_path(root, gm_json_number(json, "module")));
	frame->name = gm_json_text(json, "name");
	frame->file = gm_json_text(json, "filename");
	frame->line = gm_json_number(json, "line");
	frame->python = json_is_true(json_object_get(json, "python"));
	if (!frame->file[0])
		frame->file = frame->module;
	if (!frame->name[0] && frame->module[0]) {
		snprintf(made, sizeof(made), "%.255s+%#llx", frame->module,
			 (unsigned long long)gm_json_number(json, "offset"));
		text = gm_value_text(stacks->texts, made, strlen(made));
		if (!text)
			return -ENOMEM;
		frame->name = text->u.text;
	}
	if (!frame->name[0])
		frame->name = "??";
	return 0;
}

static int read_frames(struct gm_stacks *stacks, const json_t *root)
{
	const json_t *list = gm_json_list(root, "frames");

	stacks->frame_count = json_array_size(list) + !json_array_size(list);
	stacks->frames = calloc(stacks->frame_count, sizeof(*stacks->frames));
	for (size_t i = 0; stacks->frames && i < stacks->frame_count; i++)
		if (read_frame(stacks, root, json_array_get(list, i), &stacks->frames[i]))
			return -ENOMEM;
	return stacks->frames ? 0 : -ENOMEM;
}

int gm_stacks_open(struct gm_stacks *stacks, const json_t *root)
{
	const json_t *list = gm_json_list(root, "stacks");
	size_t all = 0;

	*stacks = (struct gm_stacks){ .count = json_array_size(list) };
	stacks->texts = gm_values_open(SIZE_MAX);
	if (!stacks->texts || read_frames(stacks, root))
		goto out_close;
	for (size_t i = 0; i < stacks->count; i++)
		all += json_array_size(json_array_get(list, i));
	stacks->starts = calloc(stacks->count + 1, sizeof(*stacks->starts));
	stacks->ids = calloc(all + 1, sizeof(*stacks->ids));
	if (!stacks->starts || !stacks->ids)
		goto out_close;
	all = 0;
	for (size_t i = 0; i < stacks->count; i++) {
		const json_t *stack = json_array_get(list, i);

		for (size_t k = 0; k < json_array_size(stack); k++) {
			json_int_t id = json_integer_value(json_array_get(stack, k));

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

/* Of the CUDA runtime or driver (linked in or not), or of ours: not who asked. */
static bool is_plumbing(const struct gm_frame *frame)
{
	const char *name = frame->name;

	return !strncmp(frame->module, "libcudart", 9) || !strncmp(frame->module, "libcuda.", 8) ||
	       !strncmp(frame->module, "libgpumem", 9) ||
	       (!strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z');
}

const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id)
{
	static const struct gm_frame none = { .name = "(no stack)", .file = "", .module = "" };
	size_t count;
	const uint32_t *ids = gm_stack(stacks, id, &count);

	for (size_t i = 0; i < count; i++)
		if (!is_plumbing(&stacks->frames[ids[i]]))
			return &stacks->frames[ids[i]];
	return count ? &stacks->frames[ids[0]] : &none;
}
