/*
 * outfile.c - a file that appears whole, under a name made from a template, or not at all.
 *
 * Thread context: any one thread. No malloc, no stdio. Any number of processes may write by the
 * same template at once: who comes second gets another name.
 */
#define _GNU_SOURCE
#include "recorder/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>	/* renameat */
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/file.h"

#define NAME_BYTES 255			/* what file systems take */
#define TRIES 10000			/* names that may be taken */

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

struct text { char *at; size_t length, bytes; };

static void put(struct text *text, const char *from, size_t length)
{
	size_t room = text->bytes - 1 - text->length;

	if (length > room)
		length = room;
	memcpy(text->at + text->length, from, length);
	text->length += length;
	text->at[text->length] = '\0';
}

/* A word of somebody else's choice: no path, nothing that a terminal would obey. */
static void put_word(struct text *text, const char *from)
{
	for (; from && *from; from++) {
		bool bad = *from == '/' || (unsigned char)*from < 0x20 || *from == 0x7f;

		put(text, bad ? "_" : from, 1);
	}
}

static void put_number(struct text *text, uint64_t value, unsigned int digits)
{
	char buffer[20];
	unsigned int at = sizeof(buffer);

	do {
		buffer[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (at && (value || sizeof(buffer) - at < digits));
	put(text, buffer + at, sizeof(buffer) - at);
}

/* 20251120T154012Z: no time zone, since reading one takes locks and files. */
static void put_time(struct text *text, uint64_t time_us)
{
	uint64_t seconds = time_us / 1000000, days = seconds / 86400;
	/* Days since 0000-03-01, by eras of 400 years: H. Hinnant, "chrono-compatible
	 * low-level date algorithms". */
	uint64_t z = days + 719468, era = z / 146097, doe = z % 146097;
	uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint64_t mp = (5 * doy + 2) / 153, month = mp < 10 ? mp + 3 : mp - 9;

	put_number(text, yoe + era * 400 + (month <= 2), 4);
	put_number(text, month, 2);
	put_number(text, doy - (153 * mp + 2) / 5 + 1, 2);
	put(text, "T", 1);
	put_number(text, seconds / 3600 % 24, 2);
	put_number(text, seconds / 60 % 60, 2);
	put_number(text, seconds % 60, 2);
	put(text, "Z", 1);
}

size_t gm_outfile_expand(const char *template, const struct gm_outfile_words *words,
			 char *ret, size_t bytes)
{
	struct text text = { ret, 0, bytes };

	ret[0] = '\0';
	for (const char *at = template; *at; at++) {
		if (at[0] != '%') {
			put(&text, at, 1);
			continue;
		}
		switch (*++at) {
		case 'c':
			put_word(&text, words->command);
			break;
		case 'h':
			put_word(&text, words->host);
			break;
		case 'p':
			put_number(&text, (uint64_t)words->pid, 1);
			break;
		case 'k':
			put_number(&text, words->rank < 0 ? 0 : (uint64_t)words->rank, 1);
			break;
		case 't':
			put_time(&text, words->time_us);
			break;
		case 'r':
			put_word(&text, words->reason);
			if (words->number) {
				put(&text, "-", 1);
				put_number(&text, words->number, 1);
			}
			break;
		case '%':
			put(&text, "%", 1);
			break;
		default:			/* no word of ours: as it stands */
			at--;
			put(&text, at, 1);
			break;
		}
	}
	return text.length;
}

#define HIGH 900			/* where our descriptors are put if the limit allows */

/* Open, never as one of the standard streams, which the program may have closed, and far from the
 * numbers that its next open() will get. */
static int open_above(int dirfd, const char *path, int flags, mode_t mode)
{
	struct gm_fd_guard guard;
	int fd, low, error;

	gm_fd_guard_begin(&guard);
	low = openat(dirfd, path, flags | O_CLOEXEC, mode);
	fd = low < 0 ? low : fcntl(low, F_DUPFD_CLOEXEC, HIGH);
	if (low > 2 && fd < 0)
		fd = low;			/* a low limit of descriptors */
	else if (low >= 0 && fd < 0)
		fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
	if (low >= 0 && fd != low)
		close(low);
	error = errno;
	gm_fd_guard_end(&guard);
	errno = error;
	return fd;
}

/* The file that has the temporary name is ours, whatever the number stands for by now. */
static void remember(struct gm_outfile *out)
{
	char path[sizeof(out->directory) + sizeof(out->temporary)];
	struct text text = { path, 0, sizeof(path) };
	struct stat st;

	path[0] = '\0';
	put(&text, out->directory, strlen(out->directory));
	put(&text, out->temporary, strlen(out->temporary));
	out->device = out->inode = 0;
	if (lstat(path, &st) == 0) {
		out->device = st.st_dev;
		out->inode = st.st_ino;
	}
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

/* The directory, opened once more where the host has closed it. */
static int have_directory(struct gm_outfile *out)
{
	if (is_ours(out->dirfd, out->dir_device, out->dir_inode))
		return 0;
	return open_directory(out);
}

static int open_temporary(struct gm_outfile *out)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	for (unsigned int try = 0; try < 100; try++) {
		struct text text = { out->temporary, 0, sizeof(out->temporary) };

		put(&text, ".gpumem-", 8);
		put_number(&text, (uint64_t)getpid(), 1);
		put(&text, "-", 1);
		put_number(&text, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + try, 1);
		put(&text, ".tmp", 4);
		out->fd = open_above(out->dirfd, out->temporary,
				     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
		if (out->fd >= 0) {
			remember(out);
			if (!is_ours(out->fd, out->device, out->inode)) {
				out->fd = -1;		/* taken from us already */
				return -EBADF;
			}
			fchmod(out->fd, 0600);		/* whatever the umask */
			return 0;
		}
		if (errno != EEXIST)
			break;
	}
	out->temporary[0] = '\0';
	return -errno;
}

/* Where "name.json" becomes "name-2.json": the place of the extension. */
static size_t stem_length(const char *name)
{
	size_t length = strlen(name);

	return length > 5 && !strcmp(name + length - 5, ".json") ? length - 5 : length;
}

/* @name with "-@number" before its extension (none for 1), cut to what a file system takes, not
 * within a character. */
static void numbered(const char *name, unsigned int number, char ret[NAME_BYTES + 1])
{
	size_t stem = stem_length(name), extension = strlen(name) - stem, room;
	char digits[24];
	struct text suffix = { digits, 0, sizeof(digits) };
	struct text text = { ret, 0, NAME_BYTES + 1 };

	digits[0] = '\0';
	if (number > 1) {
		put(&suffix, "-", 1);
		put_number(&suffix, number, 1);
	}
	room = NAME_BYTES - suffix.length - (extension < 16 ? extension : 0);
	if (stem > room) {
		stem = room;
		while (stem && ((unsigned char)name[stem] & 0xc0) == 0x80)
			stem--;
	}
	put(&text, name, stem);
	put(&text, digits, suffix.length);
	put(&text, name + strlen(name) - extension, extension);
}

/* Split @path, made absolute, into directory and name. */
static int locate(struct gm_outfile *out, const char *path)
{
	struct text directory = { out->directory, 0, sizeof(out->directory) };
	const char *slash = strrchr(path, '/');
	size_t head = slash ? (size_t)(slash - path) + 1 : 0;

	out->directory[0] = '\0';
	if (path[0] != '/') {
		if (!getcwd(out->directory, sizeof(out->directory) - 1))
			return -errno;
		directory.length = strlen(out->directory);
		if (directory.length && out->directory[directory.length - 1] != '/')
			put(&directory, "/", 1);
	}
	if (directory.length + head + 1 > sizeof(out->directory))
		return -ENAMETOOLONG;
	put(&directory, path, head);
	return 0;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int create(struct gm_outfile *out)
{
	int r = open_directory(out);

	if (!r)
		r = open_temporary(out);
	if (r && out->dirfd >= 0) {
		close(out->dirfd);
		out->dirfd = -1;
	}
	return r;
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
	numbered(name ? name + 1 : path, 1, out->name);
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
	out->fallback = true;
	return 0;
}

/* Rename without replacing, where the file system can; else link, else reserve the name first. */
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

int gm_outfile_commit(struct gm_outfile *out, char *ret_path, size_t ret_path_bytes)
{
	struct text path = { ret_path, 0, ret_path_bytes };
	char name[NAME_BYTES + 1];
	int r = -EEXIST, fd = out->fd;

	/* Some file systems say only now that there was no room. */
	out->fd = -1;
	if (!is_ours(fd, out->device, out->inode))
		return -EBADF;
	if (close(fd) && errno != EINTR)
		return -errno;
	r = have_directory(out);
	if (r)
		return r;
	r = -EEXIST;
	for (unsigned int number = 1; r == -EEXIST && number <= TRIES; number++) {
		numbered(out->name, number, name);
		path.length = 0;
		if (ret_path_bytes) {
			put(&path, out->directory, strlen(out->directory));
			put(&path, name, strlen(name));
		}
		if (out->naming)
			out->naming(ret_path, out->inode);
		r = take_name(out, name);
	}
	if (!r)
		out->temporary[0] = '\0';
	return r;
}

void gm_outfile_close(struct gm_outfile *out)
{
	if (is_ours(out->fd, out->device, out->inode))
		close(out->fd);
	if (out->temporary[0] && have_directory(out) == 0)
		unlinkat(out->dirfd, out->temporary, 0);
	if (is_ours(out->dirfd, out->dir_device, out->dir_inode))
		close(out->dirfd);
	out->fd = out->dirfd = -1;
	out->temporary[0] = '\0';
}
