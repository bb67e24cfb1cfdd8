/*
 * snapshot_read.h - a document read into a snapshot: one of ours, or one of PyTorch. Single-threaded.
 */
#ifndef GM_TOOLS_SNAPSHOT_READ_H
#define GM_TOOLS_SNAPSHOT_READ_H

#include "tools/read/snapshot.h"
#include "tools/read/value.h"

/* Does @root look like torch.cuda.memory._snapshot()? */
bool gm_torch_is(const struct gm_value *root);

/* Read the tree @root in @values, of a @pickle or of JSON. @values is the snapshot's from then on, and the
 * tree is freed. *@ret_torch: it is PyTorch's (gm_torch_finish makes the root that ours has of it). Returns 0,
 * -ENOMEM, or -EBADMSG and one sentence in @error. gm_snapshot_free the snapshot in any case. */
int gm_snapshot_read(struct gm_snapshot *snapshot, struct gm_values *values, const struct gm_value *root,
		     bool pickle, bool *ret_torch, char *error, size_t room);

#endif
