/*
 * documents.h - read JSON and pickles into trees of values, and make snapshots of such trees. No content of a document
 * is trusted. Single-threaded.
 */
#ifndef GM_TOOLS_DOCUMENTS_H
#define GM_TOOLS_DOCUMENTS_H

#include "tools/read/input.h"
#include "tools/read/snapshot.h"
#include "tools/read/value.h"

/* ---- json_read.c ------------------------------------------------------------------------------ */

/*
 * This reader takes the place of jansson, which needs hundreds of bytes for each number and text. Here an integer in a
 * list takes eight bytes, and a stack, which PyTorch's JSON repeats with every event, is kept once.
 */

/* Read @source into @values. A list named "frames", and each dict in it, is lasting: equal texts of it become one
 * value. A list of integers only becomes GM_VALUE_NUMBERS. Returns 0 and *@ret_root (at most 64 deep), -ENOMEM, or
 * -EBADMSG and one sentence in @error. */
int gm_json_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		 char *error, size_t room);

/* ---- pickle_read.c ---------------------------------------------------------------------------- */

/*
 * A pickle is read as data and never run. The reader knows the operations that build None, booleans, numbers, texts,
 * lists, tuples and dicts (protocols 2 to 5, as Python and PyTorch's C++ write them). It refuses a pickle that names a
 * class or a function.
 */

/* Read @source into @values. Returns 0 and *@ret_root (without cycles, at most 64 deep, with texts as keys), -ENOMEM,
 * or -EBADMSG and one sentence in @error. */
int gm_pickle_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		   char *error, size_t room);

/* ---- snapshot_read.c -------------------------------------------------------------------------- */

/* Make a snapshot of the tree @root in @values, which was read from a @pickle or from JSON. The snapshot takes over
 * @values, and the tree is freed. *@ret_torch: it is a snapshot of PyTorch, and gm_torch_finish must make its root.
 * Returns 0, -ENOMEM, or -EBADMSG and one sentence in @error. Call gm_snapshot_free in every case. */
int gm_snapshot_read(struct gm_snapshot *snapshot, struct gm_values *values, const struct gm_value *root,
		     bool pickle, bool *ret_torch, char *error, size_t room);

#endif
