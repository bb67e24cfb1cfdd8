/*
 * snapshot_write.h - a snapshot as the JSON of docs/snapshot.md. Single-threaded.
 */
#ifndef GM_TOOLS_SNAPSHOT_WRITE_H
#define GM_TOOLS_SNAPSHOT_WRITE_H

#include <stdio.h>

#include "tools/read/snapshot.h"

/* Returns 0 or -errno. */
int gm_snapshot_json(const struct gm_snapshot *snapshot, FILE *out);

#endif
