/*
 * say.h - the few lines that the library may print: on stderr, if descriptor 2 is still what it was
 * at the start.
 *
 * Thread context: any. Signal context: safe. No malloc, no stdio.
 */
#ifndef GM_PRELOAD_SAY_H
#define GM_PRELOAD_SAY_H

#include <stdbool.h>

/* Remember what file descriptor 2 is, at the start of the process: should the host close it and
 * open something else under its number, nothing is ever written there. */
void gm_say_remember(void);

/* Print one line, "gpumem: " and the texts one after the other, in one write. A process prints at
 * most GM_SAY_LINES, and one more that says so; gm_say_always is not limited: for what the user
 * asked for (verbose). errno is kept, SIGPIPE is not raised. */
#define GM_SAY_LINES 64
#define gm_say(...) gm_say_list(false, (const char *const[]){ __VA_ARGS__, NULL })
#define gm_say_always(...) gm_say_list(true, (const char *const[]){ __VA_ARGS__, NULL })
void gm_say_list(bool always, const char *const *texts);

#endif
