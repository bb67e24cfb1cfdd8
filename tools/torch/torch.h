/*
 * torch.h - PyTorch's snapshots: made into ours, and ours into theirs. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_H
#define GM_TOOLS_TORCH_H

#include "tools/read/snapshot.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

/* ---- torch_read.c ----------------------------------------------------------------------------- */

/* Make the root of @snapshot, which was read from PyTorch's (snapshot_read.c), one of version 1
 * (docs/snapshot.md), reason "pytorch": its devices have of memory_stats what is current. 0 or -ENOMEM. */
int gm_torch_finish(struct gm_snapshot *snapshot);

/* ---- torch_stats.c ---------------------------------------------------------------------------- */

/* PyTorch's snapshot says what is, not the peaks and sums of torch.cuda.memory_stats(). Where its
 * history is whole, they follow from it: it is run through PyTorch's algorithm, and if every address
 * and everything that is live in the end agree, each device of @snapshot gets all of them. Whether a
 * segment was freed by empty_cache() or by a retry is not in a history: it is taken for the former,
 * unless memory ran out. Out of memory: nothing changes. */
void gm_torch_stats(struct gm_snapshot *snapshot);

/* ---- torch_pools.c ---------------------------------------------------------------------------- */

/* Put @snapshot's pools in the places of their devices, for gm_torch_make_fit. Of a device's pools PyTorch's, or else
 * the first, gets the device's number; the driver's level of that device and its other pools get numbers behind those
 * of all devices. @note says which. Without pools nothing changes. Returns 0 or -ENOMEM. */
int gm_torch_pools(struct gm_snapshot *snapshot, char *note, size_t room);

/* ---- torch_fit.c and torch_write.c ------------------------------------------------------------ */

/* What of a snapshot PyTorch's viewer can follow: it plays the events backward from what is live at
 * the end, and fails where that does not work out. */
struct gm_torch_fit {
	bool *keep;			/* by row: whether it fits */
	size_t left_out;		/* how many do not */
	size_t segments_left_out;	/* that overlap others, or have no size */
	size_t others_left_out;		/* events of other processes' memory */
	size_t device_count;
	bool *keep_segment;		/* by segment, */
	uint64_t *segment_address;	/* and where it is shown */
};

/* The rows of @snapshot change: handles get addresses of their own, and mappings are of whole segments.
 * 0 or -ENOMEM; gm_torch_unfit frees it. */
int gm_torch_make_fit(struct gm_torch_fit *fit, struct gm_snapshot *snapshot);
void gm_torch_unfit(struct gm_torch_fit *fit);

/* Write @snapshot. Returns 0 or -ENOMEM; the writer has errors of its own. */
int gm_torch_write(struct gm_writer *writer, const struct gm_snapshot *snapshot,
		   const struct gm_torch_fit *fit);

/* Write what PyTorch said, as it said it. */
void gm_torch_write_value(struct gm_writer *writer, const struct gm_value *root);

#endif
