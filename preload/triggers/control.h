/*
 * control.h - commands from another process (gpumem ctl), which lie in the journal's header
 * (recorder/journal/control.h).
 *
 * Thread context: only the helper thread, outside our locks and hooks. Signal context: none.
 */
#ifndef GM_PRELOAD_CONTROL_H
#define GM_PRELOAD_CONTROL_H

#include "recorder/journal/control.h"

/* Announce in the header that the helper thread reads commands from now on. */
void gm_control_begin(struct gm_control *control);

/* Do the command in the header, if there is one, and answer it. Never waits for the GPU, and waits at most 5
 * seconds for each lock. The answer to an unknown command is -EINVAL. */
void gm_control_serve(struct gm_control *control);

#endif
