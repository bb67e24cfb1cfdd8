/*
 * torch_write.h - a snapshot as PyTorch's, for `python -m torch.cuda._memory_viz` and
 * pytorch.org/memory_viz. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_WRITE_H
#define GM_TOOLS_TORCH_WRITE_H

#include "tools/read/snapshot.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

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
