/*
 * cached_segment.c - the segment that a cached block lies in, for those who describe pointers.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: none. Lock: the domain's.
 */
#include "preload/cache/cached_internal.h"
#include "recorder/record/tables.h"

bool gm_cached_segment(uint32_t block, struct gm_segment *ret_copy)
{
	struct gm_block copy;
	struct gm_change change;
	bool found = false;

	if (!gm_cached_of(block, &copy) || gm_change_enter(&change, copy.domain, 0))
		return false;
	if (gm_rec.blocks[block].state != GM_BLOCK_UNUSED && gm_rec.blocks[block].segment) {
		*ret_copy = gm_rec.segments[gm_rec.blocks[block].segment];
		found = ret_copy->used;
	}
	gm_change_leave(&change);
	return found;
}
