/*
 * locate.h - source lines of native frames, from debug information that is on this machine.
 * Single-threaded.
 */
#ifndef GM_TOOLS_LOCATE_H
#define GM_TOOLS_LOCATE_H

#include "tools/show/groups.h"

#define GM_LOCATE_MOST 4096u		/* frames at a time: more is the business of gpumem symbolize */

/* Give file and line to the call sites of what was allocated in @scene, and to the stacks of what could not
 * be had: where the file that a module names is here, with the same build id. Says nothing of what is not
 * found. Takes seconds at most, in a child process (symbolize_worker.h). */
void gm_locate(struct gm_scene *scene);

#endif
