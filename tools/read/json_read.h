/*
 * json_read.h - JSON, read part by part: a container is entered and its items come one after the
 * other, or a value is read whole. Single-threaded.
 *
 * Why not jansson: it takes hundreds of bytes for each number and text, and a whole document must be in
 * memory; and PyTorch's JSON says every stack again with every event, which is read but once here.
 */
#ifndef GM_TOOLS_JSON_READ_H
#define GM_TOOLS_JSON_READ_H

#include "tools/read/input.h"
#include "tools/read/value.h"

struct gm_json;

/* Of @source, which must outlive it. What is wrong goes to @error, one sentence. NULL: out of memory. */
struct gm_json *gm_json_open(struct gm_source *source, char *error, size_t room);
void gm_json_close(struct gm_json *json);

/* Does a dict, or a list, come next? */
bool gm_json_is(struct gm_json *json, enum gm_value_type type);

/* Enter the container that comes next. */
int gm_json_enter(struct gm_json *json);

/* Go to the next item of the container that was entered last; in a dict *@ret_name is its name. The
 * caller enters the item, or reads it. Returns 1; 0: there is none, and the container is left; -ENOMEM;
 * -EBADMSG. */
int gm_json_next(struct gm_json *json, const char **ret_name);

/* Read the value that comes next. It is valid until the next one is read, unless it is lasting: each
 * list named "frames" is, and each dict in it; they are read once, however often their text comes. A list
 * of integers alone becomes GM_VALUE_NUMBERS. Returns 0, -ENOMEM or -EBADMSG. */
int gm_json_value(struct gm_json *json, const struct gm_value **ret_value);

/* Is nothing behind what was read? 0 or -EBADMSG. */
int gm_json_end(struct gm_json *json);

#endif
