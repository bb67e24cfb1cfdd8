/*
 * level.h - the level of a snapshot: what pools have handed out, in place of the pieces of memory that they have from
 * the driver; or these pieces. Single-threaded.
 */
#ifndef GM_TOOLS_LEVEL_H
#define GM_TOOLS_LEVEL_H

#include "tools/read/snapshot.h"

enum gm_pool_level { GM_LEVEL_POOL, GM_LEVEL_DRIVER };

/* Make @snapshot's rows and segments those of @level. At GM_LEVEL_POOL the events and segments of pools are added to
 * them, without idle blocks, and the blocks and events of pools' pieces are removed; @pools does not change. At
 * GM_LEVEL_DRIVER, and without pools, nothing changes. To be called once, before gm_snapshot_annotate. Returns 0,
 * -E2BIG (2^32 rows) or -ENOMEM. */
int gm_level_apply(struct gm_snapshot *snapshot, enum gm_pool_level level);

#endif
