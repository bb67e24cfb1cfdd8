/*
 * input.h - an input file, opened, and its bytes, read as a parser gets to them. Single-threaded.
 */
#ifndef GM_TOOLS_INPUT_H
#define GM_TOOLS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open @path for reading. A pipe with a writer is waited for, one without is empty. What cannot be
 * an input (a directory, a device, a socket) is not opened at all: to open one may hang, or start
 * something. Returns the descriptor, or -errno with one clause of @error saying why. */
int gm_input_open(const char *path, char *ret_error, size_t bytes);

/* Open @path, with O_NOFOLLOW or 0, if it is a regular file: to open another may do something, or wait.
 * Returns the descriptor or -errno. */
int gm_input_regular(const char *path, int flag);

/* gm_input_open for a caller that reads it more than once: a pipe, or standard input ("-"), is copied. @ret_path
 * (of GM_INPUT_PATH bytes at least) is what to open, as long as the returned descriptor is open. */
#define GM_INPUT_PATH 4096
int gm_input_whole(const char *path, char *ret_path, char *ret_error, size_t bytes);

/* What to say of an input with nothing in it. */
const char *gm_input_nothing(int fd);

/*
 * The bytes of an input, at consecutive addresses. They are read when they are asked for, and the memory of those
 * that were used is given back, so a file of gigabytes is never in memory as a whole. The file is read, not mapped:
 * a mapping could be cut short under us.
 */
struct gm_source {
	char *bytes;			/* stays where it is; bytes[have] is readable and NUL */
	size_t have;			/* how many there are */
	bool whole;			/* no more come */
	int error;			/* -errno of a read that failed, -EFBIG; then whole */
	/* its own */
	int fd;
	size_t room, mapped, dropped;
};

/* From the file @fd, which stays the caller's. Returns 0 or -errno. */
int gm_source_open(struct gm_source *source, int fd);
void gm_source_close(struct gm_source *source);

/* Read on, until there are @needed bytes in all or no more. What lies before @used may be forgotten.
 * Returns whether anything came. */
bool gm_source_more(struct gm_source *source, size_t needed, size_t used);

/* ---- limit.c ---------------------------------------------------------------------------------- */

/*
 * A hostile input of a few hundred bytes could take gigabytes. So memory, output and unpacked bytes are limited in
 * proportion to the bytes that are read; --no-limit lifts the limits. Real inputs stay far below them: a snapshot of
 * 119 MB takes 0.4 GB of memory, and 2.05 GB, 17 times as much, as PyTorch's JSON; of a pickle of PyTorch's of 93 MB,
 * whose stacks have 64 frames, that is 22 times as much. A trace is packed to a quarter of its size.
 */

/* Lift all limits from now on: for --no-limit, and in a child process whose input is not the verb's. */
void gm_limit_lift(void);

/* Count @bytes more as read: this process may have 512 MiB of memory, and 64 times all bytes read, more than it had
 * at the first of these calls; and @reserved bytes of address space more (below 0: less) beside that. */
void gm_limit_input(uint64_t bytes, int64_t reserved);

/* What was read so far no longer counts: for a program that reads one input after the other, and keeps none of them. */
void gm_limit_forget(void);

/* How many bytes may be written: 64 MiB and 1000 times what was read. */
uint64_t gm_limit_output(void);

/* How many bytes @packed bytes may become: 64 MiB and 100 times as much. */
uint64_t gm_limit_unpacked(uint64_t packed);

/* The error @r (-errno) in words: -ENOMEM and -EOVERFLOW name the limit. Static memory. */
const char *gm_limit_why(int r);

#endif
