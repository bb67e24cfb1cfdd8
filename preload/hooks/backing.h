/*
 * backing.h - memory that lives as long as it has references or mappings: VMM handles, external memory.
 *
 *   handle ──> backing (one block of the record) <── mapping ── mapping ── ...
 *                references 0..n                      (space GM_MAP_MAPPING, by address)
 *
 * The memory ends when the last reference and the last mapping are gone, in either order. The record shows
 * the address of the first mapping that covers the whole backing. Without such a mapping it shows the
 * handle, with GM_SEGMENT_UNMAPPED.
 *
 * The end of a reference or a mapping is noted before the driver is called, because another thread may get
 * the same handle or address as soon as the driver returns. After the call the note is confirmed or undone.
 *
 * Thread context: any. One lock, held across the recorder's locks (rank: before domain), never across a
 * driver call. If the lock is not free in time, the call is not recorded. Signal context: none.
 */
#ifndef GM_PRELOAD_BACKING_H
#define GM_PRELOAD_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/map.h"

/*
 * The map from the program's pointers and handles to their records. Created before the first hook body runs.
 *
 *   GM_MAP_ADDRESS, GM_MAP_ARRAY              block ids
 *   GM_MAP_HANDLE, GM_MAP_EXTERNAL, _MAPPING  slots of backing.c: a backing, or a mapping
 *   GM_MAP_POOL                               domain of a driver pool's memory, plus 1
 */
extern struct gm_map *gm_pointers;

/* What one driver call is about to end. Lives in the hook's stack frame. All zero: nothing on record
 * ends. */
struct gm_backing_step {
	uint32_t backing;		/* the backing that loses a reference */
	uint32_t mappings;		/* first of the mappings that end, which are linked */
	uint32_t block;			/* record of the backing, if nothing holds it after the call; else 0 */
};

/* Add a backing with one reference, under @handle in @space. @block is the record of its @size bytes.
 * Returns 0, -ENOMEM or -ETIMEDOUT; after an error @handle is not known here. */
int gm_backing_add(enum gm_map_space space, uint64_t handle, uint32_t block, uint64_t size);

/* Add a reference to @handle. Returns false when @handle is not known. */
bool gm_backing_retain(enum gm_map_space space, uint64_t handle);

/* Add a reference: the driver gave the program @handle for the memory that is mapped at @address. */
void gm_backing_retain_at(enum gm_map_space space, uint64_t handle, uint64_t address);

/* Add a mapping of the backing's bytes from @offset on, at [@address, +@size). A backing of unknown size
 * (an import) becomes as large as its mappings have shown. @op, @stack: as in gm_record_change. */
void gm_backing_map(enum gm_map_space space, uint64_t handle, uint64_t address, uint64_t offset,
		    uint64_t size, uint64_t op, uint32_t stack);

/* Begin an end, before the driver call, and fill in @step. gm_backing_release ends one reference;
 * gm_backing_unmap ends every mapping that begins in [@address, +@size), or with @size 0 the mapping at
 * @address. */
void gm_backing_release(enum gm_map_space space, uint64_t handle, struct gm_backing_step *step);
void gm_backing_unmap(uint64_t address, uint64_t size, struct gm_backing_step *step);

/* Finish @step, after the driver call. gm_backing_done confirms it: a backing without references and
 * mappings is recorded as freed at @tsc, with @stack. gm_backing_undo takes it back, because the driver
 * refused the call. */
void gm_backing_done(const struct gm_backing_step *step, uint64_t op, uint64_t tsc, uint64_t stream,
		     uint32_t stack);
void gm_backing_undo(const struct gm_backing_step *step);

/* End the backing of @handle with all its mappings at once (a graphics resource was unmapped). */
void gm_backing_end(enum gm_map_space space, uint64_t handle, uint64_t op, uint64_t tsc,
		    uint32_t stack);

/* Forget the backing of @block and its mappings, because the record is gone (its context ended). */
void gm_backing_block_ended(uint32_t block);

#endif
