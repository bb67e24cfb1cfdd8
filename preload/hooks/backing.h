/*
 * backing.h - memory that lives by references and by mappings: VMM handles, external memory.
 *
 *   handle ──> backing (one block of the record) <── mapping ── mapping ── ...
 *                references 0..n                      (space GM_MAP_MAPPING, by address)
 *
 * The bytes die when the last reference and the last mapping are gone, in either order. The
 * record's address is that of the first mapping that shows all of it, else the handle, with
 * GM_SEGMENT_UNMAPPED.
 *
 * A call that ends a reference or a mapping is noted before the driver is called, because another
 * thread may get the handle or address the moment the driver returns; after it, the note is
 * confirmed or undone.
 *
 * Thread context: any. One lock, held across the recorder's (rank: before domain), never across a
 * driver call; a call for which the lock cannot be had is not recorded. Signal context: none.
 */
#ifndef GM_PRELOAD_BACKING_H
#define GM_PRELOAD_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/map.h"

/*
 * The one map from what a program holds to what is recorded of it. Made before the first body runs.
 *
 *   GM_MAP_ADDRESS, GM_MAP_ARRAY              block ids
 *   GM_MAP_HANDLE, GM_MAP_EXTERNAL, _MAPPING  numbers of backing.c
 *   GM_MAP_POOL                               domain of the pool's memory, plus 1
 */
extern struct gm_map *gm_pointers;

/* What one call ends; in the hook's frame. All zero: nothing that is recorded. */
struct gm_backing_step {
	uint32_t backing;		/* one reference of it */
	uint32_t mappings;		/* the first of the mappings, linked */
	uint32_t block;			/* of a backing that has nothing else left; 0: none has */
};

/* @handle (in @space) is new and has one reference; @block records its @size bytes.
 * Returns 0; -ENOMEM, -ETIMEDOUT: it is not known here. */
int gm_backing_add(enum gm_map_space space, uint64_t handle, uint32_t block, uint64_t size);

/* One more reference. Returns false when @handle is not known. */
bool gm_backing_retain(enum gm_map_space space, uint64_t handle);

/* The driver gave @handle for the memory mapped at @address: one more reference. */
void gm_backing_retain_at(enum gm_map_space space, uint64_t handle, uint64_t address);

/* @handle's bytes from @offset on are mapped at [@address, +@size). A backing whose size was not
 * known (an import) is as large as its mappings have been. @op: the operation to record it under;
 * @stack: of the code that maps it, as in gm_record_change. */
void gm_backing_map(enum gm_map_space space, uint64_t handle, uint64_t address, uint64_t offset,
		    uint64_t size, uint64_t op, uint32_t stack);

/* A reference, or every mapping that begins in [@address, +@size) (@size 0: the one at @address),
 * is about to end. */
void gm_backing_release(enum gm_map_space space, uint64_t handle, struct gm_backing_step *step);
void gm_backing_unmap(uint64_t address, uint64_t size, struct gm_backing_step *step);

/* done: it has ended; a backing without references and mappings is recorded as freed at @tsc, by
 * @stack. undo: the driver refused. */
void gm_backing_done(const struct gm_backing_step *step, uint64_t op, uint64_t tsc, uint64_t stream,
		     uint32_t stack);
void gm_backing_undo(const struct gm_backing_step *step);

/* @handle and all that it maps ended in one (a graphics resource was unmapped). */
void gm_backing_end(enum gm_map_space space, uint64_t handle, uint64_t op, uint64_t tsc,
		    uint32_t stack);

/* The record of @block is gone (its context ended): forget the backing and its mappings. */
void gm_backing_block_ended(uint32_t block);

#endif
