/*
 * torch_write.h - a snapshot as PyTorch's, for `python -m torch.cuda._memory_viz` and
 * pytorch.org/memory_viz. Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_WRITE_H
#define GM_TOOLS_TORCH_WRITE_H

#include <jansson.h>

#include "tools/read/trace_rows.h"
#include "tools/write/tree_write.h"
#include "tools/read/value.h"

/* What of a snapshot PyTorch's viewer can follow: it plays the events backward from what is live at
 * the end, and fails where that does not work out. */
struct gm_torch_fit {
	struct gm_row *rows;		/* of all devices, oldest first; handles have places of their own */
	size_t count;
	bool *keep;			/* which of them fit */
	size_t left_out;		/* how many do not */
	size_t segments_left_out;	/* that overlap others, or have no size */
	size_t others_left_out;		/* events of other processes' memory */
	size_t device_count;
	bool *keep_segment;		/* by their place in the snapshot's list */
	uint64_t *segment_address;	/* likewise */
};

/* 0 or -ENOMEM; gm_torch_unfit gives it back. */
int gm_torch_make_fit(struct gm_torch_fit *fit, const json_t *root);
void gm_torch_unfit(struct gm_torch_fit *fit);

/* Write the snapshot @root to @tree. Returns 0 or -ENOMEM; the writer has errors of its own. */
int gm_torch_write(struct gm_tree *tree, const json_t *root, const struct gm_torch_fit *fit);

/* Write what PyTorch said, as it said it. */
void gm_torch_write_value(struct gm_tree *tree, const struct gm_value *root);

#endif
