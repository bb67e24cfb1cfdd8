/*
 * json_read.h - JSON read as a tree of values. Single-threaded.
 *
 * Why not jansson: it takes hundreds of bytes for each number and text, where a list of integers takes
 * eight bytes a number here; and PyTorch's JSON says every stack again with every event, which is read
 * but once here.
 */
#ifndef GM_TOOLS_JSON_READ_H
#define GM_TOOLS_JSON_READ_H

#include "tools/read/input.h"
#include "tools/read/value.h"

/* Read @source into @values. A list named "frames" is lasting, and each dict in it; the same text of
 * one is one value. A list of integers alone becomes GM_VALUE_NUMBERS. Returns 0 and *@ret_root (at most
 * 64 deep), -ENOMEM, or -EBADMSG and one sentence in @error. */
int gm_json_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		 char *error, size_t room);

#endif
