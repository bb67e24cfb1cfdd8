/*
 * oom.h - when memory runs out: which failures make a snapshot, which files are kept.
 */
#ifndef GM_PRELOAD_OOM_H
#define GM_PRELOAD_OOM_H

#include <stdbool.h>
#include <stdint.h>

struct gm_copy;
struct gm_failure;

/* By hooks: an allocation could not be had. @failure is filled but for number, tsc, tid and
 * live_bytes. Records it, calls the observers, copies the journal for an OOM snapshot where the policy
 * wants one (oom.c), and asks for its file when that is due. Keeps nothing of @failure. */
void gm_oom_report(struct gm_failure *failure);

/* An OOM snapshot, the @number-th (from 1), was written to @path: keep the first and the last
 * ones. By the writer, holding gm_state.writing. */
void gm_oom_written(unsigned int number, const char *path);

/* An OOM snapshot is taken now; it is written, or could not be. By the writer. */
void gm_oom_begun(void);
void gm_oom_done(void);

/* Are there failures that no snapshot shows, newer than every one that one does? Async-signal-safe. */
bool gm_oom_owed(void);

/* How long until the newest of them may have its snapshot, the program living on; UINT64_MAX: there
 * are none, or one is asked for. By the helper. */
uint64_t gm_oom_owed_ns(void);

/* The oldest copy that was made when one of them failed, and its wall clock. Returns false when there is
 * none; the caller frees it. By the writer. */
bool gm_oom_take_copy(struct gm_copy *ret, uint64_t *ret_time_us);

/* The newest failure that @copy has, 0 none. */
uint64_t gm_oom_newest(const struct gm_copy *copy);

/* Failures up to @number are shown (@written), or could not be: they are not tried again. */
void gm_oom_settled(uint64_t number, bool written);

#endif
