/*
 * documents.h - the readers of documents: JSON and pickles as trees of values, and those as snapshots. Nothing in
 * them is trusted. Single-threaded.
 */
#ifndef GM_TOOLS_DOCUMENTS_H
#define GM_TOOLS_DOCUMENTS_H

#include "tools/read/input.h"
#include "tools/read/snapshot.h"
#include "tools/read/value.h"

/* ---- json_read.c ------------------------------------------------------------------------------ */

/*
 * Why not jansson: it takes hundreds of bytes for each number and text, where a list of integers takes
 * eight bytes a number here; and PyTorch's JSON says every stack again with every event, which is read
 * but once here.
 */

/* Read @source into @values. A list named "frames" is lasting, and each dict in it; the same text of
 * one is one value. A list of integers alone becomes GM_VALUE_NUMBERS. Returns 0 and *@ret_root (at most
 * 64 deep), -ENOMEM, or -EBADMSG and one sentence in @error. */
int gm_json_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		 char *error, size_t room);

/* ---- pickle_read.c ---------------------------------------------------------------------------- */

/*
 * Nothing in a pickle is ever run. Only what builds None, booleans, numbers, texts, lists, tuples
 * and dicts is known (protocols 2 to 5, as Python and PyTorch's C++ write them), and a pickle that names
 * a class or a function is refused.
 */

/* Read @source into @values. Returns 0 and *@ret_root (no cycles, at most 64 deep, every key a
 * text), -ENOMEM, or -EBADMSG and one sentence in @error. */
int gm_pickle_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		   char *error, size_t room);

/* ---- snapshot_read.c -------------------------------------------------------------------------- */

/* Read the tree @root in @values, of a @pickle or of JSON. @values is the snapshot's from then on, and the
 * tree is freed. *@ret_torch: it is PyTorch's (gm_torch_finish makes the root that ours has of it). Returns 0,
 * -ENOMEM, or -EBADMSG and one sentence in @error. gm_snapshot_free the snapshot in any case. */
int gm_snapshot_read(struct gm_snapshot *snapshot, struct gm_values *values, const struct gm_value *root,
		     bool pickle, bool *ret_torch, char *error, size_t room);

#endif
