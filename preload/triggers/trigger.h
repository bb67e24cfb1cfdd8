/*
 * trigger.h - ask for a snapshot; and the thread that takes it.
 *
 * A request sets a bit of gm_state.reasons and increments @request in the journal's header, a futex on
 * which the helper thread sleeps. gpumem snapshot PID increments @request from outside. @copied and
 * @answered in the header are the numbers of the last request for which the journal was copied, and of the
 * last one that was served.
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

/* Let signal @number ask for snapshots, if the program left that signal at its default. 0: no signal.
 * Called once, at the start. */
void gm_trigger_take_signal(unsigned int number);

/* Is there a helper thread other than the calling thread? */
bool gm_trigger_has_helper(void);

/* Ask the helper thread for a snapshot. Returns the number of the request. Async-signal-safe. */
uint32_t gm_trigger_ask(enum gm_request reason);

/* Wait at most @limit_ns until the journal has been copied for request @number, or until its snapshot
 * has been written. Returns true when that has happened. */
bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns);
bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns);

/* Sleep at most @limit_ns on a word of the header while it has the value @value. gm_trigger_wake wakes
 * all threads that sleep on the word. */
void gm_trigger_sleep(_Atomic(uint32_t) *word, uint32_t value, uint64_t limit_ns);
void gm_trigger_wake(_Atomic(uint32_t) *word);

/* ---- one snapshot: copy the journal, then write a file for each reason (snap.c) ---- */

/* Copy the journal, call @copied, and write one file for each bit (1 << enum gm_request) of @reasons.
 * One thread at a time: waits at most @limit_ns for gm_state.writing. Prints failures. Returns 0; -errno
 * when a file was not written; -ETIMEDOUT when another thread kept gm_state.writing. */
int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg);

/* Has this process ever allocated memory, or failed to? If not, it gets no snapshots. */
bool gm_snap_worth_it(void);

/* ---- run a function with its own table of file descriptors (own_files.c) ----
 *
 * The program may close every descriptor at any time and then open its own files under the same numbers. A
 * thread that writes through our descriptor would then write into a file of the program.
 */

/* Call @fn(@arg) and return when it has returned. @fn runs in a new thread that shares everything with
 * the caller, memory and thread-local storage included, except descriptors: it begins with 0 to 2 only,
 * and the files that it opens are closed when it returns. If no such thread can be made, the caller runs
 * @fn itself. Takes no lock, calls no malloc. */
void gm_with_own_files(void (*fn)(void *arg), void *arg);

/* ---- the helper thread, which writes the requested snapshots (helper.c) ---- */

/* Find the word in which the kernel shows that the main thread has ended. Called in the main thread,
 * when the library is loaded. */
void gm_helper_loaded(void);

/* Create the helper thread and the names thread. Called once, at the start. Returns 0 or -errno. */
int gm_helper_start(void);

#define GM_NAMES_EXIT_NS UINT64_C(200000000)	/* time for naming frames at the exit */

/* Let the names thread name frames that have no name yet, for about @limit_ns. If it does not answer,
 * return after twice that time, and at once in later calls until it answers. If no names thread was
 * created, the caller names them. Called by the thread that writes a snapshot. */
void gm_names_catch_up(uint64_t limit_ns);

/* ---- process exits in which our code still runs: exit, _exit, quick_exit (exit.c) ---- */

/* Register our handler with exit(). Called once, at the start. */
void gm_exit_start(void);

/* Take the exit snapshot, if the process is exiting, before a context ends with its memory (release,
 * reset, destroy). Called by hooks before the real call. */
void gm_exit_context_end(void);

/* ---- the signals that end a program (crash.c) ---- */

/* Install handlers for the deadly signals that the program left at their default. Called once, at the start,
 * after all other signals that the library takes. */
void gm_crash_start(void);

/* Walk and intern the stack of the thread that crashed. Opens no file. Does nothing when no thread has
 * crashed. Called by the thread that writes the crash snapshot, before it copies the journal. */
void gm_crash_describe(void);

/* Store the name and the inode of the crash snapshot in the header, before the file gets that name: a
 * second signal may kill the process at any time, and `gpumem recover` must know whether there is a
 * snapshot. Called by the same thread. */
void gm_crash_naming(const char *path, uint64_t inode);

/* Remove the journal, because it is no longer needed. gm_crash_written: the snapshot was written to
 * @header->last_snapshot. gm_crash_not_worth_it: there was nothing to write. Called by the same thread. */
void gm_crash_written(void);
void gm_crash_not_worth_it(void);

/* Install the SIGBUS handler, so that a truncated journal does not kill the program. Called after
 * gm_crash_start. */
void gm_bus_start(void);

/* Give signal @number its default effect after our handler returns, for a signal that the handler does
 * not handle. Called in that handler. */
void gm_crash_by_default(int number, void *info);

/* ---- out of memory: which failures get a snapshot, and which files stay (oom.c) ---- */

/* Report an allocation that failed because memory ran out. Record it, call the observers, copy the
 * journal if the policy in oom.c allows a copy, and ask for a snapshot if one is due. The caller has
 * filled in @failure except for number, tsc, tid and live_bytes. @failure is not used after the return.
 * Called by hooks. */
void gm_oom_report(struct gm_failure *failure);

/* As gm_oom_report, for a pool of the program, but calls no observer: the pool may hold locks of its
 * own, and an observer might wait for one of them. */
void gm_oom_report_pool(struct gm_failure *failure);

/* Note that the @number-th (from 1) OOM snapshot was written to @path, and remove the file that it
 * replaces (oom.c has the rule). Called by the writer, which holds gm_state.writing. */
void gm_oom_written(unsigned int number, const char *path);

/* Note that the writing of an OOM snapshot begins (_begun), and that it ended with or without success
 * (_done). Called by the writer. */
void gm_oom_begun(void);
void gm_oom_done(void);

/* Is the newest failure still without a snapshot? Async-signal-safe. */
bool gm_oom_owed(void);

/* Return the nanoseconds until that failure may get its snapshot. UINT64_MAX: every failure has one, or
 * the snapshot is already requested or being written. Called by the helper thread. */
uint64_t gm_oom_owed_ns(void);

/* Take the oldest journal copy that a failed allocation made, and the wall-clock time of the copy in
 * microseconds. The caller frees the copy. Returns false when there is none. Called by the writer. */
bool gm_oom_take_copy(struct gm_copy *ret, uint64_t *ret_time_us);

/* Return the number of the newest failure in @copy; 0: none. */
uint64_t gm_oom_newest(const struct gm_copy *copy);

/* Note that all failures up to @number have a snapshot (@written), or that writing it failed. There is
 * no second attempt. */
void gm_oom_shown(uint64_t number, bool written);

#endif
