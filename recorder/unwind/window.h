/*
 * window.h - the part of a stack that is known to be readable.
 *
 * A thread's own stack is learnt once: from the page of its stack pointer every page is asked for
 * (gm_probe_word) up to its top, which the C library puts at the thread pointer (threads) or
 * below the kernel's AT_EXECFN string (the first thread). A run of readable pages from here to
 * there is that stack: fibres and alternate stacks have a hole or a guard page on the way. It is
 * kept per thread and only grows downwards. Elsewhere each page is asked for anew in every walk:
 * a fibre's stack may be unmapped the next time.
 *
 * Any thread, any signal context (per-thread words, each valid at every moment), any fork child.
 */
#ifndef GM_RECORDER_WINDOW_H
#define GM_RECORDER_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct gm_window {
	uintptr_t lo, hi;		/* every aligned word in [lo, hi) can be read */
	unsigned int probes;		/* pages asked for in this walk */
};

/* Begin a walk at the stack pointer @sp. */
void gm_window_open(struct gm_window *window, uintptr_t sp);

/* Make the window hold the word at @address (aligned), growing or moving it. Returns false when
 * it cannot be read, or this walk has asked for too many pages. */
bool gm_window_move(struct gm_window *window, uintptr_t address);

static inline bool gm_window_holds(const struct gm_window *window, uintptr_t address)
{
	return address >= window->lo && address < window->hi;
}

/* Read the aligned word at @address. Returns false when it cannot be. */
bool gm_window_read(struct gm_window *window, uintptr_t address, uintptr_t *ret_word);

#endif
