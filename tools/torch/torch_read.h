/*
 * torch_read.h - what a snapshot of ours has and PyTorch's has not. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_READ_H
#define GM_TOOLS_TORCH_READ_H

#include "tools/read/snapshot.h"

/* Make the root of @snapshot, which was read from PyTorch's (snapshot_read.h), one of version 1
 * (docs/snapshot.md), reason "pytorch": its devices have of memory_stats what is current. 0 or -ENOMEM. */
int gm_torch_finish(struct gm_snapshot *snapshot);

#endif
