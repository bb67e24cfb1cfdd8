/*
 * window.h - the part of a stack that is known to be readable.
 *
 * A thread's own stack is found once. Every page is probed (gm_probe_word) from the page of the stack pointer
 * up to the top of the stack, which is at the thread pointer (threads of the C library) or below the kernel's
 * AT_EXECFN string (the first thread). If all pages can be read, they are the thread's stack, because a hole or
 * a guard page separates a fibre's or alternate stack from that top. The result is kept for each thread and
 * only grows downwards. On other stacks every walk probes each page again, because a fibre's stack may be
 * unmapped by the next walk.
 *
 * Any thread, any signal context (per-thread words, each valid at any time), any fork child.
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

/* Grow or move the window so that it contains the word at @address (aligned). Returns false when the word
 * cannot be read, or when this walk has probed too many pages. */
bool gm_window_move(struct gm_window *window, uintptr_t address);

static inline bool gm_window_holds(const struct gm_window *window, uintptr_t address)
{
	return address >= window->lo && address < window->hi;
}

/* Read the aligned word at @address. Returns false when it cannot be read. */
bool gm_window_read(struct gm_window *window, uintptr_t address, uintptr_t *ret_word);

#endif
