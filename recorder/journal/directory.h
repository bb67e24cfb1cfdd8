/*
 * directory.h - the directories in which a user's journals lie: their names, and what makes them his;
 * and making others.
 *
 * In a place (/dev/shm, $XDG_RUNTIME_DIR, $TMPDIR, the directory that the option names) a user's
 * journals lie in the directory
 *
 *	gpumem-<uid>				or, where that name is somebody else's,
 *	gpumem-<uid>-<16 hex digits>		of which there may be several.
 *
 * Anybody may make a directory of such a name where anybody may make directories. So a name says
 * nothing: a directory is the user's when it is a real one (no link), and owned by him. Whoever looks
 * for journals takes every directory with such a name and owner, and opens what is in it relative to
 * the directory's descriptor. The library gives its own ones mode 0700 (and leaves setgid, which
 * volumes of a group have), whatever the umask, another version or a volume's manager made of it; a
 * reader that finds one into which others may write has not to trust what lies there.
 *
 * Thread context: any one thread. Signal and fork context: none. No malloc, no readdir. The caller
 * holds a gm_fd_guard. Nothing here returns a descriptor below 3.
 */
#ifndef GM_RECORDER_DIRECTORY_H
#define GM_RECORDER_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is @name one for the journals of @uid? */
bool gm_directory_is_named(const char *name, uid_t uid);

/* Open the directory @name below @dirfd, which must be this user's and a real one; one that others, or
 * he himself, could not use as it is gets mode 0700 first. Returns a descriptor or -errno: -EPERM it
 * is somebody else's, -ENOTDIR or -ELOOP no directory. */
int gm_directory_own(int dirfd, const char *name);

/* Open this user's directory for journals below @base (an absolute path): the one that is there, else
 * a new one. Returns a descriptor and its path, or -errno. */
int gm_directory_open(const char *base, char *ret_path, size_t size);

/* Make the directories of @path (absolute, a slash at its end) that are missing, as `mkdir -p` would, if
 * the first of them is missing in one of this user's. Returns 0 or -errno. */
int gm_directory_make_path(const char *path);

/* Call @visit for each entry of @dirfd, which must be at its beginning, @most of them at the most, until
 * @visit returns false. */
void gm_directory_each(int dirfd, unsigned int most, bool (*visit)(void *arg, const char *name),
		       void *arg);

#endif
