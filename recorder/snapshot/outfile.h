/*
 * outfile.h - write a file that appears complete, under a name made from a template, or not at all.
 *
 * Files have mode 0600. No file is ever replaced, except by gm_outfile_replace. Missing directories of
 * the template are created if the user owns the directory above them. No malloc, no locale; of stdio only
 * snprintf. Descriptors are never 0 to 2, because the host may have closed its standard descriptors.
 *
 * Template: %c command, %p pid, %h host, %k rank (0 without one), %r reason and number, %t time
 * (UTC, 20251120T154012Z), %% a percent sign; other text stays. Slashes and control characters in the
 * inserted words become underscores, so that a word cannot change the directory.
 *
 * The host may close every descriptor while we write (closefrom). Our descriptors have high numbers,
 * which the host's next open() does not return. Each is compared by device and inode before it is used or
 * closed, so a file of the host under the same number is neither written nor closed.
 *
 * Thread context: any one thread. Signal context: none. The descriptors are close-on-exec.
 */
#ifndef GM_RECORDER_OUTFILE_H
#define GM_RECORDER_OUTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_OUTFILE_DEFAULT "gpumem.%c.%p.%r.json"

struct gm_outfile_words {
	const char *command, *host, *reason;
	int64_t pid;
	int32_t rank;			/* below 0: none */
	unsigned int number;		/* appended to the reason, as in "signal-1"; 0: none */
	uint64_t time_us;
};

struct gm_outfile {
	int fd;				/* for writing; -1: none */
	int dirfd;
	uint64_t device, inode;		/* of @fd */
	uint64_t dir_device, dir_inode;	/* of @dirfd */
	bool nowhere;			/* the file is /dev/null: nothing is written or named */
	bool public;			/* mode 0666 less the umask; else mode 0600 */
	void (*naming)(const char *path, uint64_t inode);	/* called before the file is named; or NULL */
	char directory[3072];		/* absolute, ends in a slash */
	char name[256];			/* the final name */
	char temporary[64];		/* the present name; "": none */
};

/* Expand @template into @ret, cut to @bytes (NUL included). Returns the length. */
size_t gm_outfile_expand(const char *template, const struct gm_outfile_words *words,
			 char *ret, size_t bytes);

/* Copy @name to @ret with "-@number" before its extension (nothing for 1). A name that is too long for a
 * file system is cut between characters. */
void gm_outfile_numbered(const char *name, unsigned int number, char ret[256]);

/* Open a file for the name to which @template expands; gm_outfile_commit gives it that name. If @template ends
 * in a slash or names a directory, the name in it is GM_OUTFILE_DEFAULT. For /dev/null nothing is opened
 * (@out->nowhere). If no file can be created there, @fallback_dir (may be NULL) is tried, unless a full disk or
 * quota is the reason. Returns 0; -EINVAL if the name belongs to something other than a file; or -errno of the
 * first try. */
int gm_outfile_open(struct gm_outfile *out, const char *template, const char *fallback_dir,
		    const struct gm_outfile_words *words);

/* Open a file for exactly the name @path, in an existing directory. @public: its mode is 0666 less the umask.
 * Returns 0 or -errno. */
int gm_outfile_create(struct gm_outfile *out, const char *path, bool public);

/* Give a file of gm_outfile_create its name, replacing a file of that name. Returns 0 or -errno. */
int gm_outfile_replace(struct gm_outfile *out);

/* Give the file its name; if that name is taken, name-2, name-3 ... (before the extension). Returns 0 and
 * the path; -EBADF when the descriptor no longer names our file; or -errno. */
int gm_outfile_commit(struct gm_outfile *out, char *ret_path, size_t ret_path_bytes);

/* Close the file, and remove it unless it was committed. */
void gm_outfile_close(struct gm_outfile *out);

#endif
