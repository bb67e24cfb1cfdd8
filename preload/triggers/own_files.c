/*
 * own_files.c - run a function with its own table of file descriptors (see trigger.h).
 *
 * clone() without CLONE_FILES makes a thread with a copy of the table. The thread at once closes the
 * program's descriptors in the copy, because a file that the program closes must not stay open here. With
 * CLONE_VFORK the caller sleeps until the thread has ended, so that both can use one thread pointer. (The
 * program's file locks are not affected, because the kernel ties a lock to the table through which it was
 * taken.)
 *
 * Thread context: the helper thread; without one, a thread of the program. Signal context: none.
 */
#define _GNU_SOURCE
#include "preload/triggers/trigger.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (512u << 10)
#define GUARD_BYTES (64u << 10)

struct call { void (*fn)(void *arg); void *arg; };

static int entry(void *arg)
{
	const struct call *call = arg;

#ifdef SYS_close_range
	syscall(SYS_close_range, 3u, ~0u, 0u);		/* before Linux 5.9 they stay open until the end */
#endif
	call->fn(call->arg);
	return 0;
}

/* Does the program run under Valgrind? Valgrind ends a program that makes such a thread. It recognizes four
 * rotations that add up to a whole turn, which change nothing on a processor, and answers them (valgrind.h:
 * RUNNING_ON_VALGRIND). */
static __attribute__((unused)) bool under_valgrind(void)
{
	const uint64_t request[6] = { 0x1001 };
	uint64_t answer = 0;

#if defined(__x86_64__)
	__asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"
			 "xchgq %%rbx, %%rbx"
			 : "+d"(answer) : "a"(request) : "rdi", "cc", "memory");
#elif defined(__aarch64__)
	register const uint64_t *x4 __asm__("x4") = request;
	register uint64_t x3 __asm__("x3") = 0;

	__asm__ volatile("ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\t"
			 "ror x12, x12, #61\n\torr x10, x10, x10"
			 : "+r"(x3) : "r"(x4) : "cc", "memory", "x12");
	answer = x3;
#endif
	return answer != 0;
}

/* Would a tool misunderstand such a thread? The thread sanitizer attributes its actions to the calling thread, and
 * loses the order between the two threads. */
static bool unknown_to_tools(void)
{
#ifdef __SANITIZE_THREAD__
	return true;
#else
	return under_valgrind();
#endif
}

void gm_with_own_files(void (*fn)(void *arg), void *arg)
{
	struct call call = { fn, arg };
	char *stack = unknown_to_tools() ? MAP_FAILED :
		      mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	sigset_t all, before;
	int child = -1;

	if (stack != MAP_FAILED) {
		mprotect(stack, GUARD_BYTES, PROT_NONE);
		/* No signal handler of the program may run in a thread that the program does not know. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		child = clone(entry, stack + GUARD_BYTES + STACK_BYTES,
			      CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			      CLONE_VFORK, &call);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		munmap(stack, GUARD_BYTES + STACK_BYTES);
	}
	if (child < 0)
		fn(arg);
}
