/*
 * trigger.h - what asks for a snapshot, and which thread takes it.
 *
 * A request sets a bit of gm_state.reasons and increments the header's word @request, which is the
 * futex on which the helper thread sleeps; gpumem snapshot PID increments it from outside. @copied
 * and @answered are set to the number of the request that was copied, and served, last.
 *
 * Thread context: any, inside a hook or not; no lock of ours held. Signal context: gm_trigger_ask.
 */
#ifndef GM_PRELOAD_TRIGGER_H
#define GM_PRELOAD_TRIGGER_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

struct gm_copy;
struct gm_failure;

/* Take signal @number, if the program left it at its default, to ask for a snapshot; 0: none. Once,
 * at the start. */
void gm_trigger_take_signal(unsigned int number);

/* Is there a helper thread, and is it not the calling one? */
bool gm_trigger_has_helper(void);

/* Ask the helper for a snapshot. Returns the number to wait for. Async-signal-safe. */
uint32_t gm_trigger_ask(enum gm_request reason);

/* Wait until the journal was copied (the snapshot was written) for request @number, at most
 * @limit_ns. Returns true when it was. */
bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns);
bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns);

/* Sleep on a word of the header while it is @value, at most @limit_ns; wake the threads that sleep
 * on it. */
void gm_trigger_sleep(_Atomic(uint32_t) *word, uint32_t value, uint64_t limit_ns);
void gm_trigger_wake(_Atomic(uint32_t) *word);

/* ---- one snapshot: copy the journal, then write a file for each reason (snap.c) ---- */

/* Copy the journal, call @copied, write one file per bit (1 << enum gm_request) of @reasons.
 * Failures are printed; returns 0, or -errno when a file could not be written. One thread at a
 * time: gm_state.writing is taken, waiting at most @limit_ns (-ETIMEDOUT). */
int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg);

/* Has this process ever allocated, or failed to? Else it gets no snapshots. */
bool gm_snap_worth_it(void);

/* ---- a function run with a table of file descriptors of its own (own_files.c) ----
 *
 * The program may close every descriptor at any moment, and then open files of its own under the same
 * numbers: whoever writes through a descriptor of ours would write into those.
 */

/* Call @fn(@arg) and return when it has returned. It runs in a thread that shares everything with
 * the caller, its memory and thread-local storage included, except descriptors: it begins with 0 to
 * 2 only, and what it opens is closed at its end. Where such a thread cannot be made, the caller
 * itself runs @fn. Takes no lock, calls no malloc. */
void gm_with_own_files(void (*fn)(void *arg), void *arg);

/* ---- the helper thread, which writes the snapshots that were asked for (helper.c) ---- */

/* In the main thread, when the library is loaded: find out where the kernel shows that this thread
 * has ended. */
void gm_helper_loaded(void);

/* Create the helper thread, and the names thread; once, at the start. Returns 0 or -errno. */
int gm_helper_start(void);

#define GM_NAMES_EXIT_NS UINT64_C(200000000)	/* for names, at the exit */

/* By the thread that writes a snapshot: have the frames named that have no name yet, for about
 * @limit_ns at most. Where the names thread does not answer, return after twice that, and at once
 * the next time. */
void gm_names_catch_up(uint64_t limit_ns);

/* ---- the ends of a process at which it still runs: exit, _exit, quick_exit (exit.c) ---- */

/* Register what exit() is to call; once, at the start. */
void gm_exit_start(void);

/* By hooks, before the real call: a context is about to end with its memory (release, reset,
 * destroy). While the process exits this takes the exit snapshot; else it does nothing. */
void gm_exit_context_end(void);

/* ---- the signals that end a program (crash.c) ---- */

/* Install handlers for the deadly signals that the program left at their default. Once, at the
 * start, after every other signal that the library takes. */
void gm_crash_start(void);

/* By the thread that writes the crash snapshot, before the journal is copied: walk the stack of the
 * thread that crashed, and find the modules of its frames. Opens no file. Does nothing when no
 * thread has crashed. */
void gm_crash_describe(void);

/* By the same thread, just before the file gets its name: a second signal may kill the process at
 * any moment, and `gpumem recover` must know whether there is a snapshot. */
void gm_crash_naming(const char *path, uint64_t inode);

/* By the same thread, afterwards: the snapshot was written to @header->last_snapshot; or there was
 * nothing to be written. The journal is no longer needed and is removed. */
void gm_crash_written(void);
void gm_crash_not_worth_it(void);

/* After gm_crash_start: install the SIGBUS handler by which a truncated journal does not kill the
 * program. */
void gm_bus_start(void);

/* In a handler of ours, for a signal @number that it shall not handle: the signal ends the process
 * once that handler has returned. Signal context. */
void gm_crash_by_default(int number, void *info);

/* ---- memory runs out: which failure has a snapshot, and which files stay (oom.c) ---- */

/* By hooks: an allocation failed for want of memory. @failure is filled in except for number, tsc,
 * tid and live_bytes. Records it, calls the observers, copies the journal for an OOM snapshot where
 * the policy in oom.c allows one, and asks for its file when that is due. @failure is not used
 * after the return. */
void gm_oom_report(struct gm_failure *failure);

/* The same for a pool of the program's, which may hold locks of its own: no observer is called,
 * since it might wait for one of them. */
void gm_oom_report_pool(struct gm_failure *failure);

/* An OOM snapshot, the @number-th (from 1), was written to @path: keep the first and the last
 * ones. By the writer, holding gm_state.writing. */
void gm_oom_written(unsigned int number, const char *path);

/* An OOM snapshot is taken now; it is written, or could not be. By the writer. */
void gm_oom_begun(void);
void gm_oom_done(void);

/* Is the newest failure one that no snapshot shows? Async-signal-safe. */
bool gm_oom_owed(void);

/* Nanoseconds until that failure may get its snapshot, if the program goes on; UINT64_MAX: there is
 * no such failure, or its snapshot is asked for already. By the helper thread. */
uint64_t gm_oom_owed_ns(void);

/* The oldest journal copy that was made when an allocation failed, and the wall clock then. Returns
 * false when there is none; the caller frees it. By the writer. */
bool gm_oom_take_copy(struct gm_copy *ret, uint64_t *ret_time_us);

/* The newest failure that @copy has, 0 none. */
uint64_t gm_oom_newest(const struct gm_copy *copy);

/* Failures up to @number are shown (@written), or could not be: they are not tried again. */
void gm_oom_shown(uint64_t number, bool written);

#endif
