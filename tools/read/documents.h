/*
 * documents.h - reading documents: JSON and pickles into trees of values, and such trees into snapshots. Nothing in
 * them is trusted. Single-threaded.
 */
#ifndef GM_TOOLS_DOCUMENTS_H
#define GM_TOOLS_DOCUMENTS_H

#include "tools/read/input.h"
#include "tools/read/snapshot.h"
#include "tools/read/value.h"

/* ---- json_read.c ------------------------------------------------------------------------------ */

/*
 * Not by jansson, which takes hundreds of bytes for each number and text. Here a list of integers takes eight
 * bytes a number, and a stack, which PyTorch's JSON repeats with every event, is read once.
 */

/* Read @source into @values. A list named "frames", and each dict in it, is lasting: where one comes again in
 * the same words, it is the same value. A list of nothing but integers becomes GM_VALUE_NUMBERS. Returns 0 and
 * *@ret_root (at most 64 deep), -ENOMEM, or -EBADMSG and one sentence in @error. */
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

/* Make a snapshot of the tree @root in @values, which was read from a @pickle or from JSON. @values belongs to the
 * snapshot from then on, and the tree is freed. *@ret_torch: it is PyTorch's, whose root gm_torch_finish has yet to
 * make. Returns 0, -ENOMEM, or -EBADMSG and one sentence in @error. gm_snapshot_free it in any case. */
int gm_snapshot_read(struct gm_snapshot *snapshot, struct gm_values *values, const struct gm_value *root,
		     bool pickle, bool *ret_torch, char *error, size_t room);

#endif
