/*
 * json_read.h - JSON read into values: see value.h.
 *
 * Why not jansson: a snapshot repeats itself (a million events name nine actions; PyTorch's writes
 * every frame out each time), and here what is equal is kept once. Single-threaded.
 */
#ifndef GM_TOOLS_JSON_READ_H
#define GM_TOOLS_JSON_READ_H

#include "tools/value.h"

/* Read the one value that @text is. @text[@count] must be readable and NUL. Returns 0 and
 * *@ret_root, -ENOMEM, or -EBADMSG and one sentence in @error. */
int gm_json_read(struct gm_values *values, const char *text, size_t count,
		 const struct gm_value **ret_root, char *error, size_t room);

#endif
