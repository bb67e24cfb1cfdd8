/*
 * top_names.c - call sites and frames with their source lines: see top.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/stacks.h"
#include "tools/symbols/symbols.h"
#include "tools/top/top.h"

/* A journal may be filled with names to fill our memory: the bytes of all frames' names are limited. */
#define BYTES_MOST ((size_t)128 << 20)

static size_t frame_bytes;

void gm_top_forget_names(struct gm_top_stack *stack)
{
	frame_bytes -= stack->frames ? strlen(stack->frames) : 0;
	free(stack->frames);
	free(stack->site);
	stack->frames = stack->site = NULL;
}

/* The frames of @stack, which is number @id of @stacks. */
static int put_frames(struct gm_top_stack *stack, const struct gm_stacks *stacks, int64_t id)
{
	size_t count, bytes;
	const uint32_t *ids = gm_stack(stacks, id, &count);
	FILE *text = open_memstream(&stack->frames, &bytes);
	char made[1024];

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < count && frame_bytes + (size_t)ftell(text) < BYTES_MOST; i++)
		fprintf(text, "%s\n", gm_frame_text(stacks, &stacks->frames[ids[i]], made, sizeof(made)));
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
	uint8_t *used = calloc(stacks->count, sizeof(*used));
	char made[1024];
	int r = used ? 0 : -ENOMEM;

	for (size_t i = 0; used && i < process->stack_count; i++)
		used[i + 1] = process->stacks[i]->id != GM_TOP_OTHER_STACKS ? GM_STACK_OF_DEVICE : 0;
	if (!r)
		gm_stacks_share(stacks, used);
	for (size_t i = 0; !r && i < process->stack_count; i++) {
		struct gm_top_stack *stack = process->stacks[i];
		int64_t id = (int64_t)i + 1;

		gm_top_forget_names(stack);
		stack->site = strdup(stack->id == GM_TOP_OTHER_STACKS ? "(other stacks)" :
				     gm_site_text(stacks, id, made, sizeof(made)));
		r = stack->site ? put_frames(stack, stacks, id) : -ENOMEM;
	}
	return r;
}

int gm_top_names(struct gm_top_process *process, struct gm_snapshot *of)
{
	struct gm_stacks stacks;
	int r = process->ours ? gm_names_show("top", of) : 0;

	if (!r)
		r = gm_stacks_open(&stacks, of);
	if (r)
		return r;
	r = put_names(process, &stacks);
	gm_stacks_close(&stacks);
	return r;
}
