/*
 * trigger.h - what may ask for a snapshot, and the one helper thread that writes it.
 *
 * Thread context: any, inside a hook or not; no lock of ours held. Signal context: only
 * gm_trigger_signal. Fork: state is on the wiped pages; a child has no helper until it starts.
 */
#ifndef GM_PRELOAD_TRIGGER_H
#define GM_PRELOAD_TRIGGER_H

#include <stddef.h>
#include <stdint.h>

#include "recorder/format.h"

enum gm_reason { GM_REASON_EXIT = 1, GM_REASON_SIGNAL, GM_REASON_OOM, GM_REASON_API };

/* Create the helper thread; once, at the start. Returns 0 or -errno. */
int gm_trigger_start(void);

/* By hooks: an allocation could not be had. @failure is filled but for number, tsc, tid and
 * live_bytes. Records it, calls the observers, asks for an OOM snapshot where the policy wants
 * one and waits, bounded, until the journal has been copied. Keeps nothing of @failure. */
void gm_oom_report(struct gm_failure *failure);

/* By hooks: the memory of a context is about to go (release, reset, destroy), before the real
 * call. While the process exits this takes the exit snapshot; else it does nothing. */
void gm_exit_context_end(void);

#endif
