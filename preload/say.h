/*
 * say.h - the few lines that the library may print: on stderr, if stderr is what it was.
 *
 * Thread context: any. Signal context: safe. Fork: counts go on in the child. No malloc, no stdio.
 */
#ifndef GM_PRELOAD_SAY_H
#define GM_PRELOAD_SAY_H

#include <stdint.h>

/* Remember what file descriptor 2 is, at the start of the process: should the host close it and
 * open something else under its number, nothing is ever written there. */
void gm_say_remember(void);

/* One line, "gpumem: " and the texts one after the other up to NULL, in one write. At most
 * GM_SAY_LINES a process (and one that says so). errno is kept, SIGPIPE is not raised. */
#define GM_SAY_LINES 64
void gm_say(const char *text, ...) __attribute__((sentinel));

/* Said whatever the count: what the user asked to be told (verbose). */
void gm_say_always(const char *text, ...) __attribute__((sentinel));

/* @value in decimal, in @buffer. Returns @buffer. */
struct gm_decimal { char text[24]; };
const char *gm_decimal(struct gm_decimal *buffer, int64_t value);

/* strerror without malloc and locale: the name and meaning of -@error, as "ENOSPC: no space left". */
const char *gm_error_text(int error);

#endif
