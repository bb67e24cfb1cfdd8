/*
 * progress.h - a line on stderr for what takes over a second, only on a terminal. Single-threaded.
 */
#ifndef GM_TOOLS_PROGRESS_H
#define GM_TOOLS_PROGRESS_H

#include <stddef.h>

/* "@what: @done of @all", drawn over itself from the second second on, at most 5 times a second. */
void gm_progress(const char *what, size_t done, size_t all);

/* Take the line away. */
void gm_progress_end(void);

#endif
