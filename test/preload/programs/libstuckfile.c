/*
 * libstuckfile.c - a file on a mount that does not answer: who opens the file whose name STUCK_FILE has
 * (the last part of its path), by the C library's openat, never returns.
 *
 * Preloaded before libgpumem.so. The file STUCK_MARK is made when somebody stands there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)

int openat(int dirfd, const char *path, int flags, ...)
{
	const char *slash = strrchr(path, '/'), *name = getenv("STUCK_FILE"), *mark = getenv("STUCK_MARK");
	unsigned int mode = 0;

	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
		va_list rest;

		va_start(rest, flags);
		mode = va_arg(rest, unsigned int);
		va_end(rest);
	} else if (name && mark && slash && !strcmp(slash + 1, name)) {
		syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT, 0600));
		for (;;)
			syscall(SYS_ppoll, NULL, 0, NULL, NULL);
	}
	return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}
