/*
 * control.h - commands from another process (gpumem ctl), which lie in the journal's header:
 * recorder/journal/control.h says how.
 *
 * Thread context: the helper thread alone, outside our locks and hooks. Signal context: none.
 */
#ifndef GM_PRELOAD_CONTROL_H
#define GM_PRELOAD_CONTROL_H

#include "recorder/journal/control.h"

/* Announce in the header that commands are read from now on. */
void gm_control_begin(struct gm_control *control);

/* Do the command in the header, if there is one, and answer it. Waits for no work of the GPU; each
 * lock is waited for 5 seconds at most. An unknown command is answered with -EINVAL. */
void gm_control_serve(struct gm_control *control);

#endif
