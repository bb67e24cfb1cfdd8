/*
 * history.c - what is recorded of the history: see history.h.
 *
 * Whatever changes is one word that hooks read once an operation: an operation that has begun may
 * end by the old rules. gm_state.history_lock keeps two callers of the API apart.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/api/history.h"
#include "recorder/stacks/stacks.h"

/* As in options.def; GM_CONTEXT_*, GM_STACKS_* and enum gm_history_enabled are their places. */
static const char *const context_words[] = { "none", "state", "alloc", "all", NULL };
static const char *const stacks_words[] = { "none", "python", "native", "all", NULL };
static const char *const enabled_words[] = { "all", "state", "none", NULL };

/* Of option history_actions, in the order of its words; "none" is the first of those. */
static const uint32_t action_groups[] = {
	1u << GM_ACTION_ALLOC | 1u << GM_ACTION_FREE_REQUESTED | 1u << GM_ACTION_FREE_COMPLETED,
	1u << GM_ACTION_SEGMENT_ALLOC | 1u << GM_ACTION_SEGMENT_FREE |
	1u << GM_ACTION_SEGMENT_MAP | 1u << GM_ACTION_SEGMENT_UNMAP,
	1u << GM_ACTION_OOM, 1u << GM_ACTION_SNAPSHOT, 1u << GM_ACTION_ANNOTATE,
};

void gm_history_config(const struct gm_options *options, struct gm_recorder_config *config)
{
	config->history_min_size = options->history_min_size;
	for (unsigned int i = 0; i < sizeof(action_groups) / sizeof(action_groups[0]); i++)
		if (!(options->history_actions >> (i + 1) & 1))
			config->history_left_out |= action_groups[i];
}

/* Stacks are of no use to anybody when neither events nor blocks are to have them. */
static void apply_stacks(const struct gm_history *history)
{
	bool any = history->context != GM_CONTEXT_NONE && history->enabled != GM_HISTORY_NONE;
	bool native = history->stacks == GM_STACKS_NATIVE || history->stacks == GM_STACKS_ALL;
	bool python = history->stacks == GM_STACKS_PYTHON || history->stacks == GM_STACKS_ALL;

	gm_set(&gm_state.context, history->context);
	gm_stacks_configure(any && native, any && python,
			    (unsigned int)gm_state.options.stack_depth);
	gm_unwind_choose((enum gm_unwinder)gm_state.options.unwinder);
}

static int apply(const struct gm_history *history)
{
	int r = gm_record_history(history);

	if (r == 0)
		apply_stacks(history);
	return r;
}

void gm_history_start(void)
{
	const struct gm_history history = {
		.enabled = gm_state.options.history_enabled, .context = gm_state.options.context,
		.stacks = gm_state.options.stacks,
	};

	/* Nobody else records yet, so that no lock is waited for. */
	apply(&history);
}

/* The place of @word, NULL being @none. False: not in the list. */
static bool place_of(const char *word, const char *const *words, uint32_t none, uint32_t *ret)
{
	*ret = none;
	if (!word)
		return true;
	for (uint32_t i = 0; words[i]; i++) {
		if (strcmp(word, words[i]) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

int gpumem_record_memory_history(const char *enabled, const char *context, const char *stacks,
				 size_t max_entries)
{
	const struct gm_header *header = gm_recorder_header();
	struct gm_history history = { 0 };
	int r;

	if (!place_of(enabled, enabled_words, GM_HISTORY_NONE, &history.enabled) ||
	    !place_of(context, context_words, GM_CONTEXT_NONE, &history.context) ||
	    !place_of(stacks, stacks_words, GM_STACKS_NONE, &history.stacks))
		return -EINVAL;
	if (!gm_state_is_mine() || !header)
		return -ENODATA;
	if (max_entries < header->history_events)
		history.newest = max_entries ? max_entries : 1;	/* as PyTorch */
	if (!gm_lock(&gm_state.history_lock))
		return -ETIMEDOUT;
	r = apply(&history);
	gm_unlock(&gm_state.history_lock);
	if (r || history.enabled != GM_HISTORY_ALL)
		return r;
	if (!header->history_events)
		return -ENOTSUP;
	return max_entries != SIZE_MAX && max_entries > header->history_events ? -ENOSPC : 0;
}
