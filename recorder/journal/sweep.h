/*
 * sweep.h - remove the journals of processes that have died.
 *
 * Thread context: one thread, under a gm_fd_guard. Signal context: none.
 */
#ifndef GM_RECORDER_SWEEP_H
#define GM_RECORDER_SWEEP_H

/* Remove this user's dead journals except the four newest. Looks in @directory (a path from
 * gm_directory_open), in this user's other directories beside it, and in the rooms of killed `gpumem
 * run`s there (GM_RUN_ROOM in format.h). Never touches the journal of a process that lives or may
 * live. The number of files that are looked at is bounded. */
void gm_sweep(const char *directory);

#endif
