/*
 * exit.h - the ends of a process at which it still runs: exit, _exit, quick_exit.
 */
#ifndef GM_PRELOAD_EXIT_H
#define GM_PRELOAD_EXIT_H

/* Register what exit() is to call; once, at the start. */
void gm_exit_start(void);

/* By hooks: the memory of a context is about to go (release, reset, destroy), before the real
 * call. While the process exits this takes the exit snapshot; else it does nothing. */
void gm_exit_context_end(void);

#endif
