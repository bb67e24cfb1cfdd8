/*
 * trigger.h - asking the helper thread for a snapshot.
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
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/format.h"

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

#endif
