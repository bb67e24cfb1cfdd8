/*
 * follow.h - option follow: whether child processes get the preload, too.
 */
#ifndef GM_PRELOAD_FOLLOW_H
#define GM_PRELOAD_FOLLOW_H

#include <stdbool.h>

/* When the library is loaded: whose option follow:no is. */
void gm_follow_loaded(void);

/* Is it another process's, which hands nothing on? Then nothing is recorded in this one. */
bool gm_follow_ends_here(void);

/* Take this library out of LD_PRELOAD in the environment that children inherit. */
void gm_follow_stop(void);

#endif
