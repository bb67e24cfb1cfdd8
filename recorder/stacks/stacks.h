/*
 * stacks.h - the stack of an operation, captured and interned, and the module of its caller.
 *
 * One walk gives both. Equal stacks have one id: a stack seen before takes no lock. Native frames
 * and Python's frames are walked separately, and merged when they are new.
 *
 * Thread context: any, no lock of ours held (the walk takes none; a stack never seen takes the
 * intern lock). Signal context: none. errno is kept.
 */
#ifndef GM_RECORDER_STACKS_H
#define GM_RECORDER_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/unwind.h"

/* Our own code is [@own_start, @own_end): frames there are left out at the beginning of a walk.
 * Called once, at the start, before the first capture; nothing is captured before
 * gm_stacks_configure. */
void gm_stacks_init(uintptr_t own_start, uintptr_t own_end);

/* What is captured from now on, from any thread: @depth frames at most, 1 to 256.
 * With both, Python's frames take the places of the native ones that run them. */
void gm_stacks_configure(bool native, bool python, unsigned int depth);

/* Is anything captured? */
extern _Atomic(uint32_t) gm_stacks_what __attribute__((visibility("hidden")));
static inline bool gm_stacks_wanted(void)
{
	return __atomic_load_n((const uint32_t *)&gm_stacks_what, __ATOMIC_RELAXED) != 0;
}

/* The id of the stack that begins at @from; GM_NONE when none is wanted or there is no room for it.
 * @ret_module: the module of the caller, as gm_modules_caller returns it. */
uint32_t gm_stacks_capture(const struct gm_regs *from, uint16_t *ret_module);

/* For tests: how many captures, since the process began, found a stack that was not among those kept, and
 * interned it. */
extern _Atomic(uint64_t) gm_stacks_met;

/* ---- for the tests: the stacks seen by any thread ---- */

/* The value that was kept for @hash (0: none), and keep @value, which is not 0. Lossy, no lock. */
uint64_t gm_seen_find(uint64_t hash);
void gm_seen_keep(uint64_t hash, uint64_t value);

#endif
