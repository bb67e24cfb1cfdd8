/*
 * input.c - an input file and its bytes: see input.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MOST ((size_t)1 << 33)	/* of any input; a million events take 120 MB */
#define STEP ((size_t)1 << 22)		/* read at once */
#define SLACK ((size_t)1 << 16)		/* that a file may grow by while it is read */

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
	else if (!why)		/* stat() may have seen another file */
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

int gm_input_regular(const char *path, int flag)
{
	int handle = open(path, O_PATH | O_CLOEXEC | flag), fd;
	char through[64];
	struct stat st;

	if (handle < 0)
		return -errno;
	snprintf(through, sizeof(through), "/proc/self/fd/%d", handle);
	if (fstat(handle, &st))
		fd = -errno;
	else if (!S_ISREG(st.st_mode))
		fd = -EINVAL;
	else if ((fd = open(through, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0)
		fd = -errno;
	close(handle);
	return fd;
}

/* Copy all that @from has into a memfd. Returns the memfd or -errno. */
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

/* ---- its bytes -------------------------------------------------------------------------------- */

int gm_source_open(struct gm_source *source, int fd)
{
	size_t room = BYTES_MOST, page = (size_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	void *at;

	*source = (struct gm_source){ .fd = fd };
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
		if ((uint64_t)st.st_size > BYTES_MOST - SLACK)
			return -EFBIG;
		room = (size_t)st.st_size + SLACK;
	}
	room = (room + page - 1) & ~(page - 1);
	gm_limit_input(0, (int64_t)(room + page));
	at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (at == MAP_FAILED) {
		gm_limit_input(0, -(int64_t)(room + page));
		return -ENOMEM;
	}
	source->bytes = at;
	source->room = room;
	source->mapped = room + page;
	return 0;
}

void gm_source_close(struct gm_source *source)
{
	if (source->mapped) {
		munmap(source->bytes, source->mapped);
		gm_limit_input(0, -(int64_t)source->mapped);
	}
	*source = (struct gm_source){ .whole = true, .fd = -1 };
}

static void forget(struct gm_source *source, size_t used)
{
	used &= ~(STEP - 1);
	if (used <= source->dropped)
		return;
	madvise(source->bytes + source->dropped, used - source->dropped, MADV_DONTNEED);
	source->dropped = used;
}

bool gm_source_more(struct gm_source *source, size_t needed, size_t used)
{
	size_t before = source->have;

	if (source->whole)
		return false;
	forget(source, used);
	if (needed < source->have + STEP)
		needed = source->have + STEP;
	while (source->have < needed && !source->whole) {
		size_t left = source->room - source->have;
		ssize_t n = left ? read(source->fd, source->bytes + source->have, left < STEP ? left : STEP) : -1;

		if (n < 0 && left && errno == EINTR)
			continue;
		if (n <= 0)
			source->whole = true;
		if (n < 0)
			source->error = left ? -errno : -EFBIG;
		if (n > 0) {
			source->have += (size_t)n;
			gm_limit_input((uint64_t)n, 0);
		}
	}
	return source->have > before;
}
