/*
 * input.h - open an input file, and read its bytes as a parser needs them. Single-threaded.
 */
#ifndef GM_TOOLS_INPUT_H
#define GM_TOOLS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open @path for reading. Reads from a pipe wait as long as it has a writer; a pipe without one is empty. A
 * directory, a device or a socket is refused before it is opened, because opening it may hang or start something.
 * Returns the descriptor, or -errno and the reason in @ret_error, one clause. */
int gm_input_open(const char *path, char *ret_error, size_t bytes);

/* Open @path if it is a regular file; opening any other file may wait or have side effects. @flag: O_NOFOLLOW or 0.
 * Returns the descriptor or -errno. */
int gm_input_regular(const char *path, int flag);

/* As gm_input_open, for a caller that reads the input more than once: standard input ("-") and pipes are copied. The
 * caller opens @ret_path (room for GM_INPUT_PATH bytes), which is valid while the returned descriptor is open. */
#define GM_INPUT_PATH 4096
int gm_input_whole(const char *path, char *ret_path, char *ret_error, size_t bytes);

/* Return a clause that says why the input @fd, which had no bytes, is empty. Static memory. */
const char *gm_input_nothing(int fd);

/*
 * The bytes of an input, at consecutive addresses. Bytes are read when they are asked for, and the memory of used bytes
 * is given back, so a file of gigabytes is never in memory as a whole. The file is read and not mapped, because the
 * file of a mapping could be cut short, which is a SIGBUS.
 */
struct gm_source {
	char *bytes;			/* stays where it is; bytes[have] is readable and NUL */
	size_t have;			/* bytes that were read */
	bool whole;			/* no more bytes come */
	int error;			/* -errno of the read that failed, or -EFBIG; @whole is set, too */
	/* its own */
	int fd;
	size_t room, mapped, dropped;
};

/* Open a source that reads the file @fd, which the caller closes. Returns 0 or -errno. */
int gm_source_open(struct gm_source *source, int fd);
void gm_source_close(struct gm_source *source);

/* Read at least 4 MiB more, and until there are @needed bytes in all, or to the end of the input. The memory of the
 * first @used bytes may be given back. Returns whether any byte was read. */
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

/* Count from 0 again: for a program that reads one input after the other and keeps none of them. */
void gm_limit_forget(void);

/* How many bytes may be written: 64 MiB and 1000 times what was read. */
uint64_t gm_limit_output(void);

/* How many bytes @packed bytes may become: 64 MiB and 100 times as much. */
uint64_t gm_limit_unpacked(uint64_t packed);

/* The error @r (-errno) in words: -ENOMEM and -EOVERFLOW name the limit. Static memory. */
const char *gm_limit_why(int r);

#endif
