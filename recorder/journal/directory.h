/*
 * directory.h - the directories in which a user's journals lie: their names, and whose they are.
 *
 * In a place (/dev/shm, $XDG_RUNTIME_DIR, $TMPDIR, the directory that the option names) a user's
 * journals lie in the directory
 *
 *	gpumem-<uid>				or, where that name is somebody else's,
 *	gpumem-<uid>-<16 hex digits>		of which there may be several.
 *
 * In a place like /tmp anybody may make a directory of such a name, so that the name proves
 * nothing. A directory is the user's when it is a real one (no link) and the user owns it. A
 * program that searches for journals takes every directory with such a name and owner, and opens
 * the files relative to the directory's descriptor. The library gives its own directories mode
 * 0700, whatever mode a umask, another version or a volume's manager gave them (setgid stays, which
 * volumes of a group have). A reader does not trust the files of a directory into which others may
 * write.
 *
 * Thread context: any one thread, which holds a gm_fd_guard. Signal context: none. No malloc, no
 * readdir. Nothing here returns a descriptor below 3.
 */
#ifndef GM_RECORDER_DIRECTORY_H
#define GM_RECORDER_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is @name one for the journals of @uid? */
bool gm_directory_is_named(const char *name, uid_t uid);

/* Open the directory @name below @dirfd, which must be a real one and this user's, and give it mode
 * 0700. Returns a descriptor or -errno: -EPERM when another user owns it, -ENOTDIR or -ELOOP when
 * it is no directory. */
int gm_directory_own(int dirfd, const char *name);

/* Open this user's directory for journals below @base (an absolute path), and make it where there
 * is none. Returns a descriptor and its path, or -errno. */
int gm_directory_open(const char *base, char *ret_path, size_t size);

/* Make the missing directories of @path (absolute, with a slash at its end) as `mkdir -p` would, if
 * the first one that is missing belongs in a directory of this user's. Returns 0 or -errno. */
int gm_directory_make_path(const char *path);

/* Call @visit for each entry of @dirfd, but for no more than @most, until @visit returns false. The
 * descriptor must stand at the first entry. */
void gm_directory_each(int dirfd, unsigned int most, bool (*visit)(void *arg, const char *name),
		       void *arg);

#endif
