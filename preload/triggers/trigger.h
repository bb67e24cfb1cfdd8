/*
 * trigger.h - ask for a snapshot; and the thread that takes it.
 *
 * A request sets a bit of gm_state.reasons and increments the header's word @request, on whose futex the helper
 * thread sleeps. gpumem snapshot PID increments @request from outside. @copied and @answered are the numbers of
 * the last request that was copied and that was served.
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

/* Let signal @number ask for a snapshot, if the program left it at its default; 0: none. Called once, at the
 * start. */
void gm_trigger_take_signal(unsigned int number);

/* Is there a helper thread other than the calling thread? */
bool gm_trigger_has_helper(void);

/* Ask the helper thread for a snapshot. Returns the number of the request. Async-signal-safe. */
uint32_t gm_trigger_ask(enum gm_request reason);

/* Wait at most @limit_ns until the journal has been copied (the snapshot has been written) for request
 * @number. Returns true when it has. */
bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns);
bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns);

/* Sleep at most @limit_ns on a word of the header, while it is @value. gm_trigger_wake wakes the threads that
 * sleep on it. */
void gm_trigger_sleep(_Atomic(uint32_t) *word, uint32_t value, uint64_t limit_ns);
void gm_trigger_wake(_Atomic(uint32_t) *word);

/* ---- one snapshot: copy the journal, then write a file for each reason (snap.c) ---- */

/* Copy the journal, call @copied, and write one file for each bit (1 << enum gm_request) of @reasons. Failures
 * are printed. Returns 0; -errno when a file was not written; -ETIMEDOUT. One thread at a time: waits at most
 * @limit_ns for gm_state.writing. */
int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg);

/* Has this process ever allocated, or tried in vain? If not, it gets no snapshots. */
bool gm_snap_worth_it(void);

/* ---- run a function with its own table of file descriptors (own_files.c) ----
 *
 * The program may close every descriptor at any moment and then open its own files under the same numbers. A
 * thread that writes through our descriptor would then write into a file of the program.
 */

/* Call @fn(@arg) and return when it has returned. @fn runs in a thread that shares everything with the caller,
 * memory and thread-local storage included, except descriptors: it begins with 0 to 2 only, and the files that
 * it opens are closed at its end. If no such thread can be made, the caller runs @fn itself. Takes no lock,
 * calls no malloc. */
void gm_with_own_files(void (*fn)(void *arg), void *arg);

/* ---- the helper thread, which writes the requested snapshots (helper.c) ---- */

/* Find out where the kernel shows that the main thread has ended. Called in the main thread, when the library
 * is loaded. */
void gm_helper_loaded(void);

/* Create the helper thread and the names thread. Called once, at the start. Returns 0 or -errno. */
int gm_helper_start(void);

#define GM_NAMES_EXIT_NS UINT64_C(200000000)	/* time for names at the exit */

/* Have frames named that have no name yet, for about @limit_ns at most. If the names thread does not answer,
 * return after twice that time, and at the next call at once. Called by the thread that writes a snapshot. */
void gm_names_catch_up(uint64_t limit_ns);

/* ---- ends of a process in which our code still runs: exit, _exit, quick_exit (exit.c) ---- */

/* Register our handler with exit(). Called once, at the start. */
void gm_exit_start(void);

/* Take the exit snapshot if the process is exiting, because a context is about to end with its memory (release,
 * reset, destroy). Called by hooks before the real call. */
void gm_exit_context_end(void);

/* ---- the signals that end a program (crash.c) ---- */

/* Install handlers for the deadly signals that the program left at their default. Called once, at the start,
 * after all other signals that the library takes. */
void gm_crash_start(void);

/* Walk the stack of the thread that crashed, and find the modules of its frames. Opens no file. Does nothing
 * when no thread has crashed. Called by the thread that writes the crash snapshot, before it copies the
 * journal. */
void gm_crash_describe(void);

/* Note the name that the crash snapshot is about to get, because a second signal may kill the process at any
 * moment, and `gpumem recover` must know whether there is a snapshot. Called by the same thread. */
void gm_crash_naming(const char *path, uint64_t inode);

/* Remove the journal, which is no longer needed: the snapshot was written to @header->last_snapshot; or there
 * was nothing to write. Called by the same thread. */
void gm_crash_written(void);
void gm_crash_not_worth_it(void);

/* Install the SIGBUS handler, so that a truncated journal does not kill the program. Called after
 * gm_crash_start. */
void gm_bus_start(void);

/* Let signal @number end the process once our handler has returned, because the handler shall not handle it.
 * Called in that handler. */
void gm_crash_by_default(int number, void *info);

/* ---- memory runs out: which failure gets a snapshot, and which files stay (oom.c) ---- */

/* Report an allocation that failed for want of memory: record it, call the observers, copy the journal for an
 * OOM snapshot if the policy in oom.c allows one, and ask for its file if one is due. The caller has filled in
 * @failure except for number, tsc, tid and live_bytes. @failure is not used after the return. Called by
 * hooks. */
void gm_oom_report(struct gm_failure *failure);

/* As gm_oom_report, for a pool of the program. Calls no observer, because the pool may hold locks of its own
 * and an observer might wait for one of them. */
void gm_oom_report_pool(struct gm_failure *failure);

/* Note that the @number-th (from 1) OOM snapshot was written to @path, and remove the file that it replaces:
 * the first and the last ones stay. Called by the writer, which holds gm_state.writing. */
void gm_oom_written(unsigned int number, const char *path);

/* An OOM snapshot begins; it is written, or has failed. Called by the writer. */
void gm_oom_begun(void);
void gm_oom_done(void);

/* Is there no snapshot yet that shows the newest failure? Async-signal-safe. */
bool gm_oom_owed(void);

/* Return the nanoseconds until that failure may get its snapshot, if the program goes on; UINT64_MAX: there is
 * no such failure, or its snapshot is already requested. Called by the helper thread. */
uint64_t gm_oom_owed_ns(void);

/* Take the oldest journal copy that was made when an allocation failed, with the wall clock of that moment. The
 * caller frees the copy. Returns false when there is none. Called by the writer. */
bool gm_oom_take_copy(struct gm_copy *ret, uint64_t *ret_time_us);

/* Return the number of the newest failure in @copy; 0: none. */
uint64_t gm_oom_newest(const struct gm_copy *copy);

/* Note that failures up to @number have a snapshot (@written) or cannot get one. No further attempt is made. */
void gm_oom_shown(uint64_t number, bool written);

#endif
