/*
 * torch_stats.h - the statistics that a snapshot of PyTorch does not have. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_STATS_H
#define GM_TOOLS_TORCH_STATS_H

#include "tools/read/snapshot.h"

/* PyTorch's snapshot says what is, not the peaks and sums of torch.cuda.memory_stats(). Where its
 * history is whole, they follow from it: it is run through PyTorch's algorithm, and if every address
 * and everything that is live in the end agree, each device of @snapshot gets all of them. Whether a
 * segment was freed by empty_cache() or by a retry is not in a history: it is taken for the former,
 * unless memory ran out. Out of memory: nothing changes. */
void gm_torch_stats(struct gm_snapshot *snapshot);

#endif
