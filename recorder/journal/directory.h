/*
 * directory.h - the directories of a user's journals: their names and their owner.
 *
 * In each place (/dev/shm, $XDG_RUNTIME_DIR, $TMPDIR, the directory of option `journal`) the journals
 * of a user lie in the directory
 *
 *	gpumem-<uid>				or, when another user has taken that name,
 *	gpumem-<uid>-<16 hex digits>		(there may be several).
 *
 * The name proves nothing, because in a place like /tmp anybody may make a directory of that name. A
 * directory belongs to the user when it is a real directory (no link) and the user owns it. A program
 * that searches for journals reads every directory with such a name and owner, and opens the files
 * relative to the directory's descriptor. The library sets the mode of its directories to 0700, even
 * when a umask, another version or the manager of a volume chose another mode; the setgid bit, which
 * volumes of a group use, stays. A reader does not trust files in a directory that others can write.
 *
 * Thread context: any one thread, which holds a gm_fd_guard. Signal context: none. No malloc, no
 * readdir. Nothing here returns a descriptor below 3.
 */
#ifndef GM_RECORDER_DIRECTORY_H
#define GM_RECORDER_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is @name a name for a directory of @uid's journals? */
bool gm_directory_is_named(const char *name, uid_t uid);

/* Open the directory @name below @dirfd and set its mode to 0700. Returns a descriptor or -errno:
 * -EPERM when another user owns it, -ENOTDIR or -ELOOP when @name is no directory (or a link). */
int gm_directory_own(int dirfd, const char *name);

/* Open this user's directory for journals below @base (an absolute path); create it if there is none.
 * Returns a descriptor and its path, or -errno. */
int gm_directory_open(const char *base, char *ret_path, size_t size);

/* Create the missing directories of @path (absolute, with a slash at its end) as `mkdir -p` would, but
 * only if this user owns the last directory that exists. Returns 0 or -errno. */
int gm_directory_make_path(const char *path);

/* Call @visit for each entry of @dirfd, until @visit returns false or @most entries have been visited.
 * The descriptor must be positioned at the first entry. */
void gm_directory_each(int dirfd, unsigned int most, bool (*visit)(void *arg, const char *name),
		       void *arg);

#endif
