/*
 * pickle_read.h - pickles read as data.
 *
 * Nothing in a pickle is ever run. Only what builds None, booleans, numbers, texts, lists, tuples
 * and dicts is known (protocols 2 to 5, as Python and PyTorch's C++ write them), and a pickle that names
 * a class or a function is refused. Single-threaded.
 */
#ifndef GM_TOOLS_PICKLE_READ_H
#define GM_TOOLS_PICKLE_READ_H

#include "tools/read/input.h"
#include "tools/read/value.h"

/* Read @source into @values. Returns 0 and *@ret_root (no cycles, at most 64 deep, every key a
 * text), -ENOMEM, or -EBADMSG and one sentence in @error. */
int gm_pickle_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		   char *error, size_t room);

#endif
