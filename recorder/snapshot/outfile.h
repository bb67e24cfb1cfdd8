/*
 * outfile.h - a file that appears whole, under a name made from a template, or not at all.
 *
 * Files have mode 0600, and no file is ever replaced, except by gm_outfile_replace. Missing
 * directories of the template are made, if they belong in a directory of the user's. No malloc, no
 * locale; of stdio only snprintf. Descriptors are never 0 to 2, because the host may have closed
 * those.
 *
 * Template: %c command, %p pid, %h host, %k rank (0 without one), %r reason and number, %t time
 * (UTC, 20251120T154012Z), %% a percent sign; anything else stays as it is. Slashes and control
 * characters in what is put in become underscores, so that it cannot change the directory.
 *
 * The host may close every descriptor while we write (closefrom). Ours have high numbers, which the
 * host's next open() does not return, and each is compared by device and inode before it is used or
 * closed: a file that the host has under the same number meanwhile is neither written to nor
 * closed.
 *
 * Thread context: any one thread. Not for signal handlers. The descriptors are close-on-exec.
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
	unsigned int number;		/* goes with the reason, as "signal-1"; 0: none */
	uint64_t time_us;
};

struct gm_outfile {
	int fd;				/* to be written to; -1 when there is none */
	int dirfd;
	uint64_t device, inode;		/* of @fd, */
	uint64_t dir_device, dir_inode;	/* and of @dirfd */
	bool nowhere;			/* it is /dev/null: nothing is written or named */
	bool public;			/* its mode is 0666 less the umask; else 0600 */
	void (*naming)(const char *path, uint64_t inode);	/* it gets that name now; may be NULL */
	char directory[3072];		/* absolute, ends in a slash */
	char name[256];			/* the one it shall have */
	char temporary[64];		/* the one it has; "" when it has none */
};

/* @template with its words, into @ret, cut to @bytes (NUL included). Returns the length. */
size_t gm_outfile_expand(const char *template, const struct gm_outfile_words *words,
			 char *ret, size_t bytes);

/* @name with "-@number" before its extension (none for 1), cut to what a file system takes, not
 * within a character. */
void gm_outfile_numbered(const char *name, unsigned int number, char ret[256]);

/* Open a file that will have the name that @template expands to. A template that ends in a slash,
 * or names a directory, gets GM_OUTFILE_DEFAULT in it; /dev/null gets nothing (@out->nowhere). When
 * nothing can be created there, @fallback_dir (may be NULL) is used. Returns 0, or -errno of the
 * first try: -EINVAL where something that is no file has the name. */
int gm_outfile_open(struct gm_outfile *out, const char *template, const char *fallback_dir,
		    const struct gm_outfile_words *words);

/* Open a file that will have exactly the name @path, in a directory that exists. @public: its mode
 * is 0666 less the umask. Returns 0 or -errno. */
int gm_outfile_create(struct gm_outfile *out, const char *path, bool public);

/* Give a file of gm_outfile_create its name; it replaces a file that has that name. Returns 0 or
 * -errno. */
int gm_outfile_replace(struct gm_outfile *out);

/* Give it its name, or name-2, name-3, ... before the extension. Returns 0 and the path; -EBADF:
 * its descriptor is not ours any more. */
int gm_outfile_commit(struct gm_outfile *out, char *ret_path, size_t ret_path_bytes);

/* Close; a file that was not committed is removed. */
void gm_outfile_close(struct gm_outfile *out);

#endif
