/*
 * unwind_step.h - one frame by its tables: the slow way, for the walk of unwind.c, where
 * the cache has no rule or a rule does not fit in a word.
 *
 * Any context. Stack: under 2.5 KiB, aarch64: 3 KiB.
 */
#ifndef GM_RECORDER_UNWIND_STEP_H
#define GM_RECORDER_UNWIND_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/cfi.h"
#include "recorder/unwind/window.h"

#if defined(__x86_64__)
/* The DWARF number of each register in a mcontext_t's gregs, in their order. */
extern const uint8_t gm_step_gregs[GM_CFI_REGS];
#endif

/* A return address without its signature (pointer authentication). */
static inline uintptr_t gm_step_strip(uintptr_t pc)
{
#if defined(__aarch64__)
	register uintptr_t x30 __asm__("x30") = pc;

	__asm__("hint #7" : "+r"(x30));		/* xpaclri, a no-op where there is none */
	return x30;
#else
	return pc;
#endif
}

/* Work out the rule for the instruction at @address and keep it in the cache. Returns it, or 0
 * where there are no tables or bad ones, which is not kept, because code may be loaded there
 * later. */
uint64_t gm_step_learn(uintptr_t address, uint32_t generation);

/* Is the instruction before @pc a call? On x86-64 @pc must lie in an object, since many bytes look
 * like a call. */
bool gm_step_is_after_call(uintptr_t pc);

struct gm_step_state {
	uintptr_t regs[GM_CFI_REGS];
	bool exact;			/* regs[GM_CFI_PC] is an instruction itself, not a return address */
};

/* Undo one frame over all registers. Returns 1; 0: it was the outermost frame; -errno. */
int gm_step_full(struct gm_step_state *state, struct gm_window *window);

#endif
