/*
 * place.c - where the journal's file lies: see place.h.
 */
#define _GNU_SOURCE
#include "recorder/journal/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "recorder/journal/directory.h"
#include "recorder/journal/format.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/sys.h"

#define NAMES_MAX 99			/* names tried for a file that the option names */

#define TMPFS 0x01021994		/* linux/magic.h */
#define RAMFS 0x858458f6
#define HUGETLBFS 0x958458f6

const char *gm_place_name(enum gm_place_kind kind)
{
	static const char *const names[GM_PLACE_COUNT] = {
		"GPUMEM_JOURNAL", "/dev/shm", "XDG_RUNTIME_DIR", "TMPDIR", "memfd",
	};

	return (unsigned int)kind < GM_PLACE_COUNT ? names[kind] : "";
}

static uint64_t random_word(void)
{
	uint64_t word;

	if (getrandom(&word, sizeof(word), GRND_NONBLOCK) != sizeof(word)) {
		/* The word only has to make names differ; O_EXCL refuses a name that exists. */
		word = gm_stamp() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 40;
	}
	return word;
}

/* Make the name <command>.<pid>.<random>.journal. Characters of the command that could begin an option or
 * form a path or a control sequence become '_'. */
static void make_name(const char *command, char *ret_name, size_t size)
{
	char clean[65];
	size_t n = 0;

	for (; n < sizeof(clean) - 1 && command[n]; n++) {
		char c = command[n];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || c == '_' || c == '+' ||
			     (n && (c == '-' || c == '.'));

		clean[n] = plain ? c : '_';
	}
	clean[n] = '\0';
	snprintf(ret_name, size, "%s.%ld.%016llx.journal", n ? clean : "unknown", (long)getpid(),
		 (unsigned long long)random_word());
}

static int create_file(int dirfd, const char *name)
{
	int fd = gm_file_open(dirfd, name,
			      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY, 0600);

	if (fd >= 0)
		fchmod(fd, 0600);	/* the owner must be able to read it, whatever the umask */
	return fd;
}

/* The option names a file: create it where the user said, under that name or the next free one. */
static int open_named_file(const char *path, struct gm_place *place)
{
	const char *slash = strrchr(path, '/');
	int dirfd, fd = -EEXIST;

	if (!slash || !slash[1] || strlen(slash + 1) > sizeof(place->name) - 8)
		return -EINVAL;
	if (slash - path >= (ptrdiff_t)sizeof(place->directory))
		return -ENAMETOOLONG;
	memcpy(place->directory, path, (size_t)(slash - path));
	place->directory[slash - path] = '\0';
	dirfd = gm_file_open(AT_FDCWD, slash == path ? "/" : place->directory,
			     O_RDONLY | O_DIRECTORY, 0);
	if (dirfd < 0)
		return dirfd;
	for (int i = 1; i <= NAMES_MAX && fd == -EEXIST; i++) {
		char end[8] = "";

		if (i > 1)
			snprintf(end, sizeof(end), "-%d", i);
		snprintf(place->name, sizeof(place->name), "%.240s%s", slash + 1, end);
		fd = create_file(dirfd, place->name);
	}
	close(dirfd);
	return fd;
}

static int open_in_own_directory(const char *base, const char *command, struct gm_place *place)
{
	int dirfd = gm_directory_open(base, place->directory, sizeof(place->directory));
	int fd;

	if (dirfd < 0)
		return dirfd;
	make_name(command, place->name, sizeof(place->name));
	fd = create_file(dirfd, place->name);
	close(dirfd);
	place->ours = true;
	return fd;
}

/* If @path lies in a room of `gpumem run` that is gone, cut @path to the room's parent: a run removes its room at its
 * end, and a journal that starts later lies where the room was. */
static void leave_room(char *path)
{
	char *room = strstr(path, "/" GM_RUN_ROOM);
	struct stat st;

	if (room && stat(path, &st) < 0 && errno == ENOENT)
		room[room == path] = '\0';
}

static int open_option(const char *option, const char *command, struct gm_place *place)
{
	char path[2048], cwd[1024] = "";
	struct stat st;
	size_t n;

	if (!option || !*option)
		return -ENOENT;
	if (option[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return -errno;
	n = (size_t)snprintf(path, sizeof(path), "%s%s%s", cwd, *cwd ? "/" : "", option);
	if (n >= sizeof(path))
		return -ENAMETOOLONG;
	leave_room(path);
	n = strlen(path);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		while (n > 1 && path[n - 1] == '/')
			path[--n] = '\0';
		return open_in_own_directory(path, command, place);
	}
	/* For "/dev/null" and its like, "/dev/null-2" would be no better. */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return -EINVAL;
	return open_named_file(path, place);
}

static int open_memfd(void)
{
	int fd = gm_sys.memfd("gpumem", 8u /* MFD_NOEXEC_SEAL, Linux 6.3 */ | MFD_CLOEXEC);

	if (fd < 0 && errno == EINVAL)
		fd = gm_sys.memfd("gpumem", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fd <= 2) {
		close(fd);
		return -EBADF;
	}
	return fd;
}

int gm_place_open(enum gm_place_kind kind, const char *option, const char *command,
		  struct gm_place *ret_place)
{
	struct gm_place place = { .fd = -1, .free_bytes = UINT64_MAX };
	struct statvfs space;
	struct stat st;
	const char *base = NULL;

	switch (kind) {
	case GM_PLACE_OPTION:
		place.fd = open_option(option, command, &place);
		break;
	case GM_PLACE_SHM:
		base = gm_sys.shm;
		break;
	case GM_PLACE_RUNTIME:		/* NULL in a setuid program: nothing from its environment */
		base = secure_getenv("XDG_RUNTIME_DIR");
		break;
	case GM_PLACE_TMP:
		base = secure_getenv("TMPDIR");
		base = base && *base ? base : "/tmp";
		break;
	case GM_PLACE_MEMFD:
		place.fd = open_memfd();
		break;
	default:
		return -EINVAL;
	}
	if (kind >= GM_PLACE_SHM && kind <= GM_PLACE_TMP)
		place.fd = base && *base ? open_in_own_directory(base, command, &place) : -ENOENT;
	if (place.fd < 0)
		return place.fd;
	if (fstat(place.fd, &st) == 0) {
		place.device = (uint64_t)st.st_dev;
		place.inode = (uint64_t)st.st_ino;
	}
	/* A tmpfs without a limit reports no blocks at all. */
	if (kind != GM_PLACE_MEMFD && gm_sys.space(place.fd, &space) == 0 && space.f_blocks)
		place.free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
	*ret_place = place;
	return 0;
}

static bool is_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == TMPFS || fs.f_type == RAMFS || fs.f_type == HUGETLBFS);
}

int gm_place_on_disk(const char *directory, char *ret_path, size_t size)
{
	const char *base = secure_getenv("TMPDIR");
	int fd = *directory ? gm_file_open(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY, 0) : -ENOENT;
	int r;

	if (fd >= 0 && is_memory(fd)) {
		close(fd);
		fd = -ENOENT;
	}
	if (fd >= 0 && snprintf(ret_path, size, "%s", directory) >= (int)size) {
		close(fd);
		return -ENAMETOOLONG;
	}
	if (fd < 0) {
		base = base && *base ? base : "/tmp";
		fd = gm_file_open(AT_FDCWD, base, O_RDONLY | O_DIRECTORY, 0);
		r = fd < 0 ? fd : is_memory(fd) ? -ENOSPC : 0;
		if (fd >= 0)
			close(fd);
		fd = r < 0 ? r : gm_directory_open(base, ret_path, size);
	}
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

void gm_place_undo(struct gm_place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	place->fd = -1;
	if (place->name[0])
		gm_place_remove(place->directory, place->name, place->device, place->inode);
	place->name[0] = '\0';
}

void gm_place_remove(const char *directory, const char *name, uint64_t device, uint64_t inode)
{
	int dirfd = gm_file_open(AT_FDCWD, *directory ? directory : "/", O_RDONLY | O_DIRECTORY, 0);
	struct stat st;

	if (dirfd < 0)
		return;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (uint64_t)st.st_dev == device && (uint64_t)st.st_ino == inode)
		unlinkat(dirfd, name, 0);
	close(dirfd);
}
