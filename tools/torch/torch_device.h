/*
 * torch_device.h - the devices of a snapshot of PyTorch, as ours have them. Single-threaded, no
 * signal context.
 */
#ifndef GM_TOOLS_TORCH_DEVICE_H
#define GM_TOOLS_TORCH_DEVICE_H

#include "tools/read/value_make.h"

/* How many @root, a snapshot of PyTorch, has: what its segments and traces are of, 1024 at most. */
size_t gm_torch_device_count(const struct gm_value *root);

/* The entry of "devices" for number @device. @m tells of memory that was not there, as of all that is
 * made. */
const struct gm_value *gm_torch_device(struct gm_maker *m, const struct gm_value *root,
				       size_t device);

#endif
