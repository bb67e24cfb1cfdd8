/*
 * places.h - the directories in which the library makes journals by default, and in which the tools look for them.
 *
 * Everybody may write in some of these directories, so a file there may be another user's. Therefore a directory is
 * opened once and examined, and everything else is done by its descriptor and not by a path. One thread.
 */
#ifndef GM_TOOLS_PLACES_H
#define GM_TOOLS_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PLACES 4u

/* Return the number of directories in which the library makes its own directory: GPUMEM_JOURNAL (which may name a
 * file), /dev/shm, XDG_RUNTIME_DIR and TMPDIR, or /tmp, as far as they are set, each once. */
size_t gm_places_roots(const char *ret_roots[GM_PLACES]);

/* Is @fd one of these directories other than GPUMEM_JOURNAL? Any process may begin a journal there at any time. */
bool gm_places_shared(int fd);

/* Open a directory that a user or an option named, with O_RDONLY or O_PATH. If the last part of @path is a symbolic
 * link of this user or of root, follow the link. Returns the descriptor or -errno: -ELOOP for another user's link. */
int gm_places_open(const char *path, int flag);

struct gm_place_visit {
	int parent, fd;			/* open descriptors, which the caller closes */
	const char *name, *path;	/* @name in @parent; @path for messages */
	void *arg;
};

/* Call @visit for each directory gpumem-UID or gpumem-UID-SUFFIX in the open directory @fd, named @path, that is a real
 * directory of the user UID. Without @anybody, visit only directories of this user in which nobody else may write.
 * Returns 0 or -errno. */
int gm_places_below(int fd, const char *path, bool anybody,
		    void (*visit)(const struct gm_place_visit *place), void *arg);

/* Is there a journal of the dead process @pid in these directories, or in a directory that gpumem run left in one? */
bool gm_places_left_by(int64_t pid);

#endif
