/*
 * level.h - the level of a snapshot: either the blocks that pools handed out, or the pieces of memory that pools got
 * from the driver. Single-threaded.
 */
#ifndef GM_TOOLS_LEVEL_H
#define GM_TOOLS_LEVEL_H

#include "tools/read/snapshot.h"

enum gm_pool_level { GM_LEVEL_POOL, GM_LEVEL_DRIVER };

/* Change the rows and segments of @snapshot to @level. GM_LEVEL_POOL adds the events and segments of pools, without
 * idle blocks, and removes the blocks and events of pools' pieces; @snapshot->pools does not change. GM_LEVEL_DRIVER
 * changes nothing. Call this once, before gm_snapshot_annotate. Returns 0, -E2BIG (2^32 rows) or -ENOMEM. */
int gm_level_apply(struct gm_snapshot *snapshot, enum gm_pool_level level);

#endif
