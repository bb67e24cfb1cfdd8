/*
 * libcancelpoints.c - reports cancellation points that the library reaches on a thread of the program while
 * cancellation is enabled: a pthread_cancel would end that thread in the middle of a hook, and whatever lock
 * it has would be held for good.
 *
 * Preloaded beside libgpumem.so, it stands before the C library's functions that are cancellation points, and
 * says once on stderr which of them the library called. The library's own threads, which nobody can cancel,
 * are known by their names and left out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)

static struct { uintptr_t base, from, to; } library;

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	if (!strstr(info->dlpi_name, "/libgpumem.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_X)) {
			library.base = info->dlpi_addr;
			library.from = info->dlpi_addr + ph->p_vaddr;
			library.to = library.from + ph->p_memsz;
		}
	}
	return 1;
}

__attribute__((constructor)) static void find_library(void)
{
	dl_iterate_phdr(look, NULL);
}

static bool cancellable(uintptr_t caller)
{
	char name[16] = "";
	int state, ignored;

	if (caller < library.from || caller >= library.to)
		return false;
	prctl(PR_GET_NAME, name, 0, 0, 0);
	if (!strcmp(name, "gpumem") || !strcmp(name, "gpumem-names"))
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcancelstate(state, &ignored);
	return state == PTHREAD_CANCEL_ENABLE;
}

static void tell(const char *function, _Atomic(bool) *told, uintptr_t caller)
{
	char line[128];
	int n;

	if (!cancellable(caller) || atomic_exchange(told, true))
		return;
	n = snprintf(line, sizeof(line), "libcancelpoints: the library called %s on a thread of the program at %#lx\n", function,
		     (unsigned long)(caller - library.base));
	syscall(SYS_write, STDERR_FILENO, line, (size_t)n);
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

/* @type @name@params, which hands @args to the next function of that name. */
#define POINT(type, name, params, args)						\
	type name params							\
	{									\
		static _Atomic(bool) told;					\
		static __typeof__(&name) next;					\
										\
		tell(#name, &told, CALLER);					\
		if (!next)							\
			next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);	\
		return next args;						\
	}

POINT(int, nanosleep, (const struct timespec *time, struct timespec *rest), (time, rest))
POINT(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *rest),
      (clock, flags, time, rest))
POINT(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes))
POINT(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
POINT(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at))
POINT(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes))
POINT(int, close, (int fd), (fd))
POINT(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
POINT(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *limit), (set, info, limit))

/* These two take a mode, or not: the system call takes it always. */
#define OPENS(name, dirfd, params)						\
	int name params								\
	{									\
		static _Atomic(bool) told;					\
		mode_t mode = 0;						\
		va_list args;							\
										\
		va_start(args, flags);						\
		if (flags & (O_CREAT | O_TMPFILE))				\
			mode = va_arg(args, mode_t);				\
		va_end(args);							\
		tell(#name, &told, CALLER);					\
		return (int)syscall(SYS_openat, dirfd, path, flags, mode);	\
	}

OPENS(open, AT_FDCWD, (const char *path, int flags, ...))
OPENS(openat, dirfd, (int dirfd, const char *path, int flags, ...))
