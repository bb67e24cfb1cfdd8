/*
 * output.c - where a verb's result goes: see output.h. One thread.
 *
 * A file is written without a name, or under another one beside its own, and gets its name when it is
 * whole: a reader (node_exporter, a viewer that is open) never finds half of one. Without a name, it
 * is gone when we are, whatever ended us. Where no file can be without one, its other name has a lock
 * on it while its writer lives: the next run that writes into that directory clears those that have
 * none.
 */
#define _GNU_SOURCE
#include "tools/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 18)
#define TRIES 1000			/* of names that others may have */
#define BEFORE ".gpumem-"		/* and behind a temporary name; the library's own end in .tmp */
#define BEHIND ".part"

/* How much of @path is its directory, with the slash; 0: it is the one we are in. */
static int directory(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash + 1 - path) : 0;
}

/* Returns the descriptor; -1: not every file system has such files, and /proc may not be there. */
static int open_nameless(const char *path, mode_t mode)
{
	char name[4112];
	int fd;

	snprintf(name, sizeof(name), "%.*s.", directory(path), path);
	fd = open(name, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
	if (fd < 0)
		return -1;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (!access(name, F_OK))
		return fd;
	close(fd);
	return -1;
}

/* ---- names beside its own ---- */

static bool is_temporary(const char *name)
{
	size_t length = strlen(name), behind = sizeof(BEHIND) - 1;

	return !strncmp(name, BEFORE, sizeof(BEFORE) - 1) && length > behind &&
	       !strcmp(name + length - behind, BEHIND);
}

/* Unless its writer has its lock, or it is another user's. */
static void clear(int directory_fd, const char *name)
{
	int fd = openat(directory_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(directory_fd, name, 0);
	close(fd);
}

/* What verbs left in the directory of @path that were killed. */
static void clear_left(const char *path)
{
	char name[4112];
	const struct dirent *entry;
	DIR *dir;

	snprintf(name, sizeof(name), "%.*s.", directory(path), path);
	dir = opendir(name);
	while (dir && (entry = readdir(dir)))
		if (is_temporary(entry->d_name))
			clear(dirfd(dir), entry->d_name);
	if (dir)
		closedir(dir);
}

/* Hold the file's lock, past its stream's end. False: somebody takes it for left behind. */
static bool hold(struct gm_output *output, int fd)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB))
		return errno != EWOULDBLOCK;	/* where there are no locks, nobody clears */
	output->lock = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return fstat(fd, &st) || st.st_nlink || output->nameless;
}

static void let_go(struct gm_output *output)
{
	if (output->lock >= 0)
		close(output->lock);
	output->lock = -1;
}

static int open_beside(struct gm_output *output, const char *path, mode_t mode)
{
	mode_t mask;
	int fd;

	clear_left(path);
	for (int i = 0;; i++) {
		snprintf(output->temporary, sizeof(output->temporary), "%.*s" BEFORE "XXXXXX" BEHIND,
			 directory(path), path);
		fd = mkostemps(output->temporary, sizeof(BEHIND) - 1, O_CLOEXEC);
		if (fd < 0)
			return -errno;
		if (hold(output, fd) || i == TRIES)
			break;
		let_go(output);			/* between its making and its lock */
		unlink(output->temporary);
		close(fd);
	}
	mask = umask(0);
	umask(mask);
	fchmod(fd, mode & ~mask);
	return fd;
}

static int open_for(struct gm_output *output, const char *path, mode_t mode)
{
	struct stat st;
	int fd;

	memset(output, 0, sizeof(*output));
	output->lock = -1;
	if (!path || !strcmp(path, "-")) {
		output->file = stdout;
		return 0;
	}
	if (strlen(path) >= sizeof(output->path) || !path[0])
		return path[0] ? -ENAMETOOLONG : -ENOENT;
	strcpy(output->path, path);
	/* /dev/null and its like are written to, not replaced. */
	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		output->file = S_ISDIR(st.st_mode) ? NULL : fopen(path, "we");
		return output->file ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -errno;
	}
	fd = open_nameless(path, mode);
	output->nameless = fd >= 0;
	if (fd < 0)
		fd = open_beside(output, path, mode);
	if (fd < 0)
		return fd;
	output->file = fdopen(fd, "w");
	if (!output->file) {
		close(fd);
		if (output->temporary[0])
			unlink(output->temporary);
		let_go(output);
		return -ENOMEM;
	}
	setvbuf(output->file, NULL, _IOFBF, BUFFER);
	return 0;
}

int gm_output_open(struct gm_output *output, const char *path)
{
	return open_for(output, path, 0666);
}

int gm_output_open_private(struct gm_output *output, const char *path)
{
	return open_for(output, path, 0600);
}

/* A name beside its own, to be renamed: a link takes nobody's place. Returns 0 or an errno. */
static int give_name(struct gm_output *output)
{
	char nameless[40];

	snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", fileno(output->file));
	hold(output, fileno(output->file));
	for (int i = 0; i < TRIES; i++) {
		snprintf(output->temporary, sizeof(output->temporary), "%.*s" BEFORE "%ld-%d" BEHIND,
			 directory(output->path), output->path, (long)getpid(), i);
		if (!linkat(AT_FDCWD, nameless, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW))
			return 0;
		if (errno != EEXIST)
			break;
	}
	output->temporary[0] = '\0';
	return errno;
}

int gm_output_close(struct gm_output *output, int keep)
{
	int error = 0;

	if (fflush(output->file) || ferror(output->file))
		error = errno ? errno : EIO;
	if (output->nameless && keep && !error)
		error = give_name(output);
	if (output->path[0] && fclose(output->file) && !error)
		error = errno;
	if (output->temporary[0] && keep && !error && rename(output->temporary, output->path))
		error = errno;
	if (output->temporary[0] && (!keep || error))
		unlink(output->temporary);
	let_go(output);
	return -error;
}
