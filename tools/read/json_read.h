/*
 * json_read.h - JSON read into values: see value.h.
 *
 * Why not jansson: a snapshot repeats itself (a million events name nine actions; PyTorch's writes
 * every frame out each time), and here what is equal is kept once and numbers take eight bytes.
 * Single-threaded.
 */
#ifndef GM_TOOLS_JSON_READ_H
#define GM_TOOLS_JSON_READ_H

#include "tools/read/source.h"
#include "tools/read/value.h"

/* Read the one value that @source is; a list of integers alone becomes GM_VALUE_NUMBERS. Returns 0
 * and *@ret_root, -ENOMEM, or -EBADMSG and one sentence in @error. (That the source could not be
 * read shows as an end too early: see its error.) */
int gm_json_read(struct gm_values *values, struct gm_source *source,
		 const struct gm_value **ret_root, char *error, size_t room);

#endif
