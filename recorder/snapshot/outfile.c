/*
 * outfile.c - write a file that appears complete or not at all: see outfile.h.
 *
 * If the file system supports it (O_TMPFILE), the file has no name until it is complete, so a process
 * that dies leaves nothing behind. Otherwise the file has a temporary name beside its final name, and
 * its writer holds a lock on it. The next writer in that directory removes temporary files that nobody
 * has locked. Any number of processes may use the same template at once.
 */
#define _GNU_SOURCE
#include "recorder/snapshot/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>	/* renameat, snprintf */
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/directory.h"
#include "recorder/journal/sys.h"

#define TRIES 10000			/* names that are tried when names are taken */
#define ENTRIES_MOST 4096u		/* directory entries searched for files left behind */
#define BEFORE ".gpumem-"		/* how a temporary name begins, and how it ends */
#define BEHIND ".tmp"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

#define HIGH 900			/* our descriptors are at least this, if the limit allows */

/* Open a file with a descriptor above the standard streams (which the program may have closed) and far from
 * the numbers that the program's next open() will get. */
static int open_above(int dirfd, const char *path, int flags, mode_t mode)
{
	struct gm_fd_guard guard;
	int fd, low, error;

	gm_fd_guard_begin(&guard);
	low = openat(dirfd, path, flags | O_CLOEXEC, mode);
	fd = low < 0 ? low : fcntl(low, F_DUPFD_CLOEXEC, HIGH);
	if (low > 2 && fd < 0)
		fd = low;			/* the limit of descriptors is too low */
	else if (low >= 0 && fd < 0)
		fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
	if (low >= 0 && fd != low)
		close(low);
	error = errno;
	gm_fd_guard_end(&guard);
	errno = error;
	return fd;
}

static mode_t mode_of(const struct gm_outfile *out)
{
	return out->public ? 0666 : 0600;
}

static bool is_ours(int fd, uint64_t device, uint64_t inode)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

static int open_directory(struct gm_outfile *out)
{
	struct stat st;

	out->dirfd = open_above(AT_FDCWD, out->directory, O_PATH | O_DIRECTORY, 0);
	if (out->dirfd < 0)
		return -errno;
	if (stat(out->directory, &st) == 0) {
		out->dir_device = st.st_dev;
		out->dir_inode = st.st_ino;
	}
	if (is_ours(out->dirfd, out->dir_device, out->dir_inode))
		return 0;
	out->dirfd = -1;
	return -EBADF;
}

/* Open the directory again if the host has closed its descriptor. */
static int have_directory(struct gm_outfile *out)
{
	if (is_ours(out->dirfd, out->dir_device, out->dir_inode))
		return 0;
	return open_directory(out);
}

/* ---- without a name ---- */

/* A nameless file could not be linked to a name: from now on files get temporary names. */
static _Atomic(bool) nameless_refused;

static void link_of(int fd, char ret[40])
{
	snprintf(ret, 40, "/proc/thread-self/fd/%d", fd);	/* the table is this thread's */
}

/* Open a nameless file. Returns 0; -errno when the file system has no such files, or there is no /proc. */
static int open_nameless(struct gm_outfile *out)
{
	char link[40];
	struct stat st, seen;
	int fd;

	if (atomic_load_explicit(&nameless_refused, memory_order_relaxed))
		return -EOPNOTSUPP;
	fd = open_above(out->dirfd, ".", O_WRONLY | O_TMPFILE, mode_of(out));
	if (fd < 0)
		return -errno;
	link_of(fd, link);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink || st.st_size)
		return -EBADF;			/* the host has already closed it */
	if (stat(link, &seen) || seen.st_dev != st.st_dev || seen.st_ino != st.st_ino) {
		close(fd);
		return -EOPNOTSUPP;
	}
	out->fd = fd;
	out->device = st.st_dev;
	out->inode = st.st_ino;
	return 0;
}

static int link_name(const struct gm_outfile *out, const char *name)
{
	char link[40];

	link_of(out->fd, link);
	if (!linkat(AT_FDCWD, link, out->dirfd, name, AT_SYMLINK_FOLLOW))
		return 0;
	if (errno == EEXIST || errno == ENOSPC || errno == EDQUOT || errno == ENAMETOOLONG)
		return -errno;
	atomic_store_explicit(&nameless_refused, true, memory_order_relaxed);
	return -EBADF;
}

/* ---- under a temporary name ---- */

/* Remember device and inode of our file by its temporary name, because the host may already have reused the
 * descriptor's number. */
static void remember(struct gm_outfile *out)
{
	char path[sizeof(out->directory) + sizeof(out->temporary)];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", out->directory, out->temporary);
	out->device = out->inode = 0;
	if (lstat(path, &st) == 0) {
		out->device = st.st_dev;
		out->inode = st.st_ino;
	}
}

static bool clear_left(void *arg, const char *name)
{
	const int *dirfd = arg;
	size_t length = strlen(name), behind = strlen(BEHIND);
	struct stat st;
	int fd;

	if (strncmp(name, BEFORE, strlen(BEFORE)) || length < behind ||
	    strcmp(name + length - behind, BEHIND))
		return true;
	fd = gm_file_open(*dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return true;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    flock(fd, LOCK_EX | LOCK_NB) == 0) {
		unlinkat(*dirfd, name, 0);
		flock(fd, LOCK_UN);
	}
	close(fd);
	return true;
}

/* Remove files that killed writers left in the directory. */
static void clear_directory(const struct gm_outfile *out)
{
	int fd = open_above(out->dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	struct gm_fd_guard guard;

	if (fd < 0)
		return;
	gm_fd_guard_begin(&guard);
	gm_directory_each(fd, ENTRIES_MOST, clear_left, &fd);
	gm_fd_guard_end(&guard);
	close(fd);
}

/* Lock the file. False: another writer holds the lock, because it found the file unlocked and is removing it. */
static bool hold(int fd)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB))
		return errno != EWOULDBLOCK;	/* a file system without locks is never cleared */
	return fstat(fd, &st) || st.st_nlink;
}

/* Make a temporary name that no other file should have. @try: how many such names were taken. */
static void name_temporary(struct gm_outfile *out, unsigned int try)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(out->temporary, sizeof(out->temporary), BEFORE "%ld-%llu" BEHIND, (long)getpid(),
		 (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec + try);
}

static int open_temporary(struct gm_outfile *out)
{
	for (unsigned int try = 0; try < 100; try++) {
		name_temporary(out, try);
		out->fd = open_above(out->dirfd, out->temporary,
				     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode_of(out));
		if (out->fd < 0 && errno != EEXIST)
			break;
		if (out->fd < 0)
			continue;
		remember(out);
		if (!is_ours(out->fd, out->device, out->inode)) {
			out->fd = -1;			/* the host has already closed it */
			return -EBADF;
		}
		if (hold(out->fd))
			return 0;
		unlinkat(out->dirfd, out->temporary, 0);
		close(out->fd);
		out->fd = -1;
		errno = EEXIST;
	}
	out->temporary[0] = '\0';
	return -errno;
}

/* Rename without replacing. If the file system cannot, link; if it has no links, reserve the name first. */
static int take_name(const struct gm_outfile *out, const char *name)
{
	int fd;

	if (!syscall(SYS_renameat2, out->dirfd, out->temporary, out->dirfd, name, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
		return -errno;
	if (!linkat(out->dirfd, out->temporary, out->dirfd, name, 0))
		return unlinkat(out->dirfd, out->temporary, 0) ? -errno : 0;
	if (errno == EEXIST || errno == ENOENT || errno == ENOSPC)
		return -errno;
	fd = open_above(out->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return renameat(out->dirfd, out->temporary, out->dirfd, name) ? -errno : 0;
}

/* ---- from a template to its name ---- */

/* Split @path, made absolute, into directory and name. */
static int locate(struct gm_outfile *out, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t head = slash ? (size_t)(slash - path) + 1 : 0, length = 0;

	out->directory[0] = '\0';
	if (path[0] != '/') {
		if (!getcwd(out->directory, sizeof(out->directory) - 1))
			return -errno;
		length = strlen(out->directory);
		if (length && out->directory[length - 1] != '/')
			strcpy(out->directory + length++, "/");
	}
	if (length + head + 1 > sizeof(out->directory))
		return -ENAMETOOLONG;
	memcpy(out->directory + length, path, head);
	out->directory[length + head] = '\0';
	return 0;
}

/* Create a file in the open directory. */
static int create_in(struct gm_outfile *out)
{
	int r = open_nameless(out);

	if (r) {
		clear_directory(out);
		r = open_temporary(out);
	}
	if (!r && !out->public)
		fchmod(out->fd, 0600);		/* whatever the umask is */
	if (r) {
		close(out->dirfd);
		out->dirfd = -1;
	}
	return r;
}

static int create(struct gm_outfile *out)
{
	struct gm_fd_guard guard;
	int r = open_directory(out), made;

	if (r == -ENOENT) {
		gm_fd_guard_begin(&guard);
		made = gm_directory_make_path(out->directory);
		gm_fd_guard_end(&guard);
		r = made ? r : open_directory(out);
	}
	return r ? r : create_in(out);
}

/* Check what @path is. Returns 0 if the name is free, or belongs to a file, so that the new file gets another
 * name; 1 if it is /dev/null; -EINVAL if it is anything else. */
static int look_at(const char *path)
{
	struct stat st;

	if (stat(path, &st) || S_ISREG(st.st_mode))
		return 0;
	return S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) ? 1 : -EINVAL;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int gm_outfile_open(struct gm_outfile *out, const char *template, const char *fallback_dir,
		    const struct gm_outfile_words *words)
{
	char path[8192], standard[1024];
	const char *name;
	size_t length = gm_outfile_expand(template, words, path, sizeof(path) - sizeof(standard));
	int r;

	memset(out, 0, sizeof(*out));
	out->fd = out->dirfd = -1;
	gm_outfile_expand(GM_OUTFILE_DEFAULT, words, standard, sizeof(standard));
	if (length && path[length - 1] != '/' && is_directory(path))
		path[length++] = '/';
	if (!length || path[length - 1] == '/')
		strcpy(path + length, standard);
	name = strrchr(path, '/');
	gm_outfile_numbered(name ? name + 1 : path, 1, out->name);
	r = look_at(path);
	out->nowhere = r > 0;
	if (r > 0)
		return 0;
	if (!r)
		r = locate(out, path);
	if (!r)
		r = create(out);
	if (!r || r == -ENOSPC || r == -EDQUOT || !fallback_dir || !fallback_dir[0])
		return r;
	length = strlen(fallback_dir);
	if (length > sizeof(path) - 2)
		return r;
	memcpy(path, fallback_dir, length);
	strcpy(path + length, "/");
	if (locate(out, path) || create(out))
		return r;
	return 0;
}

/* Close a duplicate of @fd, because some file systems report a full disk only on close. */
static int flushed(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy >= 0 && close(copy) && errno != EINTR ? -errno : 0;
}

int gm_outfile_commit(struct gm_outfile *out, char *ret_path, size_t ret_path_bytes)
{
	char name[sizeof(out->name)];
	int r;

	if (!is_ours(out->fd, out->device, out->inode))
		return -EBADF;
	r = flushed(out->fd);
	if (!r)
		r = have_directory(out);
	if (r)
		return r;
	r = -EEXIST;
	for (unsigned int number = 1; r == -EEXIST && number <= TRIES; number++) {
		gm_outfile_numbered(out->name, number, name);
		snprintf(ret_path, ret_path_bytes, "%s%s", out->directory, name);
		if (out->naming)
			out->naming(ret_path, out->inode);
		r = out->temporary[0] ? take_name(out, name) : link_name(out, name);
	}
	if (!r)
		out->temporary[0] = '\0';
	return r;
}

int gm_outfile_create(struct gm_outfile *out, const char *path, bool public)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int r;

	memset(out, 0, sizeof(*out));
	out->fd = out->dirfd = -1;
	out->public = public;
	if ((size_t)(name - path) >= sizeof(out->directory) || strlen(name) >= sizeof(out->name))
		return -ENAMETOOLONG;
	strcpy(out->directory, "./");
	memcpy(out->directory, path, (size_t)(name - path));
	strcpy(out->name, name);
	r = open_directory(out);
	return r ? r : create_in(out);
}

/* Give a nameless file a temporary name, because linking cannot replace another file but renaming can. */
static int link_temporary(struct gm_outfile *out)
{
	int r = -EEXIST;

	hold(out->fd);
	for (unsigned int try = 0; r == -EEXIST && try < 100; try++) {
		name_temporary(out, try);
		r = link_name(out, out->temporary);
	}
	if (r)
		out->temporary[0] = '\0';
	return r;
}

int gm_outfile_replace(struct gm_outfile *out)
{
	int r = is_ours(out->fd, out->device, out->inode) ? flushed(out->fd) : -EBADF;

	if (!r)
		r = have_directory(out);
	if (!r && !out->temporary[0])
		r = link_temporary(out);
	if (!r && renameat(out->dirfd, out->temporary, out->dirfd, out->name))
		r = -errno;
	if (!r)
		out->temporary[0] = '\0';
	return r;
}

void gm_outfile_close(struct gm_outfile *out)
{
	if (out->temporary[0] && have_directory(out) == 0)
		unlinkat(out->dirfd, out->temporary, 0);
	if (is_ours(out->fd, out->device, out->inode))
		close(out->fd);
	if (is_ours(out->dirfd, out->dir_device, out->dir_inode))
		close(out->dirfd);
	out->fd = out->dirfd = -1;
	out->temporary[0] = '\0';
}
