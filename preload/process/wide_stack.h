/*
 * wide_stack.h - a function on a stack of its own: for what the first hook does once and needs more
 * stack for than a host's thread may have to spare.
 */
#ifndef GM_PRELOAD_WIDE_STACK_H
#define GM_PRELOAD_WIDE_STACK_H

/* Call @fn on a new stack, which is gone again when it returns, and return what it did. Where there
 * is no memory for one, on the caller's. One thread at a time. @fn must not be left otherwise: the
 * caller sees to it that the thread is not cancelled. */
int gm_on_wide_stack(int (*fn)(void));

#endif
