/*
 * unwind_step.h - undo one frame by its tables. This is the slow way, which unwind.c takes when the cache has
 * no rule or when the rule does not fit in a word.
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
/* The DWARF numbers of the registers in the order of mcontext_t's gregs. */
extern const uint8_t gm_step_gregs[GM_CFI_REGS];
#endif

/* Remove the signature of a return address (pointer authentication). */
static inline uintptr_t gm_step_strip(uintptr_t pc)
{
#if defined(__aarch64__)
	register uintptr_t x30 __asm__("x30") = pc;

	__asm__("hint #7" : "+r"(x30));		/* xpaclri, a no-op on processors without it */
	return x30;
#else
	return pc;
#endif
}

/* Compute the rule for the instruction at @address and add it to the cache. Returns the rule; 0 when there are
 * no tables, or bad ones. That result is not cached, because code may be loaded there later. */
uint64_t gm_step_learn(uintptr_t address, uint32_t generation);

/* Is the instruction before @pc a call? On x86-64 @pc must also lie in an object, because many other bytes look
 * like a call. */
bool gm_step_is_after_call(uintptr_t pc);

struct gm_step_state {
	uintptr_t regs[GM_CFI_REGS];
	bool exact;			/* regs[GM_CFI_PC] is the instruction itself, not a return address */
};

/* Undo one frame with all registers. Returns 1; 0 when it was the outermost frame; -errno. */
int gm_step_full(struct gm_step_state *state, struct gm_window *window);

#endif
