/*
 * bulk.h - the parts of a loaded snapshot that may have millions of items.
 *
 * As jansson's they would take gigabytes, so they stay values (value.h) beside the jansson tree of
 * the rest. Whoever has the root has them. Single-threaded.
 */
#ifndef GM_TOOLS_BULK_H
#define GM_TOOLS_BULK_H

#include <jansson.h>
#include <stdio.h>

#include "tools/read/value.h"

/* The jansson tree of @whole, an object, without those parts; gm_bulk_forget before it goes. NULL:
 * out of memory. @whole must outlive it. */
json_t *gm_bulk_root(const struct gm_value *whole);
void gm_bulk_forget(const json_t *root);

/* The part @name ("segments", "host_segments", "device_traces", "host_trace", "stacks", "frames") of
 * the snapshot @root; NULL without it. */
const struct gm_value *gm_bulk(const json_t *root, const char *name);

/* The same if it is a list of values. */
const struct gm_value *gm_bulk_list(const json_t *root, const char *name);

/* The same as jansson has it, from now on a member of @root: for the few who change it, or read
 * little. NULL: no such part, or out of memory. */
json_t *gm_bulk_json(const json_t *root, const char *name);

/* @part in the place of the part @name, from now on; it must outlive the root. */
void gm_bulk_replace(const json_t *root, const char *name, const struct gm_value *part);

/* Write the snapshot whole: what jansson has as it is now, the rest as it was read. 0 or -errno. */
int gm_bulk_write(const json_t *root, FILE *out);

#endif
