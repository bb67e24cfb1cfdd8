/*
 * sweep.c - remove this user's dead journals but the four newest: see place.h.
 *
 * What is kept is what somebody may still want to recover; what is removed would otherwise fill
 * the host's memory, a killed process at a time. A journal is dead when gm_image_alive says so,
 * that is when the kernel has marked its mutex or its process is provably gone.
 *
 * A journal that never came to be (its magic is stored last), and one of an older version of this
 * library, have no such proof in a place that this version knows: they go when they have our name
 * pattern, are older than an hour, and no process of the number in their name is there. (One of
 * another pid namespace may be, then: it has had an hour to store the magic, and with a magic it is
 * asked for its sign of life, which no version has moved yet.)
 *
 * Thread context: the one thread in gm_recorder_start, under a gm_fd_guard. No malloc, no readdir.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/file.h"
#include "recorder/format.h"
#include "recorder/image.h"
#include "recorder/place.h"
#include "recorder/probe.h"

#define KEPT 4
#define ENTRIES_MOST 4096		/* directory entries looked at in one start */
#define ABANDONED_SECONDS 3600
#define OPENED_MOST 64			/* journals looked into in one start */


struct dead { uint64_t start_us; char name[256]; };

struct sweep {
	int dirfd;
	unsigned int entries, opened, count;
	struct dead newest[KEPT];	/* by start, the oldest last */
};

/* "<command>.<pid>.<16 hex digits>.journal": the pid; 0 when it is no name of ours. */
static pid_t pid_in(const char *name)
{
	size_t end = strlen(name) - strlen(".journal"), at = end;
	uint64_t pid = 0, ten = 1;

	while (at && ((name[at - 1] >= '0' && name[at - 1] <= '9') ||
		      (name[at - 1] >= 'a' && name[at - 1] <= 'f')))
		at--;
	if (end - at != 16 || !at || name[at - 1] != '.')
		return 0;
	for (at--; at && name[at - 1] >= '0' && name[at - 1] <= '9' && ten < 10000000000; ten *= 10)
		pid += (uint64_t)(name[--at] - '0') * ten;
	return ten > 1 && at > 1 && name[at - 1] == '.' && pid <= INT32_MAX ? (pid_t)pid : 0;
}

/* What gm_image_alive could not read: is it nobody's? Returns when it was made, in us, or 0.
 * @ret_empty: it holds nothing. */
static uint64_t abandoned_since(int fd, const char *name, const struct stat *st, bool *ret_empty)
{
	struct { uint64_t magic; uint32_t version; } head = { 0, 0 };
	pid_t pid = pid_in(name);
	struct timespec now;
	time_t made = st->st_mtime;

	if (!pid || clock_gettime(CLOCK_REALTIME, &now) || now.tv_sec - made < ABANDONED_SECONDS ||
	    gm_syscall(SYS_kill, pid, 0, 0, 0, 0, 0) != -ESRCH ||
	    pread(fd, &head, sizeof(head), 0) < 0)
		return 0;
	*ret_empty = head.magic == 0;
	if (head.magic == 0)
		return (uint64_t)made * 1000000;
	if (head.magic != GM_MAGIC || head.version >= GM_FORMAT_VERSION ||
	    gm_image_alive_of(fd, head.version) != 0)
		return 0;
	return (uint64_t)made * 1000000;
}

/* When the dead process behind @name started, in us; 0 when it is no dead journal of ours. */
static uint64_t dead_since(struct sweep *sweep, const char *name)
{
	uint64_t start_us = 0;
	bool empty = false;
	struct stat st;
	int alive, fd = gm_file_open(sweep->dirfd, name,
			      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    st.st_nlink == 1) {
		alive = gm_image_alive(fd);
		if (alive == 0 &&
		    pread(fd, &start_us, sizeof(start_us),
			  offsetof(struct gm_header, start_time_us)) != sizeof(start_us))
			start_us = 0;
		else if (alive == -EBADMSG)
			start_us = abandoned_since(fd, name, &st, &empty);
	}
	close(fd);
	if (start_us && empty) {		/* nothing that anybody could recover */
		unlinkat(sweep->dirfd, name, 0);
		start_us = 0;
	}
	return start_us;
}

/* Keep the newest in order; whoever falls out, the new one or an older one, is removed. */
static void consider(struct sweep *sweep, const char *name)
{
	struct dead one = { .start_us = dead_since(sweep, name) };
	unsigned int at = 0;

	if (!one.start_us)
		return;
	memcpy(one.name, name, strlen(name) + 1);
	while (at < sweep->count && sweep->newest[at].start_us >= one.start_us)
		at++;
	if (at == KEPT) {
		unlinkat(sweep->dirfd, one.name, 0);
		return;
	}
	if (sweep->count == KEPT)
		unlinkat(sweep->dirfd, sweep->newest[KEPT - 1].name, 0);
	else
		sweep->count++;
	memmove(&sweep->newest[at + 1], &sweep->newest[at],
		(sweep->count - at - 1) * sizeof(sweep->newest[0]));
	sweep->newest[at] = one;
}

static bool is_journal(const char *name)
{
	static const char end[] = ".journal";
	size_t n = strlen(name);

	return n < sizeof(((struct dead *)0)->name) && n > sizeof(end) - 1 &&
	       !strcmp(name + n - (sizeof(end) - 1), end);
}

void gm_sweep(const char *directory)
{
	struct sweep sweep = { .dirfd = gm_file_open(AT_FDCWD, directory,
						     O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0) };
	char buf[2048] __attribute__((aligned(8)));
	long n;

	if (sweep.dirfd < 0)
		return;
	while (sweep.entries < ENTRIES_MOST && sweep.opened < OPENED_MOST &&
	       (n = gm_syscall(SYS_getdents64, sweep.dirfd, (long)(uintptr_t)buf, sizeof(buf),
			       0, 0, 0)) > 0) {
		for (long at = 0; at < n;) {
			const struct dirent64 *entry = (const void *)(buf + at);

			at += entry->d_reclen;
			sweep.entries++;
			if (!is_journal(entry->d_name) || sweep.opened >= OPENED_MOST)
				continue;
			sweep.opened++;
			consider(&sweep, entry->d_name);
		}
	}
	close(sweep.dirfd);
}
