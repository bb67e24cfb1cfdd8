/*
 * backing.h - memory that lives as long as it has references or mappings: VMM handles, external memory.
 *
 *   handle ──> backing (one block of the record) <── mapping ── mapping ── ...
 *                references 0..n                      (space GM_MAP_MAPPING, by address)
 *
 * The memory ends when the last reference and the last mapping are gone, in either order. The address in
 * the record is that of the first mapping that shows the whole backing; without one it is the handle, with
 * GM_SEGMENT_UNMAPPED.
 *
 * The end of a reference or a mapping is noted before the driver is called, because another thread may get
 * the handle or address the moment the driver returns. After the call the note is confirmed or undone.
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
 * The map from the program's pointers and handles to their records. Made before the first body runs.
 *
 *   GM_MAP_ADDRESS, GM_MAP_ARRAY              block ids
 *   GM_MAP_HANDLE, GM_MAP_EXTERNAL, _MAPPING  numbers of backing.c
 *   GM_MAP_POOL                               domain of the pool's memory, plus 1
 */
extern struct gm_map *gm_pointers;

/* What one call ends; lies in the hook's frame. All zero: nothing that is recorded. */
struct gm_backing_step {
	uint32_t backing;		/* the backing that loses a reference */
	uint32_t mappings;		/* the first mapping that ends; the others are linked */
	uint32_t block;			/* of the backing that has nothing left then; 0: none */
};

/* Add @handle (in @space) with one reference; @block is the record of its @size bytes. Returns 0; -ENOMEM or
 * -ETIMEDOUT, and @handle is not known here. */
int gm_backing_add(enum gm_map_space space, uint64_t handle, uint32_t block, uint64_t size);

/* Add a reference to @handle. Returns false when @handle is not known. */
bool gm_backing_retain(enum gm_map_space space, uint64_t handle);

/* Add a reference: the driver gave the program @handle for the memory that is mapped at @address. */
void gm_backing_retain_at(enum gm_map_space space, uint64_t handle, uint64_t address);

/* Add a mapping of @handle's bytes from @offset on at [@address, +@size). A backing of unknown size (an
 * import) gets the size that its mappings have shown. @op: the operation of the record. @stack: of the code
 * that maps, as in gm_record_change. */
void gm_backing_map(enum gm_map_space space, uint64_t handle, uint64_t address, uint64_t offset,
		    uint64_t size, uint64_t op, uint32_t stack);

/* Note that a reference is about to end; or every mapping that begins in [@address, +@size) (@size 0: the
 * mapping at @address). */
void gm_backing_release(enum gm_map_space space, uint64_t handle, struct gm_backing_step *step);
void gm_backing_unmap(uint64_t address, uint64_t size, struct gm_backing_step *step);

/* done: confirm @step. A backing without references and mappings is recorded as freed at @tsc, with @stack.
 * undo: take @step back, because the driver refused. */
void gm_backing_done(const struct gm_backing_step *step, uint64_t op, uint64_t tsc, uint64_t stream,
		     uint32_t stack);
void gm_backing_undo(const struct gm_backing_step *step);

/* End @handle and all its mappings at once (a graphics resource was unmapped). */
void gm_backing_end(enum gm_map_space space, uint64_t handle, uint64_t op, uint64_t tsc,
		    uint32_t stack);

/* Forget the backing of @block and its mappings, because the record is gone (its context ended). */
void gm_backing_block_ended(uint32_t block);

#endif
