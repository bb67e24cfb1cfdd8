/*
 * places.c - the directories of journals: see places.h and recorder/journal/directory.h.
 */
#define _GNU_SOURCE
#include "tools/read/places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/journal/directory.h"
#include "recorder/journal/format.h"
#include "recorder/read/copy.h"
#include "tools/show/show.h"

#define LINKS_MOST 8

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

size_t gm_places_roots(const char *ret_roots[GM_PLACES])
{
	const char *tmp = getenv("TMPDIR");
	const char *const all[GM_PLACES] = { getenv("GPUMEM_JOURNAL"), "/dev/shm",
					     getenv("XDG_RUNTIME_DIR"), tmp && *tmp ? tmp : "/tmp" };
	struct stat seen[GM_PLACES];
	size_t count = 0;

	for (size_t i = 0; i < GM_PLACES; i++) {
		size_t s = 0;

		if (!all[i] || !*all[i] || stat(all[i], &seen[count]))
			continue;
		while (s < count && !same(&seen[s], &seen[count]))
			s++;
		if (s == count)
			ret_roots[count++] = all[i];
	}
	return count;
}

bool gm_places_shared(int fd)
{
	const char *const all[] = { "/dev/shm", "/tmp", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR") };
	struct stat st, one;

	if (fstat(fd, &st))
		return true;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] && !stat(all[i], &one) && same(&st, &one))
			return true;
	return false;
}

/* Write the target of the symbolic link @path, which is open as @fd. */
static int follow(int fd, const char *path, char *ret, size_t bytes)
{
	const char *slash = strrchr(path, '/');
	char to[PATH_MAX];
	ssize_t n = readlinkat(fd, "", to, sizeof(to) - 1);

	if (n < 0)
		return -errno;
	to[n] = '\0';
	n = snprintf(ret, bytes, "%.*s%s", to[0] == '/' || !slash ? 0 : (int)(slash + 1 - path), path, to);
	return n < (ssize_t)bytes ? 0 : -ENAMETOOLONG;
}

int gm_places_open(const char *path, int flag)
{
	char at[PATH_MAX], next[PATH_MAX];

	if (snprintf(at, sizeof(at), "%s", path) >= (int)sizeof(at))
		return -ENAMETOOLONG;
	for (int links = 0; links < LINKS_MOST; links++) {
		size_t length = strlen(at);
		struct stat st;
		int look, fd = -1, r = 0;

		while (length > 1 && at[length - 1] == '/')	/* the kernel follows a link before a slash */
			at[--length] = '\0';
		look = open(at, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (look < 0 || fstat(look, &st))
			r = -errno;
		else if (S_ISLNK(st.st_mode))
			r = st.st_uid && st.st_uid != geteuid() ? -ELOOP :
				follow(look, at, next, sizeof(next));
		else if ((fd = openat(look, ".", flag | O_DIRECTORY | O_CLOEXEC)) < 0)
			r = -errno;
		if (look >= 0)
			close(look);
		if (r || fd >= 0)
			return r ? r : fd;
		memcpy(at, next, sizeof(at));
	}
	return -ELOOP;
}

/* Return the user in the name of a directory of journals; -1: it is no such name. */
static int64_t user_in(const char *name)
{
	unsigned long uid = strncmp(name, "gpumem-", 7) ? ULONG_MAX : strtoul(name + 7, NULL, 10);

	return uid <= UINT32_MAX && gm_directory_is_named(name, (uid_t)uid) ? (int64_t)uid : -1;
}

/* Does the open directory @fd belong to @user, and may it be visited? */
static bool is_to_visit(int fd, const char *path, int64_t user, bool anybody)
{
	struct stat st;

	if (fstat(fd, &st) || st.st_uid != user)
		return false;
	if (anybody || !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return true;
	fprintf(stderr, "gpumem: %s: others may write in it: passed over, unless you name it\n",
		gm_show_clean(path));
	return false;
}

int gm_places_below(int fd, const char *path, bool anybody,
		    void (*visit)(const struct gm_place_visit *place), void *arg)
{
	struct dirent **entries = NULL;
	int count = scandirat(fd, ".", &entries, NULL, alphasort), r = count < 0 ? -errno : 0;

	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;
		int64_t user = user_in(name);
		struct gm_place_visit place = { fd, -1, name, NULL, arg };
		char *whole = NULL;

		if (user >= 0 && (anybody || user == geteuid()))
			place.fd = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (place.fd >= 0 &&
		    asprintf(&whole, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
			     name) >= 0) {
			place.path = whole;
			if (is_to_visit(place.fd, whole, user, anybody))
				visit(&place);
			free(whole);
		}
		if (place.fd >= 0)
			close(place.fd);
		free(entries[i]);
	}
	free(entries);
	return r;
}

/* ---- whose journal is there -------------------------------------------------------------------- */

struct left { int64_t pid; bool found; };

static void look_at(int directory, const char *name, struct left *left)
{
	int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int64_t pid = 0;

	if (fd < 0)
		return;
	left->found |= pread(fd, &pid, sizeof(pid), offsetof(struct gm_header, pid)) == (ssize_t)sizeof(pid) &&
		       pid == left->pid && !gm_copy_alive(fd);
	close(fd);
}

static void look_in(const struct gm_place_visit *place)
{
	struct dirent **entries = NULL;
	int count = scandirat(place->fd, ".", &entries, NULL, NULL);

	for (int i = 0; i < count; i++) {
		if (!fnmatch("?*.journal", entries[i]->d_name, 0))
			look_at(place->fd, entries[i]->d_name, place->arg);
		free(entries[i]);
	}
	free(entries);
}

static void look_below(int fd, const char *path, struct left *left)
{
	struct dirent **entries = NULL;
	int count = scandirat(fd, ".", &entries, NULL, NULL);

	gm_places_below(fd, path, false, look_in, left);
	for (int i = 0; i < count; i++) {
		bool is_room = !strncmp(entries[i]->d_name, GM_RUN_ROOM, strlen(GM_RUN_ROOM));
		int room = is_room ? openat(fd, entries[i]->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) :
			   -1;

		if (room >= 0) {
			gm_places_below(room, path, false, look_in, left);
			close(room);
		}
		free(entries[i]);
	}
	free(entries);
}

bool gm_places_left_by(int64_t pid)
{
	struct left left = { .pid = pid };
	const char *roots[GM_PLACES];
	size_t count = gm_places_roots(roots);

	for (size_t i = 0; i < count && !left.found; i++) {
		int fd = gm_places_open(roots[i], O_RDONLY);

		if (fd == -ENOTDIR)		/* GPUMEM_JOURNAL may name a file */
			look_at(AT_FDCWD, roots[i], &left);
		if (fd < 0)
			continue;
		look_below(fd, roots[i], &left);
		close(fd);
	}
	return left.found;
}
