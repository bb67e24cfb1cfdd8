/*
 * control.h - do the commands that another process (gpumem ctl) leaves in the journal's header
 * (recorder/journal/control.h).
 *
 * Thread context: only the helper thread, outside our locks and hooks. Signal context: none.
 */
#ifndef GM_PRELOAD_CONTROL_H
#define GM_PRELOAD_CONTROL_H

#include "recorder/journal/control.h"

/* Announce in the header that this process's helper thread reads commands from now on. */
void gm_control_begin(struct gm_control *control);

/* Do the command in the header, if there is one, and store the answer there: -EINVAL for an unknown
 * command. Never waits for the GPU, and waits at most 5 seconds for each lock. */
void gm_control_serve(struct gm_control *control);

#endif
