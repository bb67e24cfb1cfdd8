/*
 * tree_put.h - what is in memory, written to a tree: from jansson, or from values. Single-threaded.
 */
#ifndef GM_TOOLS_TREE_PUT_H
#define GM_TOOLS_TREE_PUT_H

#include <jansson.h>

#include "tools/write/tree_write.h"
#include "tools/read/value.h"

void gm_tree_put_json(struct gm_tree *tree, const json_t *value);

/* Tuples as lists; integers of 64 bits without a sign as their two's complement, as docs/snapshot.md
 * has them. */
void gm_tree_put_value(struct gm_tree *tree, const struct gm_value *value);

#endif
