/*
 * others.c - processes that share the devices: FAKECUDA_SHARED names a file, in which each has a row of what it has
 * charged.
 *
 * A row is its process's while the process has the row's byte of the file locked: the kernel ends that with the
 * process, whatever became of it. What a dead process had is nobody's any more. Two processes that ask at the same
 * moment may get more than there is, by one request. Lock: fc.lock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/fakecuda/memory/memory.h"

#define ROWS 64

struct row { _Atomic(size_t) charged[FC_MAX_DEVICES]; };

static struct row *rows;
static int fd = -1, own = -1;
static pid_t owner;

static struct flock byte(int row)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row, .l_len = 1 };
}

/* The file, and a row of it that is no living process's. Without one the process shares nothing. */
static void join(const char *path)
{
	owner = getpid();
	own = -1;
	if (fd >= 0)
		close(fd);		/* of the process that forked this one, and which keeps its row */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, ROWS * sizeof(*rows)))
		return;
	rows = mmap(NULL, ROWS * sizeof(*rows), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (rows == MAP_FAILED)
		return;
	for (int i = 0; i < ROWS && own < 0; i++) {
		struct flock lock = byte(i);

		if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
			own = i;
	}
	for (int i = 0; own >= 0 && i < FC_MAX_DEVICES; i++)
		rows[own].charged[i] = 0;
}

static bool shares(void)
{
	const char *path = getenv("FAKECUDA_SHARED");

	if (path && *path && owner != getpid())
		join(path);
	return own >= 0;
}

size_t fc_device_others(const struct fc_device *dev)
{
	size_t bytes = dev->other_bytes;

	for (int i = 0; shares() && i < ROWS; i++) {
		struct flock lock = byte(i);

		/* Locks of our own file description are not in our way. */
		if (rows[i].charged[dev->ordinal] && !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK)
			bytes += rows[i].charged[dev->ordinal];
	}
	return bytes;
}

void fc_device_charge(struct fc_device *dev, ssize_t bytes)
{
	dev->charged += (size_t)bytes;
	if (shares())
		rows[own].charged[dev->ordinal] = dev->charged;
}
