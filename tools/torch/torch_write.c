/*
 * torch_write.c - a snapshot as PyTorch's: see torch_write.h. One thread.
 *
 * The frame lists of equal stacks are one list in a pickle: they are most of a snapshot's size.
 */
#define _GNU_SOURCE
#include "tools/torch/torch_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/bulk.h"
#include "tools/read/load.h"
#include "tools/show/show.h"
#include "tools/show/stacks.h"
#include "tools/write/tree_put.h"

/* Keys of gm_tree_again. */
#define KEY_STACK UINT64_C(1)
#define KEY_FRAME (UINT64_C(1) << 40)

#define AHEAD 12			/* events whose stacks are fetched before their turn: see gm_tree_expect */
#define SOON 3

struct writing {
	struct gm_tree *tree;
	const json_t *root;
	struct gm_stacks stacks;
};

static void put_text(struct gm_tree *tree, const char *name, const char *text)
{
	gm_tree_name(tree, name);
	gm_tree_string(tree, text);
}

static void put_int(struct gm_tree *tree, const char *name, int64_t value)
{
	gm_tree_name(tree, name);
	gm_tree_int(tree, value);
}

/* ---- parts ------------------------------------------------------------------------------------ */

static void put_frame(struct writing *w, uint32_t id)
{
	const struct gm_frame *frame = &w->stacks.frames[id];

	if (gm_tree_again(w->tree, KEY_FRAME + id, GM_TREE_LEAF))
		return;
	gm_tree_begin(w->tree, GM_TREE_DICT);
	put_text(w->tree, "name", frame->name);
	put_text(w->tree, "filename", frame->file);
	put_int(w->tree, "line", frame->line);
	gm_tree_end(w->tree);
}

static uint64_t key_of(const struct writing *w, int64_t stack)
{
	return KEY_STACK + (stack > 0 && (uint64_t)stack < w->stacks.count ? (uint64_t)stack : 0);
}

static void put_frames(struct writing *w, int64_t stack)
{
	const uint32_t *ids;
	size_t count;

	gm_tree_name(w->tree, "frames");
	if (gm_tree_again(w->tree, key_of(w, stack), GM_TREE_LEAVES))
		return;
	ids = gm_stack(&w->stacks, stack, &count);
	gm_tree_begin(w->tree, GM_TREE_LIST);
	for (size_t i = 0; i < count; i++)
		gm_tree_expect(w->tree, KEY_FRAME + ids[i], GM_TREE_LEAF, false);
	for (size_t i = 0; i < count; i++) {
		if (i + SOON < count)
			gm_tree_expect(w->tree, KEY_FRAME + ids[i + SOON], GM_TREE_LEAF, true);
		put_frame(w, ids[i]);
	}
	gm_tree_end(w->tree);
}

static void put_block(struct writing *w, uint64_t address, uint64_t size, uint64_t requested,
		      const char *state, int64_t stack)
{
	gm_tree_begin(w->tree, GM_TREE_DICT);
	gm_tree_name(w->tree, "address");
	gm_tree_uint(w->tree, address);
	gm_tree_name(w->tree, "size");
	gm_tree_uint(w->tree, size);
	gm_tree_name(w->tree, "requested_size");
	gm_tree_uint(w->tree, requested);
	put_text(w->tree, "state", state);
	put_frames(w, stack);
	gm_tree_end(w->tree);
}

/* Blocks that tile the segment, as the viewer's sums demand: gaps are inactive, and what does not
 * follow on what came before is left out. */
static void put_blocks(struct writing *w, const struct gm_value *segment, uint64_t at)
{
	uint64_t shift = at - (uint64_t)gm_value_number(segment, "address");
	uint64_t end = at + (uint64_t)gm_value_number(segment, "total_size");
	const struct gm_value *blocks = gm_value_list(segment, "blocks");

	gm_tree_name(w->tree, "blocks");
	gm_tree_begin(w->tree, GM_TREE_LIST);
	for (size_t i = 0; i < gm_value_length(blocks); i++) {
		const struct gm_value *block = blocks->u.items[i];
		uint64_t address = (uint64_t)gm_value_number(block, "address") + shift;
		uint64_t size = (uint64_t)gm_value_number(block, "size");
		uint64_t requested = (uint64_t)gm_value_number(block, "requested_size");
		const char *state = gm_value_string(block, "state");
		bool known = !strcmp(state, "active_allocated") || !strcmp(state, "active_pending_free");

		if (address < at || address >= end || !size || size > end - address)
			continue;
		if (address > at)
			put_block(w, at, address - at, 0, "inactive", 0);
		put_block(w, address, size, requested < size ? requested : size,
			  known ? state : "inactive", gm_value_number(block, "stack"));
		at = address + size;
	}
	if (at < end)
		put_block(w, at, end - at, 0, "inactive", 0);
	gm_tree_end(w->tree);
}

static void put_pool(struct gm_tree *tree, const struct gm_value *segment)
{
	const struct gm_value *pool = gm_value_row(segment, "segment_pool_id");

	gm_tree_name(tree, "segment_pool_id");
	gm_tree_begin(tree, GM_TREE_TUPLE);
	gm_tree_int(tree, gm_value_int_at(pool, 0));
	gm_tree_int(tree, gm_value_int_at(pool, 1));
	gm_tree_end(tree);
}

static void put_segment(struct writing *w, const struct gm_value *segment, uint64_t address)
{
	static const char *const sizes[] = {
		"total_size", "allocated_size", "active_size", "requested_size", "stream"
	};

	gm_tree_begin(w->tree, GM_TREE_DICT);
	put_int(w->tree, "device", gm_value_number(segment, "device"));
	put_int(w->tree, "address", (int64_t)address);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		put_int(w->tree, sizes[i], gm_value_number(segment, sizes[i]));
	put_text(w->tree, "segment_type", strcmp(gm_value_string(segment, "segment_type"), "small") ?
		 "large" : "small");
	put_pool(w->tree, segment);
	gm_tree_name(w->tree, "is_expandable");
	gm_tree_bool(w->tree, gm_value_get(segment, "is_expandable") == gm_value_bool(true));
	put_frames(w, gm_value_number(segment, "stack"));
	put_blocks(w, segment, address);
	gm_tree_end(w->tree);
}

/* What PyTorch has no place for: the kind of memory, and who asked. */
static void put_metadata(struct writing *w, const struct gm_row *row)
{
	const char *module = gm_show_module_path(w->root, row->module);
	const char *slash = strrchr(module, '/'), *file = slash ? slash + 1 : module;
	size_t kind = strnlen(row->kind, 40), length = strnlen(file, 255);
	char metadata[320], *at = mempcpy(metadata, row->kind, kind);

	if (module[0])
		at = mempcpy(mempcpy(at, " of ", 4), file, length);
	*at = '\0';
	if (kind == 40 || length == 255)	/* a letter may be cut */
		gm_show_repair(metadata);
	put_text(w->tree, "user_metadata", metadata);
}

static void put_event(struct writing *w, const struct gm_row *row)
{
	gm_tree_begin(w->tree, GM_TREE_DICT);
	put_text(w->tree, "action", row->action);
	put_int(w->tree, strcmp(row->action, "oom") ? "addr" : "device_free", (int64_t)row->address);
	put_int(w->tree, "size", row->size);
	put_int(w->tree, "stream", row->stream);
	put_int(w->tree, "time_us", row->time_us);
	put_text(w->tree, "compile_context", "N/A");
	put_metadata(w, row);
	put_frames(w, row->stack);
	gm_tree_end(w->tree);
}

/* ---- the whole -------------------------------------------------------------------------------- */

struct place { const struct gm_value *segment; int64_t device; uint64_t address; };

static int by_place(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	return p->device != q->device ? (p->device > q->device) - (p->device < q->device) :
	       (p->address > q->address) - (p->address < q->address);
}

static int put_segments(struct writing *w, const struct gm_torch_fit *fit)
{
	const struct gm_value *list = gm_bulk_list(w->root, "segments");
	struct place *places = calloc(gm_value_length(list) + 1, sizeof(*places));
	size_t i, count = 0;

	if (!places)
		return -ENOMEM;
	for (i = 0; i < gm_value_length(list); i++)
		if (fit->keep_segment[i])
			places[count++] = (struct place){
				list->u.items[i], gm_value_number(list->u.items[i], "device"),
				fit->segment_address[i]
			};
	qsort(places, count, sizeof(*places), by_place);
	gm_tree_name(w->tree, "segments");
	gm_tree_begin(w->tree, GM_TREE_LIST);
	for (i = 0; i < count; i++)
		put_segment(w, places[i].segment, places[i].address);
	gm_tree_end(w->tree);
	free(places);
	return 0;
}

static void put_traces(struct writing *w, const struct gm_torch_fit *fit)
{
	gm_tree_name(w->tree, "device_traces");
	gm_tree_begin(w->tree, GM_TREE_LIST);
	for (size_t d = 0; d < fit->device_count; d++) {
		gm_tree_begin(w->tree, GM_TREE_LIST);
		for (size_t i = 0; i < fit->count; i++) {
			if (i + AHEAD < fit->count)
				gm_tree_expect(w->tree, key_of(w, fit->rows[i + AHEAD].stack), GM_TREE_LEAVES, false);
			if (i + SOON < fit->count)
				gm_tree_expect(w->tree, key_of(w, fit->rows[i + SOON].stack), GM_TREE_LEAVES, true);
			if (fit->keep[i] && fit->rows[i].device == (int)d)
				put_event(w, &fit->rows[i]);
		}
		gm_tree_end(w->tree);
	}
	gm_tree_end(w->tree);
}

static void put_settings(struct writing *w)
{
	const json_t *settings = gm_json_object(w->root, "allocator_settings"), *value;
	const char *name;

	gm_tree_name(w->tree, "allocator_settings");
	gm_tree_begin(w->tree, GM_TREE_DICT);
	json_object_foreach((json_t *)(uintptr_t)settings, name, value) {
		if (!strcmp(name, "gpumem"))		/* ours; PyTorch's members are all scalars or plain */
			continue;
		gm_tree_string(w->tree, name);
		gm_tree_put_json(w->tree, value);
	}
	gm_tree_end(w->tree);
}

static void put_annotations(struct writing *w)
{
	const json_t *one;
	size_t i;

	gm_tree_name(w->tree, "external_annotations");
	gm_tree_begin(w->tree, GM_TREE_LIST);
	json_array_foreach(gm_json_list(w->root, "annotations"), i, one) {
		const char *stage = gm_json_text(one, "stage");

		gm_tree_begin(w->tree, GM_TREE_DICT);
		put_text(w->tree, "stage", stage[0] ? stage : "START");
		put_text(w->tree, "name", gm_json_text(one, "name"));
		put_int(w->tree, "device", gm_json_number(one, "device"));
		put_int(w->tree, "time_us", gm_json_number(one, "time_us"));
		gm_tree_end(w->tree);
	}
	gm_tree_end(w->tree);
}

int gm_torch_write(struct gm_tree *tree, const json_t *root, const struct gm_torch_fit *fit)
{
	struct writing w = { .tree = tree, .root = root };
	int r = gm_stacks_open(&w.stacks, root);

	if (r)
		return r;
	gm_tree_begin(tree, GM_TREE_DICT);
	r = put_segments(&w, fit);
	put_traces(&w, fit);
	put_settings(&w);
	put_annotations(&w);
	gm_tree_end(tree);
	gm_stacks_close(&w.stacks);
	return r;
}

/* ---- what PyTorch said ------------------------------------------------------------------------ */

/* PyTorch has a pair for a pool; JSON made a list of it. */
static bool is_pair(const struct gm_value *name, const struct gm_value *value)
{
	return name && (value->type == GM_VALUE_LIST || value->type == GM_VALUE_NUMBERS) && value->count == 2 &&
	       (!strcmp(name->u.text, "segment_pool_id") || !strcmp(name->u.text, "pool_id"));
}

/* Where the dicts of a list have their "frames": those of the same names have them at the same place. */
struct saying { struct gm_tree *tree; const struct gm_value *names; uint32_t frames; };

/* The frames of @dict, of the same names as others that were asked for; NULL: none. */
static const struct gm_value *frames_of(struct saying *s, const struct gm_value *dict)
{
	if (dict->type != GM_VALUE_DICT || !dict->count)
		return NULL;
	if (s->names != dict->u.items[0]) {
		s->names = dict->u.items[0];
		s->frames = s->names->count;
		while (s->frames && strcmp(s->names->u.items[s->frames - 1]->u.text, "frames"))
			s->frames--;
	}
	return s->frames ? dict->u.items[s->frames] : NULL;
}

/* The stacks of dicts that are to come lie anywhere. */
static void foresee(struct saying *s, const struct gm_value *list, uint32_t i)
{
	const struct gm_value *ahead = i + AHEAD < list->count ? frames_of(s, list->u.items[i + AHEAD]) : NULL;
	const struct gm_value *soon = i + SOON < list->count ? frames_of(s, list->u.items[i + SOON]) : NULL;

	if (ahead) {
		__builtin_prefetch(ahead);
		gm_tree_expect(s->tree, (uint64_t)(uintptr_t)ahead, GM_TREE_LEAVES, false);
	}
	if (soon)
		gm_tree_expect(s->tree, (uint64_t)(uintptr_t)soon, GM_TREE_LEAVES, true);
}

static void put_value(struct saying *s, const struct gm_value *name, const struct gm_value *value,
		      bool in_frames)
{
	struct gm_tree *tree = s->tree;
	bool dict = value->type == GM_VALUE_DICT, pair = is_pair(name, value);
	bool frames = name && !strcmp(name->u.text, "frames");

	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:	gm_tree_null(tree); return;
	case GM_VALUE_BOOL:	gm_tree_bool(tree, value->u.integer); return;
	case GM_VALUE_INT:	gm_tree_int(tree, value->u.integer); return;
	case GM_VALUE_UINT:	gm_tree_uint(tree, value->u.word); return;
	case GM_VALUE_REAL:	gm_tree_real(tree, value->u.real); return;
	case GM_VALUE_TEXT:	gm_tree_text(tree, value->u.text, value->count); return;
	default:		break;
	}
	if (!pair && value->type != GM_VALUE_TUPLE &&
	    gm_tree_again(tree, (uint64_t)(uintptr_t)value, dict && in_frames ? GM_TREE_LEAF :
			  !dict && frames ? GM_TREE_LEAVES : GM_TREE_OTHER))
		return;
	gm_tree_begin(tree, dict ? GM_TREE_DICT : pair || value->type == GM_VALUE_TUPLE ? GM_TREE_TUPLE :
		      GM_TREE_LIST);
	for (uint32_t i = 0; value->type == GM_VALUE_NUMBERS && i < value->count; i++)
		gm_tree_int(tree, value->u.numbers[i]);
	for (uint32_t i = 0; dict && i < gm_value_members(value); i++) {
		put_value(s, NULL, gm_value_name(value, i), frames);
		put_value(s, gm_value_name(value, i), gm_value_member(value, i), frames);
	}
	for (uint32_t i = 0; !dict && value->type != GM_VALUE_NUMBERS && i < value->count; i++) {
		foresee(s, value, i);
		put_value(s, NULL, value->u.items[i], frames);
	}
	gm_tree_end(tree);
}

void gm_torch_write_value(struct gm_tree *tree, const struct gm_value *root)
{
	struct saying s = { .tree = tree };

	put_value(&s, NULL, root, false);
}
