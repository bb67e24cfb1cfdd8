/*
 * output.c - where a verb's result goes: see output.h. One thread.
 *
 * A file is written without a name, or under another one beside its own, and gets its name when it is
 * whole: a reader (node_exporter, a viewer that is open) never finds half of one, and what had that name
 * before, whoever's file it is and wherever it leads, is never written to. Without a name, it is gone
 * when we are, whatever ended us. Where no file can be without one, its other name has a lock on it
 * while its writer lives: the next run that writes into that directory clears those that have none.
 */
#define _GNU_SOURCE
#include "tools/write/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/magic.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 18)
#define TRIES 1000			/* of names that others may have */
#define READER_MS 3000			/* until a pipe must have one */
#define BEFORE ".gpumem-"		/* and behind a temporary name; the library's own end in .tmp */
#define BEHIND ".part"

/* Returns the descriptor; -1: not every file system has such files, and /proc may not be there. */
static int open_nameless(int directory, mode_t mode)
{
	char name[40];
	int fd = openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);

	if (fd < 0)
		return -1;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (!access(name, F_OK))
		return fd;
	close(fd);
	return -1;
}

/* ---- names beside its own ---- */

/* One that nobody can have taken on purpose. */
static void name_temporary(struct gm_output *output)
{
	uint64_t number = (uint64_t)getpid();

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) < 0)
		number += (uint64_t)clock();
	snprintf(output->temporary, sizeof(output->temporary), BEFORE "%016llx" BEHIND,
		 (unsigned long long)number);
}

/* Unless its writer has its lock, or it is another user's. */
static void clear(int directory, const char *name)
{
	int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(directory, name, 0);
	close(fd);
}

/* What verbs left in that directory that were killed. */
static void clear_left(int directory)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (!fnmatch(BEFORE "*" BEHIND, entry->d_name, 0))
			clear(directory, entry->d_name);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
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

/* The file, what of it has a name, and its directory. */
static void let_go(struct gm_output *output)
{
	if (output->lock >= 0)
		close(output->lock);
	if (output->directory >= 0)
		close(output->directory);
	output->lock = output->directory = -1;
}

static int open_beside(struct gm_output *output, mode_t mode)
{
	int fd;

	clear_left(output->directory);
	for (int i = 0; i < TRIES; i++) {
		name_temporary(output);
		fd = openat(output->directory, output->temporary,
			    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			break;
		if (hold(output, fd))
			return fd;
		if (output->lock >= 0)		/* between its making and its lock */
			close(output->lock);
		output->lock = -1;
		unlinkat(output->directory, output->temporary, 0);
		close(fd);
		errno = EEXIST;
	}
	output->temporary[0] = '\0';
	return -errno;
}

/* ---- what is there already ---- */

/* A device or a pipe, which is written to: its descriptor, or -errno. @seen is what was looked at. */
static int open_special(int directory, const char *name, const struct stat *seen)
{
	const struct timespec pause = { 0, 10000000 };
	struct statfs where;
	struct stat st;
	int fd;

	if (S_ISBLK(seen->st_mode))
		return -ENOTSUP;
	for (int waited = 0;; waited += 10) {	/* to wait within open() would have no end */
		fd = openat(directory, name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0 || errno != ENXIO || !S_ISFIFO(seen->st_mode) || waited >= READER_MS)
			break;
		nanosleep(&pause, NULL);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_dev != seen->st_dev || st.st_ino != seen->st_ino ||
	    /* A pipe with a name that another user laid there: what comes out of it is theirs to read. */
	    (S_ISFIFO(st.st_mode) && st.st_uid != geteuid() && st.st_uid &&
	     (fstatfs(fd, &where) || where.f_type != PIPEFS_MAGIC))) {
		close(fd);
		return -EACCES;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

/* What has the name already: 0, a file may take its place; above 0, a descriptor to write to; -errno.
 * A link to a device is followed if it is our own or the system's. */
static int open_there(const struct gm_output *output)
{
	struct stat st;
	bool follow;

	if (!strcmp(output->name, ".") || !strcmp(output->name, "..") || !output->name[0])
		return -EISDIR;
	if (fstatat(output->directory, output->name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	follow = S_ISLNK(st.st_mode) && (st.st_uid == geteuid() || !st.st_uid);
	if ((follow && fstatat(output->directory, output->name, &st, 0)) || S_ISREG(st.st_mode) ||
	    S_ISLNK(st.st_mode))
		return 0;
	return S_ISDIR(st.st_mode) ? -EISDIR : open_special(output->directory, output->name, &st);
}

static int open_directory(struct gm_output *output)
{
	char *slash = strrchr(output->path, '/');
	char directory[sizeof(output->path)] = ".";

	output->name = slash ? slash + 1 : output->path;
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s", (int)(output->name - output->path), output->path);
	output->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return output->directory < 0 ? -errno : 0;
}

static int open_file(struct gm_output *output, mode_t mode)
{
	int fd = open_there(output);

	if (fd) {
		let_go(output);			/* it has its name, or there is none */
		return fd;
	}
	fd = open_nameless(output->directory, mode);
	output->nameless = fd >= 0;
	return fd >= 0 ? fd : open_beside(output, mode);
}

int gm_output_open(struct gm_output *output, const char *path, bool public)
{
	int fd;

	memset(output, 0, sizeof(*output));
	output->lock = output->directory = -1;
	if (!path || !strcmp(path, "-") || !strcmp(path, "/dev/stdout")) {
		output->file = stdout;
		return 0;
	}
	if (strlen(path) >= sizeof(output->path) || !path[0])
		return path[0] ? -ENAMETOOLONG : -ENOENT;
	strcpy(output->path, path);
	fd = open_directory(output);
	if (!fd)
		fd = open_file(output, public ? 0666 : 0600);
	if (fd < 0) {
		let_go(output);
		return fd;
	}
	output->file = fdopen(fd, "w");
	if (!output->file) {
		close(fd);
		if (output->temporary[0])
			unlinkat(output->directory, output->temporary, 0);
		let_go(output);
		return -ENOMEM;
	}
	setvbuf(output->file, NULL, _IOFBF, BUFFER);
	return 0;
}

/* A name beside its own, to be renamed: a link takes nobody's place. Returns 0 or an errno. */
static int give_name(struct gm_output *output)
{
	char nameless[40];

	snprintf(nameless, sizeof(nameless), "/proc/self/fd/%d", fileno(output->file));
	hold(output, fileno(output->file));
	for (int i = 0; i < TRIES; i++) {
		name_temporary(output);
		if (!linkat(AT_FDCWD, nameless, output->directory, output->temporary, AT_SYMLINK_FOLLOW))
			return 0;
		if (errno != EEXIST)
			break;
	}
	output->temporary[0] = '\0';
	return errno;
}

int gm_output_close(struct gm_output *output, int error)
{
	if (!error && (fflush(output->file) || ferror(output->file)))
		error = errno ? -errno : -EIO;
	if (output->nameless && !error)
		error = -give_name(output);
	if (output->path[0] && fclose(output->file) && !error)
		error = -errno;
	if (output->temporary[0] && !error &&
	    renameat(output->directory, output->temporary, output->directory, output->name))
		error = -errno;
	if (output->temporary[0] && error)
		unlinkat(output->directory, output->temporary, 0);
	let_go(output);
	return error;
}
