/*
 * unwind_step.h - one frame by its tables: the slow way, which the walk of unwind.c takes where
 * the cache has no rule or a rule does not fit in a word. x86-64.
 *
 * Any context. Stack: under 2.5 KiB.
 */
#ifndef GM_RECORDER_UNWIND_STEP_H
#define GM_RECORDER_UNWIND_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/cfi.h"
#include "recorder/unwind/window.h"

/* The DWARF number of each register in a mcontext_t's gregs, in their order. */
extern const uint8_t gm_step_gregs[GM_CFI_REGS];

/* Work out the rule for the instruction at @address and keep it in the cache. Returns it, or 0
 * where there are no tables or bad ones (not kept: code may yet be loaded there). */
uint64_t gm_step_learn(uintptr_t address, uint32_t generation);

/* Does the instruction before @pc, in some object, call? */
bool gm_step_is_after_call(uintptr_t pc);

struct gm_step_state {
	uintptr_t regs[GM_CFI_REGS];
	bool exact;			/* regs[GM_CFI_RA] is no return address */
};

/* Undo one frame over all registers. Returns 1; 0: it was the outermost frame; -errno. */
int gm_step_full(struct gm_step_state *state, struct gm_window *window);

#endif
