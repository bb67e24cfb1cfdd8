/*
 * follow.h - option follow: whether child processes get the preload, too.
 */
#ifndef GM_PRELOAD_FOLLOW_H
#define GM_PRELOAD_FOLLOW_H

/* Take this library out of LD_PRELOAD in the environment that children inherit. */
void gm_follow_stop(void);

#endif
