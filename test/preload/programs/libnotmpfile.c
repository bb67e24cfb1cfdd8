/*
 * libnotmpfile.c - a file system where no file can be without a name, for test_output (preloaded into the
 * command) and test_snapshot_places (into a program, beside the library).
 *
 * Thread context: any, as openat's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int openat(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if ((flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return (int)syscall(SYS_openat, directory, path, flags, mode);
}
