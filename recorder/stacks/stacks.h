/*
 * stacks.h - capture and intern the stack of an operation, and find the module of its caller.
 *
 * One walk gives both. Equal stacks have one id. Capturing a stack that was seen before takes no lock. Native
 * frames and Python's frames are walked separately, and merged when the stack is new.
 *
 * Thread context: any, no lock of ours held (the walk takes none; a stack never seen takes the intern lock).
 * Signal context: none. errno is kept.
 */
#ifndef GM_RECORDER_STACKS_H
#define GM_RECORDER_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/unwind.h"

/* Set the range of our own code, [@own_start, @own_end), whose frames are left out at the beginning of a walk.
 * Call once, at the start, before the first capture. Nothing is captured before gm_stacks_configure. */
void gm_stacks_init(uintptr_t own_start, uintptr_t own_end);

/* Set what is captured from now on; any thread. @depth: the most frames of a stack, 1 to 256. With @native and
 * @python, Python's frames take the places of the native frames that run them. */
void gm_stacks_configure(bool native, bool python, unsigned int depth);

/* Is anything captured? */
extern _Atomic(uint32_t) gm_stacks_what __attribute__((visibility("hidden")));
static inline bool gm_stacks_wanted(void)
{
	return __atomic_load_n((const uint32_t *)&gm_stacks_what, __ATOMIC_RELAXED) != 0;
}

/* Return the id of the stack that begins at @from; GM_NONE when there is no room for it or when no stacks are
 * wanted. *ret_module: the module of the caller, as gm_modules_caller returns it; not set when no stacks are
 * wanted. */
uint32_t gm_stacks_capture(const struct gm_regs *from, uint16_t *ret_module);

/* For tests: the captures, since the process began, that found a new stack and interned it. */
extern _Atomic(uint64_t) gm_stacks_met;

/* ---- for the tests: the stacks seen by any thread ---- */

/* Return the value kept for @hash (0: none), and keep @value (not 0) for @hash. Lossy, no lock. */
uint64_t gm_seen_find(uint64_t hash);
void gm_seen_keep(uint64_t hash, uint64_t value);

#endif
