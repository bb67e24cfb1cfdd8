/*
 * libinterrupt.c - a signal in the midst of the library: the INTERRUPT_AT-th time that the journal
 * asks for memory, which it does under its locks, the calling thread raises signal 12.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)

#define POPULATE_WRITE 23

int madvise(void *address, size_t bytes, int advice)
{
	static _Atomic(int) times;
	const char *at = getenv("INTERRUPT_AT");

	if (advice == POPULATE_WRITE && at && atomic_fetch_add(&times, 1) + 1 == atoi(at))
		raise(12);
	return (int)syscall(SYS_madvise, address, bytes, advice);
}
