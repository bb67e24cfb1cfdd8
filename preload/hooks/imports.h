/*
 * imports.h - imported memory that is a block inside a segment of another process.
 *
 * The driver's IPC handle names the whole segment. The exporter writes which part is exported into the
 * handle's last eight bytes, which the driver sets to zero and ignores:
 *
 *   63      56 55                                                     0
 *   |  kind   | check:12 | offset / 512 : 17 | size in bytes : 27       |  PART_SMALL
 *   |  kind   | check:16 | size in bytes : 40                           |  PART_FRONT (offset 0)
 *   |  kind   | offset / 512 : 28 | size / 512, rounded up : 28         |  PART_LARGE
 *
 * check: a checksum of the driver's 56 bytes. For a block that is its whole segment nothing is written.
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

/* Write into @handle, the handle of a segment of @segment_bytes, that [@offset, +@size) of the segment is
 * exported. Returns false when the fields cannot express this part. */
bool gm_part_write(CUipcMemHandle *handle, uint64_t offset, uint64_t size, uint64_t segment_bytes);

/* Read the part from @handle, and set the last bytes to zero again, as the driver has them. Returns false
 * when @handle names no part. */
bool gm_part_read(CUipcMemHandle *handle, uint64_t *ret_offset, uint64_t *ret_size);

struct gm_import {
	CUdeviceptr address;		/* the program's pointer */
	CUdeviceptr base;		/* the driver's pointer */
	uint64_t size;			/* bytes of the part; 0: the whole segment */
	uint64_t base_bytes;
	uint32_t opens;
};

/* Return the bytes of the driver's memory at @address, which has just been imported (hook_ipc.c); 0: not
 * known. */
uint64_t gm_import_bytes(CUdeviceptr address);

/* Was anything ever imported? */
bool gm_imports_any(void);

/* Note that the program has opened a part, for the first time or again; the driver gave @base_bytes at
 * @base. Returns 0; -errno, and the part is not known here. */
int gm_import_opened(CUdeviceptr base, uint64_t base_bytes, uint64_t offset, uint64_t size);

/* Note that the program is about to close @address. Returns 1, and @ret_import is what was opened there; 0
 * when no known import was; -EINVAL when @address is the base of a segment of which only other blocks are
 * open. */
int gm_import_closing(CUdeviceptr address, struct gm_import *ret_import);

/* Find the opened block that covers @address. Returns 1 and the block; 0 when none is known, so ask the
 * driver; -ENOENT when @address lies in a segment of which only other blocks are open. */
int gm_import_find(CUdeviceptr address, struct gm_import *ret_import);

/* Forget @address, because the context in which it was opened is gone. */
void gm_import_ended(CUdeviceptr address);

#endif
