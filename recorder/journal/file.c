/*
 * file.c - opening files in a program that is not ours: see file.h.
 */
#define _GNU_SOURCE
#include "recorder/journal/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "recorder/journal/sys.h"

void gm_fd_guard_begin(struct gm_fd_guard *guard)
{
	for (int i = 0; i < 3; i++) {
		int fd;

		guard->placed[i] = false;
		if (fcntl(i, F_GETFD) >= 0 || errno != EBADF)
			continue;
		fd = openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC);
		if (fd == i)
			guard->placed[i] = true;
		else if (fd >= 0)
			close(fd);	/* the host took the number in between */
	}
}

void gm_fd_guard_end(struct gm_fd_guard *guard)
{
	for (int i = 0; i < 3; i++) {
		/* The host may have put its own file there by dup2: close only what is still ours. */
		int flags = guard->placed[i] ? fcntl(i, F_GETFL) : -1;

		if (flags >= 0 && (flags & O_PATH))
			close(i);
		guard->placed[i] = false;
	}
}

int gm_file_open(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = gm_sys.open_file(dirfd, path, flags | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	if (fd <= 2) {			/* no guard, or the host closed one just now */
		close(fd);
		return -EBADF;
	}
	return fd;
}

ssize_t gm_file_read(const char *path, char *buf, size_t size)
{
	int fd = gm_file_open(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
	size_t have = 0;
	ssize_t n = 0;

	buf[0] = '\0';
	if (fd < 0)
		return fd;
	while (have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		have += (size_t)n;
	}
	n = n < 0 ? -errno : (ssize_t)have;
	close(fd);
	buf[have] = '\0';
	return n;
}
