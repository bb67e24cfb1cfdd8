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
 * The bytes of an input. A file of gigabytes is never in memory as a whole: bytes have one address
 * from the first to the last, come when they are asked for, and those that were used go. They come
 * by read(), not by mapping the file: a mapping could be cut short under us.
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

/* From the file @fd, which stays the caller's; or from memory, whose @bytes[@have] is NUL. The first
 * returns 0 or -errno. */
int gm_source_open(struct gm_source *source, int fd);
struct gm_source gm_source_of(const char *bytes, size_t have);
void gm_source_close(struct gm_source *source);

/* Read on, until there are @needed bytes in all or no more. What lies before @used may be forgotten.
 * Returns whether anything came. */
bool gm_source_more(struct gm_source *source, size_t needed, size_t used);

/* ---- limit.c ---------------------------------------------------------------------------------- */

/*
 * Bombs of a few hundred bytes would take gigabytes, so memory, output and what is unpacked are held in
 * proportion to what is read. --no-limit is for who means it. What real inputs take is far below: 119 MB of ours
 * are 0.4 GB of memory at the most, and 2.05 GB as PyTorch's JSON, 17 times as much; 93 MB of PyTorch's pickle,
 * whose stacks are of 64 frames, 22 times. A trace is packed to a quarter.
 */

/* No limits, from now on; for a child process that reads what nobody hostile made, too. */
void gm_limit_lift(void);

/* @bytes more are read: the memory of this process ends 512 MiB and 64 times all of them above what it
 * had at the first of these calls. @reserved bytes of address space are taken beside that, or freed. */
void gm_limit_input(uint64_t bytes, int64_t reserved);

/* How many bytes may be written: 64 MiB and 1000 times what was read. */
uint64_t gm_limit_output(void);

/* How many bytes @packed bytes may become: 64 MiB and 100 times as much. */
uint64_t gm_limit_unpacked(uint64_t packed);

/* The error @r (-errno) in words: -ENOMEM and -EOVERFLOW name the limit. Static memory. */
const char *gm_limit_why(int r);

#endif
