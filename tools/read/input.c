/*
 * input.c - an input file, opened: see input.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MOST (UINT64_C(1) << 33)	/* of any input, as source.c has it */

/* Why a file of this type is no input; NULL: it may be one. */
static const char *refused(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory, not a file";
	case S_IFCHR:
	case S_IFBLK:
		return "a device, not a file";
	case S_IFSOCK:
		return "a socket, not a file";
	default:
		return NULL;
	}
}

int gm_input_open(const char *path, char *ret_error, size_t bytes)
{
	const char *why = NULL;
	struct stat st;
	int fd = -1, error = 0;

	if (stat(path, &st))
		error = errno;
	else if (!(why = refused(st.st_mode)) &&
		 ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0 || fstat(fd, &st)))
		error = errno;
	else if (!why)		/* what was looked at may have been replaced */
		why = refused(st.st_mode);
	if (why)
		error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (error) {
		snprintf(ret_error, bytes, "%s", why ? why : strerror(error));
		if (fd >= 0)
			close(fd);
		return -error;
	}
	if (S_ISFIFO(st.st_mode))
		fcntl(fd, F_SETFL, 0);
	return fd;
}

/* Everything that comes from @from, into a file of no name. Returns it, or -errno. */
static int copy(int from)
{
	int to = memfd_create("gpumem-input", MFD_CLOEXEC);
	char buffer[1 << 16];
	uint64_t have = 0;
	ssize_t n;

	if (to < 0)
		return -errno;
	while ((n = read(from, buffer, sizeof(buffer))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0 && (have += (uint64_t)n) > BYTES_MOST)
			errno = EFBIG;
		else if (n > 0 && write(to, buffer, (size_t)n) == n)
			continue;
		n = errno;
		close(to);
		return -(int)n;
	}
	return to;
}

int gm_input_whole(const char *path, char *ret_path, char *ret_error, size_t bytes)
{
	bool in = !strcmp(path, "-");
	int fd = in ? STDIN_FILENO : gm_input_open(path, ret_error, bytes), to;
	struct stat st;

	snprintf(ret_path, GM_INPUT_PATH, "%s", path);
	if (fd < 0 || (!in && !fstat(fd, &st) && S_ISREG(st.st_mode)))
		return fd;
	to = copy(fd);
	if (to < 0)
		snprintf(ret_error, bytes, "%s", strerror(-to));
	else
		snprintf(ret_path, GM_INPUT_PATH, "/proc/self/fd/%d", to);
	if (to >= 0 && !lseek(to, 0, SEEK_CUR)) {
		snprintf(ret_error, bytes, "%s", gm_input_nothing(fd));
		close(to);
		to = -ENODATA;
	}
	if (!in)
		close(fd);
	return to;
}

const char *gm_input_nothing(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISFIFO(st.st_mode) ?
		"nothing came: a pipe that nobody writes, or an empty one" : "an empty file";
}
