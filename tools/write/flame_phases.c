/*
 * flame_phases.c - stacks with named ranges as their outermost frames: see flame.h. One thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/value.h"
#include "tools/show/phases.h"
#include "tools/write/flame.h"

/* Add a frame for each phase behind the frames of the snapshot; the caller counts them. Return 0 or -ENOMEM. */
static int add_frames(struct gm_stacks *stacks, const struct gm_phases *phases)
{
	struct gm_frame *larger = realloc(stacks->frames, (stacks->frame_count + phases->count) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	stacks->frames = larger;
	for (size_t i = 0; i < phases->count; i++) {
		const char *name = gm_values_string(stacks->texts, phases->list[i].name,
						    strlen(phases->list[i].name));

		if (!name)
			return -ENOMEM;
		larger[stacks->frame_count + i] = (struct gm_frame){
			.name = name, .symbol = name, .file = "", .module = "", .sort = GM_FRAME_NATIVE,
		};
	}
	return 0;
}

static bool add_id(struct gm_snapshot *view, uint32_t id)
{
	uint32_t *one = gm_list_add(&view->ids, &view->starts[view->stack_count + 1], sizeof(*one));

	if (one)
		*one = id;
	return one;
}

/* Add a stack to @view: that of @life and the phases of @node, which were open then. @first_frame is the frame of phase
 * 0. Return 0 or -ENOMEM. */
static int add_stack(struct gm_snapshot *view, const struct gm_stacks *stacks,
		     const struct gm_phases *phases, const struct gm_life *life, uint32_t node,
		     uint32_t first_frame)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, life->stack, &count);
	bool is_range = node && node != UINT32_MAX, whole = true;

	view->starts[view->stack_count + 1] = view->starts[view->stack_count];
	for (size_t i = 0; whole && i < count; i++)
		whole = add_id(view, ids[i]);
	if (whole && !is_range)
		whole = add_id(view, first_frame + (node ? GM_PHASE_BEFORE : GM_PHASE_NONE));
	for (uint32_t i = is_range ? node : 0; whole && i; i = phases->nodes[i].parent)
		whole = add_id(view, first_frame + phases->nodes[i].phase);
	view->stack_count += whole;
	return whole ? 0 : -ENOMEM;
}

int gm_flame_phases_open(struct gm_flame_phases *ret, struct gm_stacks *stacks, struct gm_lives *lives,
			 const struct gm_snapshot *snapshot, const char *device)
{
	struct gm_table made = { NULL, 0, 0 };		/* (stack, node) -> new stack */
	struct gm_phases phases;
	int r = gm_phases_open(&phases, snapshot, lives, device);

	memset(ret, 0, sizeof(*ret));
	if (r)
		return r;
	/* Stack 0 has no frames, as in every snapshot. */
	ret->view.starts = calloc(lives->count + 2, sizeof(*ret->view.starts));
	ret->view.stack_count = ret->view.starts ? 1 : 0;
	r = ret->view.starts ? add_frames(stacks, &phases) : -ENOMEM;
	for (size_t i = 0; !r && i < lives->count; i++) {
		struct gm_life *life = &lives->list[i];
		uint64_t at = gm_table_get(&made, (uint64_t)life->stack, phases.of[i]);

		if (!at) {
			at = ret->view.stack_count;
			r = add_stack(&ret->view, stacks, &phases, life, phases.of[i],
				      (uint32_t)stacks->frame_count);
			if (!r)
				r = gm_table_put(&made, (uint64_t)life->stack, phases.of[i], at);
		}
		life->stack = (int64_t)at;
	}
	lives->at_peak_known = false;		/* the counted peak has no ranges: find the peak in the history */
	stacks->frame_count += phases.count;
	stacks->snapshot = &ret->view;
	stacks->count = ret->view.stack_count;
	gm_table_free(&made);
	gm_phases_close(&phases);
	if (r)
		gm_flame_phases_close(ret);
	return r;
}

void gm_flame_phases_close(struct gm_flame_phases *phases)
{
	free(phases->view.ids);
	free(phases->view.starts);
	memset(phases, 0, sizeof(*phases));
}
