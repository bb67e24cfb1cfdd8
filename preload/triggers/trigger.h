/*
 * trigger.h - what may ask for a snapshot, and the one helper thread that writes it.
 *
 * A request is a bit of gm_state.reasons and one more in the header's word @request, which is the
 * futex that the helper sleeps on; gpumem snapshot PID bumps it from outside. @copied and
 * @answered follow it.
 *
 * Thread context: any, inside a hook or not; no lock of ours held. Signal context: gm_trigger_ask.
 * Fork: state is on the wiped pages, a child has no helper.
 */
#ifndef GM_PRELOAD_TRIGGER_H
#define GM_PRELOAD_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/format.h"

/* In the main thread, when the library is loaded: learn how to see that it is gone. */
void gm_trigger_loaded(void);

/* Create the helper thread; once, at the start. Returns 0 or -errno. */
int gm_trigger_start(void);

/* Is there a helper thread, and is it another one than the caller? */
bool gm_trigger_has_helper(void);

/* Ask the helper for a snapshot. Returns the number to wait for. Async-signal-safe. */
uint32_t gm_trigger_ask(enum gm_request reason);

/* Wait until the journal was copied (the snapshot was written) for request @number, at most
 * @limit_ns. Returns true when it was. */
bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns);
bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns);

/* By hooks: an allocation could not be had. @failure is filled but for number, tsc, tid and
 * live_bytes. Records it, calls the observers, copies the journal for an OOM snapshot where the policy
 * wants one (oom.c), and asks for its file when that is due. Keeps nothing of @failure. */
void gm_oom_report(struct gm_failure *failure);

/* By hooks: the memory of a context is about to go (release, reset, destroy), before the real
 * call. While the process exits this takes the exit snapshot; else it does nothing. */
void gm_exit_context_end(void);

#endif
