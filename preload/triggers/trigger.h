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

#endif
