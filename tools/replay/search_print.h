/*
 * search_print.h - gpumem replay --search: what was tried, and what it recommends.
 * Single-threaded.
 */
#ifndef GM_TOOLS_SEARCH_PRINT_H
#define GM_TOOLS_SEARCH_PRINT_H

#include "tools/replay/history.h"

/* Search from @conf and print. @limit: NULL takes what the history knows. Returns the exit status. */
int gm_search_print(const struct gm_history *history, const char *word, const char *conf,
		     const uint64_t *limit, bool json);

#endif
