/*
 * unwind_frames.h - the chain of frame records, for want of anything better: {caller's frame
 * pointer, return address} at each frame pointer.
 *
 * aarch64: gcc and clang keep it by default; code compiled without it is missing from the stack, or
 * ends it. x86-64: only code compiled with -fno-omit-frame-pointer has it; a frame whose return
 * address does not come after a call is not believed, and ends the stack.
 *
 * Any context, as unwind.h.
 */
#ifndef GM_RECORDER_UNWIND_FRAMES_H
#define GM_RECORDER_UNWIND_FRAMES_H

#include "recorder/unwind/unwind.h"

/* As gm_unwind_ends; @ret_ends may be NULL. */
int gm_unwind_frames(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		     unsigned int *ret_flags);

#endif
