/*
 * snapshot_stacks.c - the sections "stacks", "frames" and "modules", to which all other sections refer by
 * number. A stack or frame is written once, and only if a record refers to it, unless a part of a snapshot is asked for
 * (enum gm_emit).
 *
 * An area is walked once from its start. So an offset within a record names no record, and the output is
 * bounded by the input.
 * Thread context: as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

#include <errno.h>
#include <string.h>

static int begin(struct gm_snap *snap, struct gm_numbers *numbers, size_t places)
{
	numbers->places = places;
	numbers->of = gm_scratch_get(&snap->scratch, places * sizeof(*numbers->of));
	return numbers->of ? 0 : -ENOMEM;
}

static void refer(struct gm_numbers *numbers, uint64_t place)
{
	if (place && place < numbers->places)
		numbers->of[place] = 1;
}

static void refer_stack(struct gm_snap *snap, uint32_t id)
{
	if (id % 8 == 0)
		refer(&snap->stacks, id / 8);
}

static void refer_all(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;

	for (size_t i = 0; i < copy->event_count; i++)
		refer_stack(snap, gm_snap_event_stack(copy->events[i]));
	for (uint32_t i = 1; i < gm_copy_items(copy, GM_REGION_BLOCKS); i++) {
		const struct gm_block *block = gm_copy_block(copy, i);

		if (block)
			refer_stack(snap, block->stack);
	}
	for (size_t i = 0; i < copy->segment_count; i++)
		refer_stack(snap, gm_copy_segment(copy, copy->segments[i])->stack);
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_SITES); i++) {
		const struct gm_site *site = gm_copy_site(copy, i);

		if (site && site->live > 0)
			refer_stack(snap, (uint32_t)site->key);
	}
	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_FAILURES); i++)
		refer_stack(snap, gm_copy_failure(copy, i)->stack);
	refer_stack(snap, copy->header->crash_stack);
}

/* Return the stack at @id, and in @ret_next the id of the next stack; NULL at the end. */
static const struct gm_stack *walk_stacks(const struct gm_copy *copy, uint64_t id,
					  uint64_t *ret_next)
{
	const struct gm_stack *stack = id <= UINT32_MAX ? gm_copy_stack(copy, (uint32_t)id) : NULL;

	if (stack)
		*ret_next = id + ((sizeof(*stack) + (uint64_t)stack->count * 4 + 7) & ~UINT64_C(7));
	return stack;
}

/* Clear the numbers of the places from @from to @to, because no record begins there. */
static void forget(struct gm_numbers *numbers, uint64_t from, uint64_t to)
{
	to = gm_min_u64(to, numbers->places);
	if (from < to)
		memset(&numbers->of[from], 0, (to - from) * sizeof(*numbers->of));
}

int gm_snap_number_stacks(struct gm_snap *snap)
{
	const struct gm_copy *copy = snap->copy;
	const struct gm_stack *stack;
	uint64_t at = 8, next = 8;

	if (begin(snap, &snap->stacks, copy->copied[GM_REGION_STACKS] / 8) ||
	    begin(snap, &snap->frames, gm_copy_items(copy, GM_REGION_FRAMES)))
		return -ENOMEM;
	if (snap->request->what == GM_EMIT_ALL)
		refer_all(snap);
	for (; (stack = walk_stacks(copy, at, &next)); at = next) {
		forget(&snap->stacks, at / 8 + 1, next / 8);
		if (!snap->stacks.of[at / 8] && snap->request->what == GM_EMIT_ALL)
			continue;
		snap->stacks.of[at / 8] = ++snap->stacks.count;
		for (unsigned int i = 0; i < stack->count; i++)
			refer(&snap->frames, stack->frames[i]);
	}
	forget(&snap->stacks, at / 8, snap->stacks.places);
	for (size_t i = 1; i < snap->frames.places; i++)
		if (snap->frames.of[i])
			snap->frames.of[i] = ++snap->frames.count;
	return 0;
}

static void put_stacks(struct gm_snap *snap)
{
	const struct gm_stack *stack;
	struct gm_jsonw *w = snap->w;
	uint64_t at = 8, next = 8;

	gm_jsonw_key_array(w, "stacks");
	gm_jsonw_array(w);		/* 0: no stack */
	gm_jsonw_end(w);
	for (; (stack = walk_stacks(snap->copy, at, &next)); at = next) {
		if (!snap->stacks.of[at / 8])
			continue;
		gm_jsonw_array(w);
		for (unsigned int i = 0; i < stack->count; i++)
			gm_jsonw_u64(w, stack->frames[i] < snap->frames.places ?
				     snap->frames.of[stack->frames[i]] : 0);
		gm_jsonw_end(w);
	}
	gm_jsonw_end(w);
}

static void put_frame(struct gm_snap *snap, const struct gm_frame *frame)
{
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_snap_key_string(snap, "filename", frame->filename);
	gm_jsonw_key_u64(w, "line", frame->line);
	gm_snap_key_string(snap, "name", frame->name);
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, frame->module));
	gm_jsonw_key_u64(w, "offset", frame->offset);
	gm_jsonw_key_bool(w, "python", frame->flags & GM_FRAME_PYTHON);
	gm_jsonw_end(w);
}

static void put_frames(struct gm_snap *snap)
{
	static const struct gm_frame none;

	gm_jsonw_key_array(snap->w, "frames");
	put_frame(snap, &none);		/* 0: a frame that found no room */
	for (uint32_t i = 1; i < snap->frames.places; i++)
		if (snap->frames.of[i])
			put_frame(snap, gm_copy_frame(snap->copy, i));
	gm_jsonw_end(snap->w);
}

static void put_module(struct gm_snap *snap, const struct gm_module *module)
{
	static const char hex[] = "0123456789abcdef";
	char id[2 * sizeof(module->build_id)];
	size_t bytes = gm_min_u64(module->build_id_bytes, sizeof(module->build_id));
	struct gm_jsonw *w = snap->w;

	for (size_t i = 0; i < bytes; i++) {
		id[2 * i] = hex[module->build_id[i] >> 4];
		id[2 * i + 1] = hex[module->build_id[i] & 15];
	}
	gm_jsonw_object(w);
	gm_snap_key_string(snap, "path", module->path);
	gm_jsonw_key_bytes(w, "build_id", id, 2 * bytes);
	gm_jsonw_key_u64(w, "base", module->base);
	gm_jsonw_key_u64(w, "start", module->start);
	gm_jsonw_key_u64(w, "end", module->end);
	gm_snap_key_time(snap, "loaded_us", module->load_tsc);
	gm_snap_key_time(snap, "unloaded_us", module->unload_tsc);
	gm_jsonw_end(w);
}

void gm_snap_stacks(struct gm_snap *snap)
{
	static const struct gm_module unknown;
	size_t modules = gm_copy_items(snap->copy, GM_REGION_MODULES);

	if (snap->request->what != GM_EMIT_TABLES) {
		put_stacks(snap);
		put_frames(snap);
	}
	gm_jsonw_key_array(snap->w, "modules");
	put_module(snap, &unknown);	/* 0: not known */
	for (uint32_t i = 1; i < modules; i++)
		put_module(snap, gm_copy_module(snap->copy, i));
	gm_jsonw_end(snap->w);
}
