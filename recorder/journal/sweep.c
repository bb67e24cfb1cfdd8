/*
 * sweep.c - remove this user's dead journals except the four newest: see sweep.h.
 *
 * The newest stay because somebody may still want to recover them. Without the sweep each killed process
 * would leave one more journal in the host's memory. gm_header_alive decides whether a journal is dead:
 * the kernel has marked its mutex, or its process has provably ended.
 *
 * A file whose writer died before it stored the magic, and a journal of an older version, offer no such
 * proof. They are removed when their name is one of ours, they are older than an hour, and no process has
 * the number in their name. The number may belong to another pid namespace, but that does no harm: a
 * living writer stores the magic within an hour, and where there is a magic the sign of life is checked,
 * which lies at the same offset in every version.
 *
 * A journal whose process ended cleanly holds nothing to recover and is removed. Such a journal is left
 * behind when the process had become another user and could not remove it.
 *
 * Rooms of `gpumem run` lie beside our directory. A run locks its room before the room gets its name, and
 * until the room is cleared. So an unlocked room belongs to a killed run, and its journals count like all
 * others. In the room of a living run more journals stay (KEPT_IN_ROOM), because the run reports them.
 *
 * The journals are visited twice: first to find the newest, then to remove the others, relative to the
 * descriptor of the directory in which they were found.
 *
 * Thread context: one thread, under a gm_fd_guard. No malloc, no readdir.
 */
#define _GNU_SOURCE
#include "recorder/journal/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/directory.h"
#include "recorder/journal/sys.h"
#include "recorder/journal/format.h"
#include "recorder/journal/identity.h"
#include "recorder/journal/place.h"
#include "recorder/journal/probe.h"
#include "recorder/read/copy.h"

#define KEPT 4u
#define KEPT_IN_ROOM 64u
#define ENTRIES_MOST 16384u		/* entries visited in one directory */
#define OPENED_MOST 4096u		/* journals opened in one start, a few system calls each */
#define SEARCHED_MOST 64u		/* journals whose process is looked for in /proc */
#define ABANDONED_SECONDS 3600

struct mark { uint64_t start_us, inode; };

struct sweep {
	int place, room, dirfd;		/* the latter two may be -1: none */
	bool removing;
	const char *skipped;		/* our own directory, which is visited first */
	unsigned int opened, searched, count, kept;
	struct mark newest[KEPT_IN_ROOM];	/* @count entries, ordered by start, the oldest last */
	bool more;			/* there is something to remove */
	char boot_id[40];
};

/* Return the pid in "<command>.<pid>.<16 hex digits>.journal"; 0 when @name has another form. */
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

/* Is a file without the magic, or of another version, old enough and without a process? */
static bool is_abandoned(const char *name, const struct stat *st)
{
	pid_t pid = pid_in(name);
	struct timespec now;

	return pid && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
	       now.tv_sec - st->st_mtime >= ABANDONED_SECONDS &&
	       gm_syscall(SYS_kill, pid, 0, 0, 0, 0, 0) == -ESRCH;
}

/* Return when the process of the dead journal @fd started, in us; 0 when @fd is no dead journal.
 * @ret_empty: the journal holds nothing to recover. */
static uint64_t dead_since(struct sweep *sweep, int fd, const char *name, const struct stat *st,
			   bool *ret_empty)
{
	struct gm_header header;
	int sign;

	if (gm_header_read(fd, &header) < 0)
		return 0;
	if (header.magic != GM_MAGIC || header.version != GM_FORMAT_VERSION) {
		if (!is_abandoned(name, st) || (header.magic && header.magic != GM_MAGIC))
			return 0;
		*ret_empty = !header.magic;
		if (header.magic && (header.version > GM_FORMAT_VERSION || gm_header_alive(&header)))
			return 0;
		return (uint64_t)st->st_mtime * 1000000;
	}
	/* In most cases the mutex in the header decides, and few processes are looked for in /proc. */
	sign = gm_header_sign(&header);
	if (sign > 0 && header.boot_id[0] &&
	    !strncmp(header.boot_id, sweep->boot_id, sizeof(sweep->boot_id)))
		return 0;
	if ((sign != 0 && sweep->searched++ >= SEARCHED_MOST) || gm_header_alive(&header))
		return 0;
	*ret_empty = header.life == GM_LIFE_CLEAN;
	return header.start_time_us;
}

static bool is_newer(const struct mark *a, const struct mark *b)
{
	return a->start_us != b->start_us ? a->start_us > b->start_us : a->inode > b->inode;
}

/* Insert @one into the sorted list of the newest journals. */
static void remember(struct sweep *sweep, const struct mark *one)
{
	unsigned int at = 0;

	while (at < sweep->count && is_newer(&sweep->newest[at], one))
		at++;
	sweep->more = sweep->more || sweep->count == sweep->kept;
	if (at == sweep->kept)
		return;
	if (sweep->count < sweep->kept)
		sweep->count++;
	memmove(&sweep->newest[at + 1], &sweep->newest[at],
		(sweep->count - at - 1) * sizeof(sweep->newest[0]));
	sweep->newest[at] = *one;
}

/* A dead journal stays if it is not older than the newest that the first visit found. Journals that died
 * or began between the visits are newer than those, and stay. */
static void consider(struct sweep *sweep, const char *name, const struct mark *one, bool empty)
{
	const struct mark *last = sweep->count ? &sweep->newest[sweep->count - 1] : NULL;

	if (empty)			/* holds nothing to recover */
		unlinkat(sweep->dirfd, name, 0);
	else if (!sweep->removing)
		remember(sweep, one);
	else if (sweep->count == sweep->kept && is_newer(last, one))
		unlinkat(sweep->dirfd, name, 0);
}

static bool is_journal(const char *name)
{
	static const char end[] = ".journal";
	size_t n = strlen(name);

	return n > sizeof(end) - 1 && !strcmp(name + n - (sizeof(end) - 1), end);
}

/* Remove a link to a snapshot from a killed run's room, once the journal beside it has gone. The run
 * would have read the link. */
static void clear_link(const struct sweep *sweep, const char *name)
{
	const char *end = strstr(name, ".journal.");
	char journal[256];
	struct stat st;

	if (!end || sweep->room < 0 || !sweep->removing)
		return;
	snprintf(journal, sizeof(journal), "%.*s", (int)(end + 8 - name), name);
	if (fstatat(sweep->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) &&
	    fstatat(sweep->dirfd, journal, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		unlinkat(sweep->dirfd, name, 0);
}

static bool look_at(void *arg, const char *name)
{
	struct sweep *sweep = arg;
	struct mark one = { 0, 0 };
	bool empty = false;
	struct stat st;
	int fd;

	if (!is_journal(name)) {
		clear_link(sweep, name);
		return true;
	}
	if (sweep->opened++ >= OPENED_MOST)
		return false;
	fd = gm_file_open(sweep->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return true;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    st.st_nlink == 1) {
		one.inode = (uint64_t)st.st_ino;
		one.start_us = dead_since(sweep, fd, name, &st, &empty);
	}
	close(fd);
	if (one.start_us)
		consider(sweep, name, &one, empty);
	return true;
}

static void look_in(struct sweep *sweep, int parent, const char *name)
{
	sweep->dirfd = gm_directory_own(parent, name);
	if (sweep->dirfd < 0)
		return;
	gm_directory_each(sweep->dirfd, ENTRIES_MOST, look_at, sweep);
	close(sweep->dirfd);
	sweep->dirfd = -1;
	if (sweep->removing && sweep->room >= 0)	/* if nothing is left in it */
		unlinkat(parent, name, AT_REMOVEDIR);
}

static bool look_at_room_entry(void *arg, const char *name)
{
	struct sweep *sweep = arg;

	if (gm_directory_is_named(name, geteuid()))
		look_in(sweep, sweep->room, name);
	return true;
}

static void look_in_room(struct sweep *sweep, const char *name)
{
	struct stat st;
	int fd = gm_file_open(sweep->place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		sweep->room = fd;
		gm_directory_each(fd, ENTRIES_MOST, look_at_room_entry, sweep);
		sweep->room = -1;
		if (sweep->removing)
			unlinkat(sweep->place, name, AT_REMOVEDIR);
		sweep->more = true;		/* at least the room itself must be removed */
		flock(fd, LOCK_UN);		/* because a child forked meanwhile shares the descriptor */
	}
	close(fd);
}

static bool look_at_place_entry(void *arg, const char *name)
{
	struct sweep *sweep = arg;

	if (!strncmp(name, GM_RUN_ROOM, strlen(GM_RUN_ROOM)))
		look_in_room(sweep, name);
	else if (gm_directory_is_named(name, geteuid()) && strcmp(name, sweep->skipped))
		look_in(sweep, sweep->place, name);
	return true;
}

/* Visit our own directory first, because there may be many others. */
static void look_around(struct sweep *sweep)
{
	sweep->opened = sweep->searched = 0;
	look_in(sweep, sweep->place, sweep->skipped);
	if (lseek(sweep->place, 0, SEEK_SET) == 0)
		gm_directory_each(sweep->place, ENTRIES_MOST, look_at_place_entry, sweep);
}

void gm_sweep(const char *directory)
{
	struct sweep sweep = { .place = -1, .room = -1, .dirfd = -1, .kept = KEPT };
	const char *slash = strrchr(directory, '/');
	char path[1024];

	if (!slash || snprintf(path, sizeof(path), "%.*s", (int)(slash - directory), directory) >=
			      (int)sizeof(path))
		return;
	if (strstr(path, "/" GM_RUN_ROOM))
		sweep.kept = KEPT_IN_ROOM;
	sweep.skipped = slash + 1;
	sweep.place = gm_file_open(AT_FDCWD, *path ? path : "/", O_RDONLY | O_DIRECTORY, 0);
	if (sweep.place < 0)
		return;
	gm_identity_boot(sweep.boot_id);
	look_around(&sweep);
	sweep.removing = sweep.more;
	if (sweep.removing)
		look_around(&sweep);
	close(sweep.place);
}
