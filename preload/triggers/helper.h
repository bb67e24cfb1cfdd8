/*
 * helper.h - the one helper thread, which writes the snapshots that were asked for (trigger.h).
 */
#ifndef GM_PRELOAD_HELPER_H
#define GM_PRELOAD_HELPER_H

/* In the main thread, when the library is loaded: learn how to see that it has ended. */
void gm_helper_loaded(void);

/* Create the helper thread; once, at the start. Returns 0 or -errno. */
int gm_helper_start(void);

#endif
