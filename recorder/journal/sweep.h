/*
 * sweep.h - removing the journals of processes that have died.
 *
 * Thread context: one thread, under a gm_fd_guard. Signal context: none.
 */
#ifndef GM_RECORDER_SWEEP_H
#define GM_RECORDER_SWEEP_H

/* Remove this user's dead journals but the four newest: in @directory (a path from
 * gm_directory_open), in this user's other directories beside it, and in rooms there whose gpumem
 * run was killed. The journal of a living process is never touched, nor one whose process may live.
 * Bounded work. */
void gm_sweep(const char *directory);

#endif
