/*
 * imports.c - parts of other processes' segments: see imports.h.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: a leaf.
 */
#include <errno.h>
#include <string.h>

#include "allocator/lock.h"
#include "preload/hooks/imports.h"
#include "preload/process/slots.h"

/* ---- the handle ---- */

enum part_kind { PART_SMALL = 0xb1, PART_FRONT = 0xb2, PART_LARGE = 0xb3 };

#define UNIT UINT64_C(512)
#define DRIVER_BYTES 56u

static uint64_t bits(unsigned int count)
{
	return (UINT64_C(1) << count) - 1;
}

/* FNV-1a of the driver's bytes, its upper bits folded into the lower ones. */
static uint64_t check_of(const CUipcMemHandle *handle)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (unsigned int i = 0; i < DRIVER_BYTES; i++)
		hash = (hash ^ (unsigned char)handle->reserved[i]) * UINT64_C(0x100000001b3);
	return hash ^ hash >> 32 ^ hash >> 48;
}

bool gm_part_write(CUipcMemHandle *handle, uint64_t offset, uint64_t size, uint64_t segment_bytes)
{
	uint64_t units = offset / UNIT, word;

	if (!offset && size == segment_bytes)
		return true;
	if (offset % UNIT)
		return false;
	if (units <= bits(17) && size <= bits(27))
		word = (uint64_t)PART_SMALL << 56 | (check_of(handle) & bits(12)) << 44 |
		       units << 27 | size;
	else if (!offset && size <= bits(40))
		word = (uint64_t)PART_FRONT << 56 | (check_of(handle) & bits(16)) << 40 | size;
	else if (units <= bits(28) && (size + UNIT - 1) / UNIT <= bits(28))
		word = (uint64_t)PART_LARGE << 56 | units << 28 | (size + UNIT - 1) / UNIT;
	else
		return false;
	memcpy(handle->reserved + DRIVER_BYTES, &word, sizeof(word));
	return true;
}

static bool read_word(const CUipcMemHandle *handle, uint64_t word, uint64_t *ret_offset,
		      uint64_t *ret_size)
{
	switch (word >> 56) {
	case PART_SMALL:
		*ret_offset = (word >> 27 & bits(17)) * UNIT;
		*ret_size = word & bits(27);
		return (word >> 44 & bits(12)) == (check_of(handle) & bits(12));
	case PART_FRONT:
		*ret_offset = 0;
		*ret_size = word & bits(40);
		return (word >> 40 & bits(16)) == (check_of(handle) & bits(16));
	case PART_LARGE:
		*ret_offset = (word >> 28 & bits(28)) * UNIT;
		*ret_size = (word & bits(28)) * UNIT;
		return true;
	default:
		return false;
	}
}

bool gm_part_read(CUipcMemHandle *handle, uint64_t *ret_offset, uint64_t *ret_size)
{
	uint64_t word;

	memcpy(&word, handle->reserved + DRIVER_BYTES, sizeof(word));
	if (!read_word(handle, word, ret_offset, ret_size) || !*ret_size)
		return false;
	memset(handle->reserved + DRIVER_BYTES, 0, sizeof(word));
	return true;
}

/* ---- what is open ---- */

struct import {
	uint32_t unused;		/* gm_slots' link */
	uint32_t used;
	struct gm_import is;
};

static struct gm_lock lock = { .rank = GM_RANK_LEAF };
static struct gm_slots imports = { .item_bytes = sizeof(struct import) };	/* lock: lock */
static _Atomic(bool) any;

static struct import *import_at(uint32_t slot)
{
	return gm_slots_at(&imports, slot);
}

static struct import *at_locked(CUdeviceptr address)
{
	for (uint32_t slot = 1; slot < imports.used; slot++)
		if (import_at(slot)->used && import_at(slot)->is.address == address)
			return import_at(slot);
	return NULL;
}

static bool is_base_locked(CUdeviceptr address)
{
	for (uint32_t slot = 1; slot < imports.used; slot++)
		if (import_at(slot)->used && import_at(slot)->is.base == address)
			return true;
	return false;
}

static void drop_locked(struct import *import)
{
	uint32_t slot = (uint32_t)(((uint8_t *)import - imports.base) / imports.item_bytes);

	import->used = 0;
	gm_slots_drop(&imports, slot);
}

bool gm_imports_any(void)
{
	return any;
}

int gm_import_opened(CUdeviceptr base, uint64_t base_bytes, uint64_t offset, uint64_t size)
{
	struct import *import;
	int r = 0;

	if (!gm_lock(&lock))
		return -ETIMEDOUT;
	import = at_locked(base + offset);
	if (!import) {
		uint32_t slot = gm_slots_new(&imports);

		import = slot ? import_at(slot) : NULL;
		if (import)
			*import = (struct import){ .used = 1, .is = { base + offset, base, size,
								      base_bytes, 0 } };
	}
	if (import) {
		import->is.opens++;
		/* A block at the beginning of its segment has the address of the whole segment: keep the larger
		 * size. */
		if (!size || (import->is.size && size > import->is.size))
			import->is.size = size;
		any = true;
	} else {
		r = -ENOMEM;
	}
	gm_unlock(&lock);
	return r;
}

int gm_import_closing(CUdeviceptr address, struct gm_import *ret_import)
{
	struct import *import;
	int r = 0;

	if (!any || !gm_lock(&lock))
		return 0;
	import = at_locked(address);
	if (import) {
		*ret_import = import->is;
		if (!--import->is.opens)
			drop_locked(import);
		r = 1;
	} else if (is_base_locked(address)) {
		r = -EINVAL;
	}
	gm_unlock(&lock);
	return r;
}

int gm_import_find(CUdeviceptr address, struct gm_import *ret_import)
{
	int r = 0;

	if (!any || !gm_lock(&lock))
		return 0;
	for (uint32_t slot = 1; slot < imports.used && r <= 0; slot++) {
		const struct import *import = import_at(slot);
		bool inside = import->used && address >= import->is.base &&
			      address - import->is.base < import->is.base_bytes;

		if (!inside)
			continue;
		if (!import->is.size) {		/* the whole segment is open */
			r = 0;
			break;
		}
		r = -ENOENT;
		if (address < import->is.address ||
		    address - import->is.address >= import->is.size)
			continue;
		*ret_import = import->is;
		r = 1;
	}
	gm_unlock(&lock);
	return r;
}

void gm_import_ended(CUdeviceptr address)
{
	struct import *import;

	if (!any || !gm_lock(&lock))
		return;
	import = at_locked(address);
	if (import)
		drop_locked(import);
	gm_unlock(&lock);
}
