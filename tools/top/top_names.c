/*
 * top_names.c - names of call sites and frames, with source lines: see top.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/stacks.h"
#include "tools/symbols/symbols.h"
#include "tools/top/top.h"

/* The limit of the bytes of all frames' names, because somebody may fill a journal with names to use up our memory. */
#define BYTES_MOST ((size_t)128 << 20)

static size_t frame_bytes;

void gm_top_forget_names(struct gm_top_stack *stack)
{
	frame_bytes -= stack->frames ? strlen(stack->frames) : 0;
	free(stack->frames);
	free(stack->site);
	stack->frames = stack->site = NULL;
}

/* Write the names of the frames of @stack. */
static int put_frames(struct gm_top_stack *stack, const struct gm_stacks *stacks)
{
	size_t count, bytes;
	const uint32_t *ids = gm_stack(stacks, stack->id, &count);
	FILE *text = open_memstream(&stack->frames, &bytes);
	char made[1024];

	if (!text)
		return -ENOMEM;
	stack->named = true;
	for (size_t i = 0; i < count && frame_bytes + (size_t)ftell(text) < BYTES_MOST; i++) {
		fprintf(text, "%s\n", gm_frame_text(stacks, &stacks->frames[ids[i]], made, sizeof(made)));
		stack->named &= stacks->snapshot->frames[ids[i]].name[0] != '\0';
	}
	if (fclose(text)) {
		free(stack->frames);
		stack->frames = NULL;
		return -ENOMEM;
	}
	frame_bytes += bytes;
	return 0;
}

static int put_names(struct gm_top_process *process, struct gm_stacks *stacks)
{
	uint8_t *used = calloc(stacks->count + 1, sizeof(*used));
	char made[1024];
	int r = used ? 0 : -ENOMEM;

	for (size_t i = 0; used && i < process->stack_count; i++)
		if (process->stacks[i]->id < stacks->count)
			used[process->stacks[i]->id] = GM_STACK_OF_DEVICE;
	if (!r)
		gm_stacks_share(stacks, used);
	for (size_t i = 0; !r && i < process->stack_count; i++) {
		struct gm_top_stack *stack = process->stacks[i];

		gm_top_forget_names(stack);
		stack->site = strdup(stack->id == GM_TOP_OTHER_STACKS ? "(other stacks)" :
				     gm_site_text(stacks, stack->id, made, sizeof(made)));
		r = stack->site ? put_frames(stack, stacks) : -ENOMEM;
	}
	return r;
}

/* Give each stack that held memory an event, because names are looked up for the stacks of events. */
static int want_stacks(const struct gm_top_process *process, struct gm_snapshot *of)
{
	for (size_t i = 0; i < process->stack_count; i++) {
		struct gm_row *row = gm_list_add(&of->rows, &of->row_count, sizeof(*row));

		if (!row)
			return -ENOMEM;
		*row = (struct gm_row){ .action = "", .kind = "", .stack = process->stacks[i]->id };
	}
	return 0;
}

static int find_names(struct gm_top_process *process, struct gm_snapshot *of)
{
	struct gm_stacks stacks;
	int r = want_stacks(process, of);

	if (!r && process->ours)
		r = gm_names_show("top", of);
	if (!r)
		r = gm_stacks_open(&stacks, of);
	if (r)
		return r;
	r = put_names(process, &stacks);
	gm_stacks_close(&stacks);
	return r;
}

int gm_top_names(struct gm_top_process *process, const struct gm_attached *attached)
{
	/* A name comes soon or never, so ask after 1, 2, 4 ... samples. */
	bool ask = !(process->samples & (process->samples - 1)), any = false;
	struct gm_loaded loaded;
	int r;

	for (size_t i = 0; i < process->stack_count; i++)
		any |= !process->stacks[i]->site || (!process->stacks[i]->named && ask);
	if (!any)
		return 0;
	r = gm_top_load(process, attached, GM_LOAD_STACKS, &loaded);
	if (r)
		return r;
	r = find_names(process, &loaded.snapshot);
	gm_load_free(&loaded);
	return r;
}
