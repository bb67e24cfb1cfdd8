/*
 * directory.c - the directories in which a user's journals lie: see directory.h.
 */
#define _GNU_SOURCE
#include "recorder/journal/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder/journal/sys.h"
#include "recorder/journal/probe.h"

#define ENTRIES_MOST 65536u		/* entries of a place that are searched for our directory */
#define NAME_BYTES 40u

bool gm_directory_is_named(const char *name, uid_t uid)
{
	char plain[NAME_BYTES];
	size_t n = (size_t)snprintf(plain, sizeof(plain), "gpumem-%lu", (unsigned long)uid);

	if (strncmp(name, plain, n))
		return false;
	return !name[n] || (name[n] == '-' && strspn(name + n + 1, "0123456789abcdef") == 16 &&
			    !name[n + 17]);
}

void gm_directory_each(int dirfd, unsigned int most, bool (*visit)(void *arg, const char *name),
		       void *arg)
{
	char buf[2048] __attribute__((aligned(8)));
	unsigned int count = 0;
	long n;

	while ((n = gm_syscall(SYS_getdents64, dirfd, (long)(uintptr_t)buf, sizeof(buf), 0, 0, 0)) > 0)
		for (long at = 0; at < n;) {
			const struct dirent64 *entry = (const void *)(buf + at);

			at += entry->d_reclen;
			if (count++ == most || !visit(arg, entry->d_name))
				return;
		}
}

static bool is_usable(const struct stat *st)
{
	return (st->st_mode & 0777) == 0700;
}

/* Set the mode of a directory that was opened by O_PATH. fchmod needs a descriptor that can be read,
 * which a directory's mode may deny even to its owner; chmod by name could hit a link put in its place. */
static int set_mode(int fd, mode_t mode)
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
	if (chmod(link, mode) == 0)
		return 0;
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452		/* Linux 6.6; for a process without /proc */
#endif
	return syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) ? -errno : 0;
}

int gm_directory_own(int dirfd, const char *name)
{
	int fd = gm_file_open(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0), own, r = 0;
	struct stat st, now;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (st.st_uid != geteuid())
		r = -EPERM;
	else if (!is_usable(&st))
		r = set_mode(fd, 0700 | (st.st_mode & S_ISGID));
	close(fd);
	own = r < 0 ? r : gm_file_open(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (own < 0)
		return own;
	if (fstat(own, &now) < 0)
		r = -errno;
	else if (now.st_dev != st.st_dev || now.st_ino != st.st_ino || !is_usable(&now))
		r = -EPERM;
	if (r < 0)
		close(own);
	return r < 0 ? r : own;
}

/* Create the directory @name below @dirfd and open it. Remove it again if it cannot be used. */
static int make(int dirfd, const char *name)
{
	int fd;

	if (mkdirat(dirfd, name, 0700))
		return -errno;
	fd = gm_directory_own(dirfd, name);	/* the host's umask may have removed the owner's permissions */
	if (fd < 0)
		unlinkat(dirfd, name, AT_REMOVEDIR);
	return fd;
}

/* Is @name below @dirfd another user's, or no directory? */
static bool is_strangers(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (st.st_uid != geteuid() || !S_ISDIR(st.st_mode));
}

struct search { int dirfd, fd; char name[NAME_BYTES]; };

static bool look_at(void *arg, const char *name)
{
	struct search *search = arg;

	if (!gm_directory_is_named(name, geteuid()))
		return true;
	search->fd = gm_directory_own(search->dirfd, name);
	if (search->fd < 0)
		return true;
	snprintf(search->name, sizeof(search->name), "%s", name);
	return false;
}

/* Another user has taken the plain name: find our directory by its owner, or create one under a name that
 * nobody can guess. */
static void search_or_make(struct search *search)
{
	uint64_t word;

	gm_directory_each(search->dirfd, ENTRIES_MOST, look_at, search);
	for (search->fd = search->fd < 0 ? -EEXIST : search->fd; search->fd == -EEXIST;) {
		if (getrandom(&word, sizeof(word), GRND_NONBLOCK) != sizeof(word)) {
			search->fd = -EPERM;
			return;
		}
		snprintf(search->name, sizeof(search->name), "gpumem-%lu-%016llx",
			 (unsigned long)geteuid(), (unsigned long long)word);
		search->fd = make(search->dirfd, search->name);
	}
}

int gm_directory_open(const char *base, char *ret_path, size_t size)
{
	struct search search = { .fd = -1 };

	if (base[0] != '/')
		return -EINVAL;
	snprintf(search.name, sizeof(search.name), "gpumem-%lu", (unsigned long)geteuid());
	search.dirfd = gm_file_open(AT_FDCWD, base, O_RDONLY | O_DIRECTORY, 0);
	if (search.dirfd < 0)
		return search.dirfd;
	search.fd = make(search.dirfd, search.name);
	if (search.fd == -EEXIST)
		search.fd = gm_directory_own(search.dirfd, search.name);
	if (search.fd < 0 && is_strangers(search.dirfd, search.name))
		search_or_make(&search);
	close(search.dirfd);
	if (search.fd >= 0 && snprintf(ret_path, size, "%s/%s", base, search.name) >= (int)size) {
		close(search.fd);
		return -ENAMETOOLONG;
	}
	return search.fd;
}

/* Create the directory @name below @at, which this user must own. Returns a descriptor or -errno. */
static int make_ordinary(int at, const char *name)
{
	struct stat st;
	int fd;

	if (fstat(at, &st) < 0 || st.st_uid != geteuid())
		return -EPERM;
	if (mkdirat(at, name, 0777))
		return errno == EEXIST ? gm_file_open(at, name, O_PATH | O_DIRECTORY, 0) : -errno;
	fd = gm_file_open(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
	/* The umask may have removed the permissions that creating the next directory in it needs. */
	if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		set_mode(fd, (st.st_mode & 07777) | 0700);
	return fd;
}

/* Open the directory @name below @at, creating it if it is missing; close @at. */
static int step(int at, const char *name)
{
	int fd = gm_file_open(at, name, O_PATH | O_DIRECTORY, 0);

	if (fd == -ENOENT)
		fd = make_ordinary(at, name);
	close(at);
	return fd;
}

int gm_directory_make_path(const char *path)
{
	char name[256];
	size_t length;
	int at;

	if (path[0] != '/')
		return -EINVAL;
	at = gm_file_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
	for (; at >= 0 && *path; path += length) {
		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (length >= sizeof(name)) {
			close(at);
			return -ENAMETOOLONG;
		}
		snprintf(name, sizeof(name), "%.*s", (int)length, path);
		at = length ? step(at, name) : at;
	}
	if (at < 0)
		return at;
	close(at);
	return 0;
}
