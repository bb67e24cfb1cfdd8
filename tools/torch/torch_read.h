/*
 * torch_read.h - a snapshot of PyTorch as one of ours, and any value as jansson has it.
 *
 * Single-threaded.
 */
#ifndef GM_TOOLS_TORCH_READ_H
#define GM_TOOLS_TORCH_READ_H

#include <jansson.h>

#include "tools/read/value.h"

/* Does @root look like torch.cuda.memory._snapshot()? */
bool gm_torch_is(const struct gm_value *root);

/* A snapshot of version 1 (docs/snapshot.md), reason "pytorch", with what PyTorch's knows: segments,
 * traces, stacks, settings, annotations, and of memory_stats what is current. It lies in @to and has
 * nothing of @root's memory. NULL: out of memory. */
const struct gm_value *gm_torch_read(struct gm_values *to, const struct gm_value *root);

/* @value as jansson has it; equal texts and integers are shared, so change none of them. Lone
 * surrogates become U+FFFD. NULL: out of memory, or more than @most values. */
json_t *gm_value_to_json(const struct gm_value *value, size_t most);

/* The same of one text. */
json_t *gm_text_to_json(const struct gm_value *value);

#endif
