/*
 * libunwind.h - stacks by libunwind, where our own unwinder cannot follow them (unwind.h).
 *
 * The library is opened by the helper thread, RTLD_LOCAL, holding no lock of ours, and published by
 * one pointer; who finds none, or finds all places taken, goes without: nobody waits for it. It is
 * libunwind's generic half (libunwind-x86_64.so.8, libunwind-aarch64.so.8, of the same package as
 * libunwind.so.8), which asks its user for everything it reads, so that the traps that users of the
 * other half met (libunwind.c) are none here:
 *   - every word, of the stack and of the tables, is proved readable before it is read;
 *   - objects are found as for our own unwinder: no dl_iterate_phdr, no lock of the loader's;
 *   - what it keeps of rules is flushed when objects came or went, and a stale one could only
 *     give a wrong frame;
 *   - it has no _Unwind_* and no backtrace() that the program could come to use.
 *
 * Thread context: gm_libunwind_open the helper thread; the walk any. Signal context: the walk; a
 * handler that interrupts one takes another place. Fork: gm_libunwind_forget in the child.
 */
#ifndef GM_RECORDER_LIBUNWIND_H
#define GM_RECORDER_LIBUNWIND_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind.h"

/* Open it, prove on a stack of known shape that it can be used, publish it. Once; loads a library.
 * Returns 0; -ENOENT: it is not installed; -ENOTSUP: it is not as we know it; -EALREADY. */
int gm_libunwind_open(void);

/* Is it there to be used? */
bool gm_libunwind_ready(void);

/* As gm_unwind_ends (@ret_ends may be NULL) by libunwind alone, but that the first @known frames
 * must be those in @ret_pcs already: returns -ESTALE where they are not, -EBUSY when it is not
 * there or all places are taken. 1 KiB of stack and what libunwind takes (about 2 KiB more). */
int gm_libunwind_walk(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends,
		      int max, int known, unsigned int *ret_flags);

/* Objects may have changed. */
void gm_libunwind_flush(void);

/* In a forked child: a walk that another thread was in the midst of will never end, and libunwind's
 * own locks may be held for ever: then it is not used again. Async-signal-safe. */
void gm_libunwind_forget(void);

#endif
