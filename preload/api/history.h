/*
 * history.h - what is recorded of the history: set by the options at the start, by the API later
 * (api.c).
 *
 * PyTorch's three questions (_record_memory_history): whether events are kept or only what is live
 * (enabled), what gets a stack (context), of which languages (stacks); and how many events.
 *
 * Thread context: gm_history_config and gm_history_start in the first hook; the API from anywhere.
 * Signal context: none.
 */
#ifndef GM_PRELOAD_HISTORY_H
#define GM_PRELOAD_HISTORY_H

#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

/* Put into @config what the options leave out of the history, for gm_recorder_start. */
void gm_history_config(const struct gm_options *options, struct gm_recorder_config *config);

/* Begin as the options say: after the recorder and the stacks have started, before any hook's body
 * runs. */
void gm_history_start(void);

/* As gpumem_record_memory_history(), but only @enabled changes; no events are dropped where it is
 * that already. Returns 0, -ENODATA, -ENOTSUP or -ETIMEDOUT. Called outside hooks, with no lock
 * held. */
int gm_history_switch(enum gm_history_enabled enabled);

/* What gets a stack now: enum gm_history_context. */
static inline uint32_t gm_history_context(void)
{
	return gm_get(&gm_state.context);
}

#endif
