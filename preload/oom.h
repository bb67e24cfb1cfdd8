/*
 * oom.h - when memory runs out: which failures make a snapshot, which files are kept.
 */
#ifndef GM_PRELOAD_OOM_H
#define GM_PRELOAD_OOM_H

/* An OOM snapshot, the @number-th (from 1), was written to @path: keep the first and the last
 * ones. By the writer, holding gm_state.writing. */
void gm_oom_written(unsigned int number, const char *path);

/* The OOM snapshot that was asked for is written, or could not be. By the writer. */
void gm_oom_done(void);

#endif
