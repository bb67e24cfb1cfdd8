/*
 * start.h - what the hooks need before the first body runs on.
 *
 * Thread context: that of the process's first hook, inside it.
 */
#ifndef GM_PRELOAD_START_H
#define GM_PRELOAD_START_H

/* The journal is there and recording (gm_recorder_start returned 0). Once in the life of a process.
 * Returns 0, or -errno: nothing will be recorded then. */
int gm_hooks_start(void);

#endif
