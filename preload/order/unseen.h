/*
 * unseen.h - work that no hook may see: private tables of the driver, and objects that reach the driver
 * past us. Where there may be any, nothing is reused early and no context is taken to be the only one.
 *
 * Thread context: any, also inside the loader and before the library has started. Signal context:
 * none.
 */
#ifndef GM_PRELOAD_UNSEEN_H
#define GM_PRELOAD_UNSEEN_H

#include "allocator/reuse.h"
#include "preload/order/context.h"

/* From now on, and if there is such work already, @reuse leaves single-stream mode for it. */
void gm_unseen_start(struct gm_reuse *reuse);

/* Work may be submitted that no hook sees. @why is said under verbose, once the options are read. */
void gm_unseen_work(const char *why);
bool gm_unseen(void);

/* Are there objects that are bound past us? Checked for at the start, and, after the host looked a
 * name up, before freed memory is handed out again early. No lock held. */
void gm_unseen_check_slow(void);
static inline void gm_unseen_check(void)
{
	if (gm_name_resolved)
		gm_unseen_check_slow();
}

#endif
