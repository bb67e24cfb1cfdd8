/*
 * say.h - print the few lines of the library: on stderr, if descriptor 2 is still the file that it was at
 * the start.
 *
 * Thread context: any. Signal context: safe. No malloc, no stdio.
 */
#ifndef GM_PRELOAD_SAY_H
#define GM_PRELOAD_SAY_H

#include <stdbool.h>

/* Remember the file of descriptor 2, at the start of the process. If the host closes it and opens another
 * file under that number, nothing is written there. */
void gm_say_remember(void);

/* Print one line in one write: "gpumem: " and then the texts. A process prints at most GM_SAY_LINES lines,
 * and one more to say that further lines are left out. gm_say_always has no limit; it is for lines that the
 * user asked for (verbose). Keeps errno. Does not raise SIGPIPE. */
#define GM_SAY_LINES 64
#define gm_say(...) gm_say_list(false, (const char *const[]){ __VA_ARGS__, NULL })
#define gm_say_always(...) gm_say_list(true, (const char *const[]){ __VA_ARGS__, NULL })
void gm_say_list(bool always, const char *const *texts);

#endif
