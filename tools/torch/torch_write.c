/*
 * torch_write.c - write a snapshot in PyTorch's form: see torch.h. One thread.
 *
 * In a pickle, equal stacks share one list of frames, because these lists are most of a snapshot's size.
 */
#define _GNU_SOURCE
#include "tools/torch/torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/show/stacks.h"

/* Keys of gm_writer_again. */
#define KEY_STACK UINT64_C(1)
#define KEY_FRAME (UINT64_C(1) << 40)

struct writing {
	struct gm_writer *writer;
	const struct gm_snapshot *snapshot;
	struct gm_stacks stacks;
};

/* ---- parts ------------------------------------------------------------------------------------ */

static void put_frame(struct writing *w, uint32_t id)
{
	const struct gm_frame *frame = &w->stacks.frames[id];

	if (gm_writer_again(w->writer, KEY_FRAME + id, false))
		return;
	gm_writer_begin(w->writer, GM_WRITER_DICT);
	gm_writer_put_string(w->writer, "name", frame->name);
	gm_writer_put_string(w->writer, "filename", frame->file);
	gm_writer_put_int(w->writer, "line", frame->line);
	gm_writer_end(w->writer);
}

static void put_frames(struct writing *w, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(&w->stacks, stack, &count);

	gm_writer_string(w->writer, "frames");
	if (gm_writer_again(w->writer, KEY_STACK + (count ? (uint64_t)stack : 0), true))
		return;
	gm_writer_begin(w->writer, GM_WRITER_LIST);
	for (size_t i = 0; i < count; i++)
		put_frame(w, ids[i]);
	gm_writer_end(w->writer);
}

static void put_word(struct writing *w, const char *name, uint64_t word)
{
	gm_writer_string(w->writer, name);
	gm_writer_word(w->writer, word);
}

static void put_block(struct writing *w, uint64_t address, uint64_t size, uint64_t requested,
		      const char *state, int64_t stack)
{
	gm_writer_begin(w->writer, GM_WRITER_DICT);
	put_word(w, "address", address);
	put_word(w, "size", size);
	put_word(w, "requested_size", requested);
	gm_writer_put_string(w->writer, "state", state);
	put_frames(w, stack);
	gm_writer_end(w->writer);
}

/* Write blocks that fill the segment at @at without gaps, as the viewer's sums demand: a gap becomes an inactive block,
 * and a block that overlaps an earlier one or the segment's end is left out. */
static void put_blocks(struct writing *w, const struct gm_snapshot_segment *segment, uint64_t at)
{
	uint64_t shift = at - segment->address, end = at + (uint64_t)segment->total_size;

	gm_writer_put_begin(w->writer, "blocks", GM_WRITER_LIST);
	for (size_t i = 0; i < segment->block_count; i++) {
		const struct gm_snapshot_block *block = &segment->blocks[i];
		uint64_t address = block->address + shift, size = (uint64_t)block->size;
		uint64_t requested = (uint64_t)block->requested_size;
		bool known = !strcmp(block->state, "active_allocated") ||
			     !strcmp(block->state, "active_pending_free");

		if (address < at || address >= end || !size || size > end - address)
			continue;
		if (address > at)
			put_block(w, at, address - at, 0, "inactive", 0);
		put_block(w, address, size, requested < size ? requested : size,
			  known ? block->state : "inactive", block->stack);
		at = address + size;
	}
	if (at < end)
		put_block(w, at, end - at, 0, "inactive", 0);
	gm_writer_end(w->writer);
}

static void put_segment(struct writing *w, const struct gm_snapshot_segment *segment, uint64_t address)
{
	struct gm_writer *to = w->writer;

	gm_writer_begin(to, GM_WRITER_DICT);
	gm_writer_put_int(to, "device", segment->device);
	gm_writer_put_int(to, "address", (int64_t)address);
	gm_writer_put_int(to, "total_size", segment->total_size);
	gm_writer_put_int(to, "allocated_size", segment->allocated_size);
	gm_writer_put_int(to, "active_size", segment->active_size);
	gm_writer_put_int(to, "requested_size", segment->requested_size);
	gm_writer_put_int(to, "stream", segment->stream);
	gm_writer_put_string(to, "segment_type", strcmp(segment->type, "small") ? "large" : "small");
	gm_writer_put_begin(to, "segment_pool_id", GM_WRITER_TUPLE);
	gm_writer_int(to, segment->pool[0]);
	gm_writer_int(to, segment->pool[1]);
	gm_writer_end(to);
	gm_writer_put_bool(to, "is_expandable", segment->expandable);
	put_frames(w, segment->stack);
	put_blocks(w, segment, address);
	gm_writer_end(to);
}

/* Write the kind of memory and the module that asked, for which PyTorch has no members of their own. */
static void put_metadata(struct writing *w, const struct gm_row *row)
{
	const char *module = gm_show_module_path(w->snapshot->root, row->module);
	const char *slash = strrchr(module, '/'), *file = slash ? slash + 1 : module;
	char metadata[320];

	snprintf(metadata, sizeof(metadata), "%.40s%s%.255s", row->kind, module[0] ? " of " : "", file);
	gm_writer_put_string(w->writer, "user_metadata", gm_show_repair(metadata));
}

static void put_event(struct writing *w, const struct gm_row *row)
{
	gm_writer_begin(w->writer, GM_WRITER_DICT);
	gm_writer_put_string(w->writer, "action", row->action);
	gm_writer_put_int(w->writer, strcmp(row->action, "oom") ? "addr" : "device_free",
			  (int64_t)row->address);
	gm_writer_put_int(w->writer, "size", row->size);
	gm_writer_put_int(w->writer, "stream", row->stream);
	gm_writer_put_int(w->writer, "time_us", row->time_us);
	gm_writer_put_string(w->writer, "compile_context", "N/A");
	put_metadata(w, row);
	put_frames(w, row->stack);
	gm_writer_end(w->writer);
}

/* ---- the whole -------------------------------------------------------------------------------- */

struct place { const struct gm_snapshot_segment *segment; uint64_t address; };

static int by_place(const void *a, const void *b)
{
	const struct place *p = a, *q = b;
	int64_t device = p->segment->device, other = q->segment->device;

	return device != other ? (device > other) - (device < other) :
	       (p->address > q->address) - (p->address < q->address);
}

static int put_segments(struct writing *w, const struct gm_torch_fit *fit)
{
	struct place *places = calloc(w->snapshot->segment_count + 1, sizeof(*places));
	size_t i, count = 0;

	if (!places)
		return -ENOMEM;
	for (i = 0; i < w->snapshot->segment_count; i++)
		if (fit->keep_segment[i])
			places[count++] = (struct place){ &w->snapshot->segments[i],
							  fit->segment_address[i] };
	qsort(places, count, sizeof(*places), by_place);
	gm_writer_put_begin(w->writer, "segments", GM_WRITER_LIST);
	for (i = 0; i < count; i++)
		put_segment(w, places[i].segment, places[i].address);
	gm_writer_end(w->writer);
	free(places);
	return 0;
}

static void put_traces(struct writing *w, const struct gm_torch_fit *fit)
{
	gm_writer_put_begin(w->writer, "device_traces", GM_WRITER_LIST);
	for (size_t d = 0; d < fit->device_count; d++) {
		gm_writer_begin(w->writer, GM_WRITER_LIST);
		for (size_t i = 0; i < w->snapshot->row_count; i++)
			if (fit->keep[i] && w->snapshot->rows[i].device == (int)d)
				put_event(w, &w->snapshot->rows[i]);
		gm_writer_end(w->writer);
	}
	gm_writer_end(w->writer);
}

static void put_settings(struct writing *w)
{
	const json_t *settings = gm_json_object(w->snapshot->root, "allocator_settings"), *value;
	const char *name;

	gm_writer_put_begin(w->writer, "allocator_settings", GM_WRITER_DICT);
	json_object_foreach((json_t *)(uintptr_t)settings, name, value) {
		if (!strcmp(name, "gpumem"))		/* our own settings */
			continue;
		gm_writer_string(w->writer, name);
		gm_writer_put(w->writer, value);
	}
	gm_writer_end(w->writer);
}

static void put_annotations(struct writing *w)
{
	const json_t *one;
	size_t i;

	gm_writer_put_begin(w->writer, "external_annotations", GM_WRITER_LIST);
	json_array_foreach(gm_json_list(w->snapshot->root, "annotations"), i, one) {
		const char *stage = gm_json_text(one, "stage");

		gm_writer_begin(w->writer, GM_WRITER_DICT);
		gm_writer_put_string(w->writer, "stage", stage[0] ? stage : "START");
		gm_writer_put_string(w->writer, "name", gm_json_text(one, "name"));
		gm_writer_put_int(w->writer, "device", gm_json_number(one, "device"));
		gm_writer_put_int(w->writer, "time_us", gm_json_number(one, "time_us"));
		gm_writer_end(w->writer);
	}
	gm_writer_end(w->writer);
}

int gm_torch_write(struct gm_writer *writer, const struct gm_snapshot *snapshot,
		   const struct gm_torch_fit *fit)
{
	struct writing w = { .writer = writer, .snapshot = snapshot };
	int r = gm_stacks_open(&w.stacks, snapshot);

	if (r)
		return r;
	gm_writer_begin(writer, GM_WRITER_DICT);
	r = put_segments(&w, fit);
	put_traces(&w, fit);
	put_settings(&w);
	put_annotations(&w);
	gm_writer_end(writer);
	gm_stacks_close(&w.stacks);
	return r;
}

/* ---- a document of PyTorch's ------------------------------------------------------------------ */

/* Is @value the number of a pool? PyTorch has a tuple there, which is a list in JSON. */
static bool is_pair(const char *name, const struct gm_value *value)
{
	return (value->type == GM_VALUE_LIST || value->type == GM_VALUE_NUMBERS) && value->count == 2 &&
	       (!strcmp(name, "segment_pool_id") || !strcmp(name, "pool_id"));
}

/* @name: the name of the member whose value this is; "" for an item of a list. */
static void put_value(struct gm_writer *w, const char *name, const struct gm_value *value)
{
	bool tuple = value->type == GM_VALUE_TUPLE || is_pair(name, value);
	bool dict = value->type == GM_VALUE_DICT, frames = !dict && !strcmp(name, "frames");

	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:	gm_writer_null(w); return;
	case GM_VALUE_BOOL:	gm_writer_bool(w, value->u.integer); return;
	case GM_VALUE_INT:	gm_writer_int(w, value->u.integer); return;
	case GM_VALUE_UINT:	gm_writer_word(w, value->u.word); return;
	case GM_VALUE_REAL:	gm_writer_real(w, value->u.real); return;
	case GM_VALUE_TEXT:	gm_writer_text(w, value->u.text, value->count); return;
	default:		break;
	}
	if (!tuple && value->lasting && gm_writer_again(w, (uint64_t)(uintptr_t)value, frames))
		return;
	gm_writer_begin(w, dict ? GM_WRITER_DICT : tuple ? GM_WRITER_TUPLE : GM_WRITER_LIST);
	for (uint32_t i = 0; i < value->count; i++)
		if (value->type == GM_VALUE_NUMBERS)
			gm_writer_int(w, value->u.numbers[i]);
		else
			put_value(w, dict && i % 2 ? value->u.items[i - 1]->u.text : "", value->u.items[i]);
	gm_writer_end(w);
}

void gm_torch_write_value(struct gm_writer *writer, const struct gm_value *root)
{
	put_value(writer, "", root);
}
