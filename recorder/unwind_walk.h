/*
 * unwind_walk.h - our own walk, a frame at a time: what unwind.c and unwind_trail.c share. x86-64.
 *
 * Any context.
 */
#ifndef GM_RECORDER_UNWIND_WALK_H
#define GM_RECORDER_UNWIND_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind.h"
#include "recorder/window.h"

struct gm_walk {
	uintptr_t pc, sp, fp;
	bool exact;			/* @pc is an instruction, not a return address */
	int count;			/* frames given out so far */
	unsigned int flags;
	struct gm_window window;
};

void gm_walk_begin(struct gm_walk *w, const struct gm_regs *from);

/* The rule at @address, which the cache does not have; 0: there are no tables. */
uint64_t gm_walk_learn(uintptr_t address, uint32_t generation);

/* Undo a frame that the cache could not undo by itself. GM_NEXT_END: it was the outermost one, or
 * @w->flags say that the stack was cut; GM_NEXT_FULL: it needs all registers. @is_fault: the
 * registers that the walk began with are a signal's. */
enum gm_walk_next { GM_NEXT_FRAME, GM_NEXT_END, GM_NEXT_FULL };
enum gm_walk_next gm_walk_rare(struct gm_walk *w, uint64_t rule, bool is_fault);

#endif
