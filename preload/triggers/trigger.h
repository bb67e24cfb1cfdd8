/*
 * trigger.h - what asks for a snapshot, and who takes it.
 *
 * A request is a bit of gm_state.reasons and one more in the header's word @request, which is the
 * futex that the helper sleeps on; gpumem snapshot PID bumps it from outside. @copied and
 * @answered follow it.
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

/* Is there a helper thread, and is it another one than the caller? */
bool gm_trigger_has_helper(void);

/* Ask the helper for a snapshot. Returns the number to wait for. Async-signal-safe. */
uint32_t gm_trigger_ask(enum gm_request reason);

/* Wait until the journal was copied (the snapshot was written) for request @number, at most
 * @limit_ns. Returns true when it was. */
bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns);
bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns);

/* Sleep on a word of the header while it is @value, at most @limit_ns; wake who sleeps on it. */
void gm_trigger_sleep(_Atomic(uint32_t) *word, uint32_t value, uint64_t limit_ns);
void gm_trigger_wake(_Atomic(uint32_t) *word);

/* ---- one snapshot: copy the journal, then write a file for each that asked (snap.c) ---- */

/* Copy, call @copied, write one file per bit (1 << enum gm_request) of @reasons. Failures are
 * said; returns 0, or -errno when a file could not be written. Any one thread (gm_state.writing
 * is taken, waiting at most @limit_ns: -ETIMEDOUT). */
int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg);

/* Did this process ever allocate, or fail to? */
bool gm_snap_worth_it(void);

/* ---- a function run with a table of file descriptors of its own (own_files.c) ----
 *
 * The program may close every descriptor at any moment, and then open files of its own under the same
 * numbers: whoever writes through a descriptor of ours would write into those.
 */

/* Call @fn(@arg) and return when it has: in a thread that shares all with the caller, its memory and
 * thread-local storage too, but not its descriptors. Of those it begins with 0 to 2; what it opens is
 * closed at its end. Where such a thread cannot be made, in the caller itself. Takes no lock, calls
 * no malloc. */
void gm_with_own_files(void (*fn)(void *arg), void *arg);

/* ---- the helper thread, which writes the snapshots that were asked for (helper.c) ---- */

/* In the main thread, when the library is loaded: learn how to see that it has ended. */
void gm_helper_loaded(void);

/* Create the helper thread; once, at the start. Returns 0 or -errno. */
int gm_helper_start(void);

/* ---- the ends of a process at which it still runs: exit, _exit, quick_exit (exit.c) ---- */

/* Register what exit() is to call; once, at the start. */
void gm_exit_start(void);

/* By hooks: the memory of a context is about to go (release, reset, destroy), before the real
 * call. While the process exits this takes the exit snapshot; else it does nothing. */
void gm_exit_context_end(void);

/* ---- the signals that end a program (crash.c) ---- */

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

/* Behind that: a journal that somebody cuts short (truncates) does not kill the program. */
void gm_bus_start(void);

/* For a handler of ours that is not to handle signal @number: the signal ends the process, once that
 * handler has returned. Signal context. */
void gm_crash_by_default(int number, void *info);

/* ---- memory runs out: which failure has a snapshot, and which files stay (oom.c) ---- */

/* By hooks: an allocation could not be had. @failure is filled but for number, tsc, tid and
 * live_bytes. Records it, calls the observers, copies the journal for an OOM snapshot where the policy
 * wants one (oom.c), and asks for its file when that is due. Keeps nothing of @failure. */
void gm_oom_report(struct gm_failure *failure);

/* The same of a pool of the program's, whose locks may be held: no observer is called, who might wait for
 * one of them. */
void gm_oom_report_pool(struct gm_failure *failure);

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
