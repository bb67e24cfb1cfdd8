/*
 * torch.h - turn PyTorch's snapshots into ours, and ours into PyTorch's. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_H
#define GM_TOOLS_TORCH_H

#include "tools/read/snapshot.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

/* ---- torch_read.c ----------------------------------------------------------------------------- */

/* Give @snapshot, read from PyTorch's (snapshot_read.c), a root of version 1 (docs/snapshot.md) with the reason
 * "pytorch". The memory_stats of its devices have only the current values. Return 0 or -ENOMEM. */
int gm_torch_finish(struct gm_snapshot *snapshot);

/* ---- torch_stats.c ---------------------------------------------------------------------------- */

/* Add to each device of @snapshot the peaks and sums of torch.cuda.memory_stats(), which PyTorch's snapshot lacks. They
 * are found by replaying the device's history through PyTorch's algorithm. A device gets them only if the history is
 * complete, and if every address and every current value agree. A history does not say whether empty_cache() or a retry
 * freed a segment: the replay assumes empty_cache(), unless memory ran out then. Without memory nothing changes. */
void gm_torch_stats(struct gm_snapshot *snapshot);

/* ---- torch_pools.c ---------------------------------------------------------------------------- */

/* Turn @snapshot's pools into devices, for gm_torch_make_fit. PyTorch's pool on a device, or else the device's first
 * pool, gets the device's number. The driver's level of that device and its other pools get numbers after those of all
 * devices. @note says which number is what. Without pools nothing changes. Return 0 or -ENOMEM. */
int gm_torch_pools(struct gm_snapshot *snapshot, char *note, size_t room);

/* ---- torch_fit.c and torch_write.c ------------------------------------------------------------ */

/* The events and segments that PyTorch's viewer can follow. The viewer starts from the blocks that are live at the end,
 * undoes the events, and fails at an event that does not match. */
struct gm_torch_fit {
	bool *keep;			/* by row: does the event fit? */
	size_t left_out;		/* number of events that do not fit */
	size_t segments_left_out;	/* segments that overlap others or have a bad size or device */
	size_t ipc_left_out;		/* events of other processes' memory */
	size_t device_count;
	bool *keep_segment;		/* by segment: does it fit? */
	uint64_t *segment_address;	/* by segment: the address that the viewer gets */
};

/* Find what fits. This changes rows of @snapshot: a handle becomes an address that nothing else has, and a mapping that
 * is not a cache's becomes a segment. Return 0 or -ENOMEM; gm_torch_unfit frees @fit. */
int gm_torch_make_fit(struct gm_torch_fit *fit, struct gm_snapshot *snapshot);
void gm_torch_unfit(struct gm_torch_fit *fit);

/* Write @snapshot in PyTorch's form. Return 0 or -ENOMEM; errors of the writer are found by gm_writer_close. */
int gm_torch_write(struct gm_writer *writer, const struct gm_snapshot *snapshot,
		   const struct gm_torch_fit *fit);

/* Write a document of PyTorch's again, unchanged. */
void gm_torch_write_value(struct gm_writer *writer, const struct gm_value *root);

#endif
