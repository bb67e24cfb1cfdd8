/*
 * source.h - the bytes of an input, read as a parser gets to them.
 *
 * A file of gigabytes is never in memory as a whole: bytes have one address from the first to the
 * last, come when they are asked for, and those that were used go. By read(), not by mapping the
 * file: a mapping could be cut short under us. Single-threaded.
 */
#ifndef GM_TOOLS_SOURCE_H
#define GM_TOOLS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
