/*
 * crash.h - the signals that end a program: what the journal keeps of them, and the snapshot of that
 * moment.
 */
#ifndef GM_PRELOAD_CRASH_H
#define GM_PRELOAD_CRASH_H

#include <stdint.h>

/* Take the signals that the program left at their default, to end by them. Once, at the start,
 * after every other signal that the library takes. */
void gm_crash_start(void);

/* By whoever writes the crash snapshot, before the journal is copied: walk the stack of the thread
 * that crashed, and give its frames their modules. Opens no file. Does nothing when there is none. */
void gm_crash_describe(void);

/* The same, just before its file gets its name: a second signal may kill the process at any moment,
 * and recover is to know whether there is a snapshot. */
void gm_crash_naming(const char *path, uint64_t inode);

/* The same, after it: it was written to @header->last_snapshot; or there was nothing to be
 * written. The journal has done its work and goes. */
void gm_crash_written(void);
void gm_crash_not_worth_it(void);

/* For a handler of ours that is not to handle signal @number: the signal ends the process, once that
 * handler has returned. Signal context. */
void gm_crash_by_default(int number, void *info);

#endif
