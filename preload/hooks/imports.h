/*
 * imports.h - memory of other processes that is a block inside a segment of theirs.
 *
 * The driver's IPC handle names the whole segment; into its last eight bytes, which the driver sets
 * to zero and ignores, the exporter puts the part that is exported:
 *
 *   63      56 55                                                     0
 *   |  kind   | check:12 | offset / 512 : 17 | size in bytes : 27       |  PART_SMALL
 *   |  kind   | check:16 | size in bytes : 40                           |  PART_FRONT (offset 0)
 *   |  kind   | offset / 512 : 28 | size / 512, rounded up : 28         |  PART_LARGE
 *
 * check: a checksum of the driver's 56 bytes. A block that is its whole segment needs nothing.
 *
 *   driver's import (base) <── block, opened n times ── block ── ...
 *
 * Each open and close of a block is one of the driver's import, which the driver counts itself.
 *
 * Thread context: any, inside a hook; one leaf lock, no driver call under it. Signal context: none.
 */
#ifndef GM_PRELOAD_IMPORTS_H
#define GM_PRELOAD_IMPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks/hook.h"

/* Write into @handle, of a segment of @segment_bytes, that [@offset, +@size) of it is exported.
 * False: this part cannot be expressed. */
bool gm_part_write(CUipcMemHandle *handle, uint64_t offset, uint64_t size, uint64_t segment_bytes);

/* Read that part from @handle and set its last bytes to zero again, as the driver makes them.
 * False: it names none. */
bool gm_part_read(CUipcMemHandle *handle, uint64_t *ret_offset, uint64_t *ret_size);

struct gm_import {
	CUdeviceptr address;		/* what the program holds */
	CUdeviceptr base;		/* what the driver gave */
	uint64_t size;			/* bytes of the part; 0: all that the driver gave */
	uint64_t base_bytes;
	uint32_t opens;
};

/* Bytes of the driver's memory at @address, which was imported just now (hook_ipc.c); 0: not known. */
uint64_t gm_import_bytes(CUdeviceptr address);

/* Was anything ever imported? */
bool gm_imports_any(void);

/* The program opened a part once (more); the driver gave @base_bytes at @base. 0; -errno: it is not
 * known here. */
int gm_import_opened(CUdeviceptr base, uint64_t base_bytes, uint64_t offset, uint64_t size);

/* The program is about to close @address. 1: @ret_import is what was opened there; 0: nothing known
 * was; -EINVAL: the driver put a segment there of which other blocks are open, but none at
 * @address. */
int gm_import_closing(CUdeviceptr address, struct gm_import *ret_import);

/* Find the opened block that covers @address. 1: @ret_import is it; 0: none is known, ask the
 * driver; -ENOENT: @address lies in a segment of which only other blocks are open. */
int gm_import_find(CUdeviceptr address, struct gm_import *ret_import);

/* The context that @address was opened in is gone. */
void gm_import_ended(CUdeviceptr address);

#endif
