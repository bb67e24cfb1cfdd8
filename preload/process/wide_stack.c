/*
 * wide_stack.c - a function on a stack of its own (see wide_stack.h).
 *
 * By makecontext, which knows what the C library and the processor want of a stack (shadow stacks
 * too). The sanitizers want to be told of every switch: there the caller's stack is taken.
 *
 * Thread context: one at a time. Signal context: none; a handler may run on the new stack. Fork: a
 * child made in the midst has a stack of its own, like its parent.
 */
#define _GNU_SOURCE
#include "preload/process/wide_stack.h"

#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define STACK_BYTES (256u << 10)	/* as used: pages that are never touched cost nothing */
#define GUARD_BYTES (64u << 10)		/* at its lower end; the largest pages there are */

static struct {
	ucontext_t there, back;
	int (*fn)(void);
	int result;
} call;

static void entry(void)
{
	call.result = call.fn();
}

int gm_on_wide_stack(int (*fn)(void))
{
	char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return fn();
	mprotect(stack, GUARD_BYTES, PROT_NONE);
	if (getcontext(&call.there)) {
		munmap(stack, GUARD_BYTES + STACK_BYTES);
		return fn();
	}
	call.there.uc_stack.ss_sp = stack + GUARD_BYTES;
	call.there.uc_stack.ss_size = STACK_BYTES;
	call.there.uc_link = &call.back;
	call.fn = fn;
	makecontext(&call.there, entry, 0);
	if (swapcontext(&call.back, &call.there))
		call.result = fn();
	munmap(stack, GUARD_BYTES + STACK_BYTES);
	return call.result;
}

#else

int gm_on_wide_stack(int (*fn)(void))
{
	return fn();
}

#endif
