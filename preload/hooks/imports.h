/*
 * imports.h - imported memory that is a block inside a segment of another process.
 *
 * The driver's IPC handle names the whole segment. The exporter writes the exported part into the handle's
 * last eight bytes, which the driver sets to zero and ignores:
 *
 *   63      56 55                                                     0
 *   |  kind   | check:12 | offset / 512 : 17 | size in bytes : 27       |  PART_SMALL
 *   |  kind   | check:16 | size in bytes : 40                           |  PART_FRONT (offset 0)
 *   |  kind   | offset / 512 : 28 | size / 512, rounded up : 28         |  PART_LARGE
 *
 * check: a checksum of the driver's 56 bytes. If the block fills its segment, nothing is written.
 *
 *   driver's import (base) <── block, opened n times ── block ── ...
 *
 * Each open and close of a block opens and closes the driver's import, which the driver counts itself.
 *
 * Thread context: any, inside a hook; one leaf lock, no driver call under it. Signal context: none.
 */
#ifndef GM_PRELOAD_IMPORTS_H
#define GM_PRELOAD_IMPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks/hook.h"

/* Write the exported part [@offset, +@size) into @handle, which names a segment of @segment_bytes.
 * Returns false when the fields cannot express the part. */
bool gm_part_write(CUipcMemHandle *handle, uint64_t offset, uint64_t size, uint64_t segment_bytes);

/* Read the exported part from @handle, and set the last bytes to zero again, as the driver had them.
 * Returns false when @handle names no part. */
bool gm_part_read(CUipcMemHandle *handle, uint64_t *ret_offset, uint64_t *ret_size);

struct gm_import {
	CUdeviceptr address;		/* the program's pointer */
	CUdeviceptr base;		/* the driver's pointer: the beginning of the segment */
	uint64_t size;			/* bytes of the part; 0: the whole segment */
	uint64_t base_bytes;
	uint32_t opens;
};

/* Return the bytes of the driver's allocation that was just imported at @address (hook_ipc.c); 0: not
 * known. */
uint64_t gm_import_bytes(CUdeviceptr address);

/* Has this process ever imported a segment or a part of one? */
bool gm_imports_any(void);

/* Record that the program opened a part, for the first time or again, in the @base_bytes that the driver
 * mapped at @base. Returns 0, -ENOMEM or -ETIMEDOUT; after an error the part is not known here. */
int gm_import_opened(CUdeviceptr base, uint64_t base_bytes, uint64_t offset, uint64_t size);

/* Record that the program is about to close @address once. Returns 1 and the import in @ret_import; 0
 * when no import is known at @address; -EINVAL when @address is the base of a segment and only blocks
 * elsewhere in it are open. */
int gm_import_closing(CUdeviceptr address, struct gm_import *ret_import);

/* Find the opened block that covers @address. Returns 1 and the block; 0 when the driver knows the
 * answer (no import is known, or the whole segment is open); -ENOENT when @address lies in a segment in
 * which only other blocks are open. */
int gm_import_find(CUdeviceptr address, struct gm_import *ret_import);

/* Forget @address, because the context in which it was opened has ended. */
void gm_import_ended(CUdeviceptr address);

#endif
