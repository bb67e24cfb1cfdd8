/*
 * window.h - the part of a stack that is known to be readable.
 *
 * A thread's own stack is found once: from the page of its stack pointer on, every page is probed
 * (gm_probe_word) up to the stack's top, which is at the thread pointer (threads of the C library)
 * or below the kernel's AT_EXECFN string (the first thread). If all these pages can be read, they
 * are that stack: between a fibre's or alternate stack and the top there is a hole or a guard page.
 * The result is kept per thread and only grows downwards. On other stacks each page is probed anew
 * in every walk, because a fibre's stack may be unmapped the next time.
 *
 * Any thread, any signal context (per-thread words, each valid at every moment), any fork child.
 */
#ifndef GM_RECORDER_WINDOW_H
#define GM_RECORDER_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct gm_window {
	uintptr_t lo, hi;		/* every aligned word in [lo, hi) can be read */
	unsigned int probes;		/* pages probed in this walk */
};

/* Begin a walk at the stack pointer @sp. */
void gm_window_open(struct gm_window *window, uintptr_t sp);

/* Make the window contain the word at @address (aligned), by growing or moving it. Returns false
 * when the word cannot be read, or this walk has probed too many pages. */
bool gm_window_move(struct gm_window *window, uintptr_t address);

static inline bool gm_window_holds(const struct gm_window *window, uintptr_t address)
{
	return address >= window->lo && address < window->hi;
}

/* Read the aligned word at @address. Returns false when it cannot be. */
bool gm_window_read(struct gm_window *window, uintptr_t address, uintptr_t *ret_word);

#endif
