/*
 * history.h - the settings of the history: from the options at the start, from the API later (api.c).
 *
 * The settings are PyTorch's (_record_memory_history): whether events are kept or only live memory (enabled),
 * which records get a stack (context), the languages of stacks (stacks), and how many events are kept.
 *
 * Thread context: gm_history_config and gm_history_start in the first hook; the API from anywhere.
 * Signal context: none.
 */
#ifndef GM_PRELOAD_HISTORY_H
#define GM_PRELOAD_HISTORY_H

#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

/* Fill in the members of @config that say which events the options leave out of the history. For gm_recorder_start. */
void gm_history_config(const struct gm_options *options, struct gm_recorder_config *config);

/* Apply the options. Called after the recorder and the stacks have started, and before any hook's body runs. */
void gm_history_start(void);

/* Change only @enabled of gpumem_record_memory_history(). If it does not change, no events are dropped. Returns
 * 0, -ENODATA, -ENOTSUP or -ETIMEDOUT. Called outside hooks, with no lock held. */
int gm_history_switch(enum gm_history_enabled enabled);

/* Return which records get a stack now: enum gm_history_context. */
static inline uint32_t gm_history_context(void)
{
	return gm_get(&gm_state.context);
}

#endif
