/*
 * sys.c - the recorder's system calls: see sys.h.
 */
#define _GNU_SOURCE
#include "recorder/journal/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static int open_file(int dirfd, const char *path, int flags, mode_t mode)
{
	return openat(dirfd, path, flags, mode);
}

static int advise(void *addr, size_t bytes, int advice)
{
	return madvise(addr, bytes, advice);
}

static int limit(int resource, struct rlimit *ret_limit)
{
	return getrlimit((__rlimit_resource_t)resource, ret_limit);
}

struct gm_sys gm_sys = {
	.shm = "/dev/shm",
	.proc = "/proc",
	.cgroup = "/sys/fs/cgroup",
	.clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource",
	.open_file = open_file,
	.memfd = memfd_create,
	.truncate = ftruncate,
	.allocate = fallocate,
	.space = fstatvfs,
	.limit = limit,
	.map = mmap,
	.unmap = munmap,
	.protect = mprotect,
	.advise = advise,
	.page = getpagesize,
};

void *gm_map(size_t bytes, int flags, int fd)
{
	void *at = gm_sys.map(NULL, bytes, PROT_NONE, flags | MAP_NORESERVE, fd, 0);
	int error;

	if (at == MAP_FAILED)
		return NULL;
	munlock(at, bytes);
	if (gm_sys.protect(at, bytes, PROT_READ | PROT_WRITE) == 0)
		return at;
	error = errno;
	gm_sys.unmap(at, bytes);
	errno = error;
	return NULL;
}

void *gm_map_private(size_t bytes)
{
	return gm_map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void *gm_table_once(_Atomic(void *) *at, size_t bytes)
{
	void *there = atomic_load_explicit(at, memory_order_acquire), *mine;
	int saved_errno = errno;

	if (there)
		return there;
	mine = gm_map_private(bytes);
	if (mine && atomic_compare_exchange_strong_explicit(at, &there, mine, memory_order_acq_rel,
							    memory_order_acquire))
		there = mine;
	else if (mine)
		gm_sys.unmap(mine, bytes);	/* another thread was faster */
	errno = saved_errno;
	return there;
}

/* ---- files ---- */

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
		/* The host may have put its own file there by dup2, so close the number only if it is still ours. */
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

ssize_t gm_file_get(int fd, void *buf, size_t bytes, uint64_t at)
{
	size_t have = 0;
	ssize_t n;

	while (have < bytes) {
		n = pread(fd, (char *)buf + have, bytes - have, (off_t)(at + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

ssize_t gm_file_read(const char *path, char *buf, size_t size)
{
	int fd = gm_file_open(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
	ssize_t n;

	buf[0] = '\0';
	if (fd < 0)
		return fd;
	n = gm_file_get(fd, buf, size - 1, 0);
	close(fd);
	buf[n < 0 ? 0 : n] = '\0';
	return n;
}
