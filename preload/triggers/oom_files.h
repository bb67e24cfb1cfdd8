/*
 * oom_files.h - the snapshots of memory running out: which failure has one, and which files stay.
 */
#ifndef GM_PRELOAD_OOM_FILES_H
#define GM_PRELOAD_OOM_FILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GM_OOM_PAUSE_FACTOR 20u		/* of copies and files: a twentieth of the time at most */

struct gm_copy;

/* How many of @kept files belong to the first failures. The last one always has a place. */
unsigned int gm_oom_first_ones(uint64_t kept);

/* Set @word to @number where it is less. */
void gm_oom_raise(_Atomic(uint64_t) *word, uint64_t number);

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
void gm_oom_shown(uint64_t number, bool written);

#endif
