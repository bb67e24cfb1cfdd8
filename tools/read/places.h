/*
 * places.h - where the library puts journals by itself, as the tools look for them.
 *
 * Some of these places may be written by everybody, and what lies there may be somebody else's. So
 * nothing is done by a path: a directory is opened once, looked at, and all else goes by its
 * descriptor. One thread.
 */
#ifndef GM_TOOLS_PLACES_H
#define GM_TOOLS_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PLACES 4u

/* The directories in which the library makes its own: GPUMEM_JOURNAL (which may name a file), /dev/shm,
 * XDG_RUNTIME_DIR and TMPDIR, or /tmp, as far as they are set, each once. Returns how many. */
size_t gm_places_roots(const char *ret_roots[GM_PLACES]);

/* Is @fd one of them but GPUMEM_JOURNAL: may any process begin a journal there at any time? */
bool gm_places_shared(int fd);

/* Open a directory that somebody named, with O_RDONLY or O_PATH. Where the last part of @path is a symbolic
 * link it is followed if it is this user's or root's. Returns the descriptor or -errno: -ELOOP for the
 * link of another. */
int gm_places_open(const char *path, int flag);

struct gm_place_visit {
	int parent, fd;			/* both open; the caller closes them */
	const char *name, *path;	/* in @parent; the whole, for messages */
	void *arg;
};

/* Call @visit for each directory of journals in the open directory @fd, named @path: gpumem-UID and
 * gpumem-UID-SUFFIX. It must be a real directory and belong to that user. This user's only, and only
 * such as nobody else may write in; with @anybody, those of other users, too. 0 or -errno. */
int gm_places_below(int fd, const char *path, bool anybody,
		    void (*visit)(const struct gm_place_visit *place), void *arg);

/* Is there a journal in these places, or in what a gpumem run left in one, whose process was @pid, and is dead? */
bool gm_places_left_by(int64_t pid);

#endif
