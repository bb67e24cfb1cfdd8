/*
 * top_stacks.c - the stacks of a journal copy as a snapshot has them, so that call sites and frames are called as every
 * verb calls them: see top.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/read/copy.h"
#include "tools/read/snapshot.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/show/show.h"
#include "tools/top/top.h"

static json_t *text_of(const char *text)
{
	json_t *value = json_string(text);

	return value ? value : json_string(gm_show_clean(text));
}

/* Modules by their number, as docs/snapshot.md has them. */
static json_t *modules_of(const struct gm_copy *copy)
{
	json_t *list = json_array();

	for (uint32_t id = 0; id < gm_copy_items(copy, GM_REGION_MODULES); id++) {
		const struct gm_module *module = id ? gm_copy_module(copy, id) : NULL;
		char build[2 * sizeof(module->build_id) + 1] = "";

		for (size_t i = 0; module && i < module->build_id_bytes && i < sizeof(module->build_id); i++)
			snprintf(build + 2 * i, 3, "%02x", module->build_id[i]);
		json_array_append_new(list, json_pack("{so ss}", "path",
						      text_of(module ? gm_copy_string(copy, module->path, NULL) : ""),
						      "build_id", build));
	}
	return list;
}

/* The place of frame @id in @of, made if need be; 0: it is none, or out of memory. */
static uint32_t frame_of(struct gm_snapshot *of, struct gm_table *known, const struct gm_copy *copy, uint32_t id)
{
	const struct gm_frame *from = gm_copy_frame(copy, id);
	uint64_t at = gm_table_get(known, id, 0);
	struct gm_snapshot_frame *frame;

	if (at || !from)
		return (uint32_t)at;
	frame = gm_list_add(&of->frames, &of->frame_count, sizeof(*frame));
	if (!frame || gm_table_put(known, id, 0, of->frame_count - 1))
		return 0;
	*frame = (struct gm_snapshot_frame){
		.name = gm_copy_string(copy, from->name, NULL), .file = gm_copy_string(copy, from->filename, NULL),
		.line = from->line, .module = from->module, .offset = (int64_t)from->offset,
		.python = (from->flags & GM_FRAME_PYTHON) != 0,
	};
	return (uint32_t)(of->frame_count - 1);
}

/* Stack @i + 1 of @of is @process's stack @i. Texts are those of @copy. */
static int take_stacks(struct gm_snapshot *of, struct gm_top_process *process, const struct gm_copy *copy)
{
	struct gm_table known = { .count = 0 };
	size_t count = process->stack_count, ids = 0;
	bool whole;

	of->starts = calloc(count + 2, sizeof(*of->starts));
	of->rows = calloc(count + 1, sizeof(*of->rows));
	whole = of->starts && of->rows && gm_list_add(&of->frames, &of->frame_count, sizeof(*of->frames));
	if (whole)
		of->frames[0] = (struct gm_snapshot_frame){ .name = "", .file = "" };
	for (size_t s = 0; whole && s < count; s++) {
		struct gm_top_stack *stack = process->stacks[s];
		const struct gm_stack *from = gm_copy_stack(copy, stack->id);
		unsigned int frames = !from ? 0 : from->count < GM_TOP_FRAMES ? from->count : GM_TOP_FRAMES;

		stack->named = true;
		for (unsigned int i = 0; whole && i < frames; i++) {
			const struct gm_frame *frame = gm_copy_frame(copy, from->frames[i]);
			uint32_t *id = gm_list_add(&of->ids, &ids, sizeof(*id));

			whole = id != NULL;
			if (id)
				*id = frame_of(of, &known, copy, from->frames[i]);
			stack->named &= frame && frame->name;
		}
		of->rows[s] = (struct gm_row){ .action = "", .kind = "", .stack = (int64_t)s + 1 };
		of->starts[s + 2] = ids;
	}
	of->row_count = of->stack_count = count;
	of->stack_count++;
	gm_table_free(&known);
	return whole ? 0 : -ENOMEM;
}

int gm_top_stacks(struct gm_top_process *process, const struct gm_copy *copy)
{
	/* A name comes soon or never: asked for after 1, 2, 4 ... samples. */
	bool ask = !(process->samples & (process->samples - 1)), any = false;
	struct gm_snapshot of = { .root = NULL };
	int r;

	for (size_t i = 0; i < process->stack_count; i++)
		any |= !process->stacks[i]->site || (!process->stacks[i]->named && ask);
	if (!any)
		return 0;
	of.texts = gm_values_open();
	of.root = json_pack("{so s{so}}", "modules", modules_of(copy), "process", "directory",
			    text_of(copy->header->directory));
	r = of.texts && of.root ? take_stacks(&of, process, copy) : -ENOMEM;
	if (!r)
		r = gm_top_names(process, &of);
	gm_snapshot_free(&of);
	return r;
}
