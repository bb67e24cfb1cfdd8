/*
 * replay_search.h - gpumem replay --search: what was tried, and what it recommends.
 * Single-threaded.
 */
#ifndef GM_TOOLS_REPLAY_SEARCH_H
#define GM_TOOLS_REPLAY_SEARCH_H

#include "tools/replay/history.h"

/* Search from @conf and print. @limit: NULL takes what the history knows. Returns the exit status. */
int gm_replay_search(const struct gm_history *history, const char *word, const char *conf,
		     const uint64_t *limit, bool json);

#endif
