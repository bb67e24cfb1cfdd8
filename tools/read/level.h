/*
 * level.h - what the program holds, at the level that tells most: what its pools have handed out, in the place
 * of the pieces that they have from the driver. Single-threaded.
 */
#ifndef GM_TOOLS_LEVEL_H
#define GM_TOOLS_LEVEL_H

#include "tools/read/snapshot.h"

enum gm_pool_level { GM_LEVEL_POOL, GM_LEVEL_DRIVER };

/* Have @snapshot's rows and segments be of that level: the blocks and events of pools are among them, and those
 * of a pool's pieces are gone. What pools hold is there without its gaps, which @pools still has. Once; before
 * gm_snapshot_annotate.
 * Without pools nothing changes. Returns 0 or -ENOMEM. */
int gm_level_apply(struct gm_snapshot *snapshot, enum gm_pool_level level);

#endif
