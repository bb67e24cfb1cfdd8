/*
 * cache_inside.c - calls about memory of the cache's that come from inside another hook of the same
 * thread: from a signal handler, or from what the driver calls back (see cache_inside.h).
 *
 * That hook may hold any lock, so nothing is taken here and nothing waited for: blocks are looked
 * at without a lock, and what a free would change stays as it is.
 *
 * Thread context: any. Signal context: the same. Fork: nothing in a child, which has no cache.
 */
#include "allocator/page_map.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_inside.h"
#include "preload/cache/cache_heap.h"
#include "recorder/journal/recorder.h"

/* False: @address lies in no segment of ours. */
static bool look(CUdeviceptr address, struct gm_cache_view *ret_view)
{
	uint32_t block;

	if (!gm_state_is_mine() || !gm_cache_on())
		return false;
	block = gm_page_map_find(gm_cache_page_map(), address);
	return block && gm_cache_heap_peek(block, ret_view);
}

bool gm_inside_covers(CUdeviceptr address)
{
	struct gm_cache_view view;

	return look(address, &view);
}

CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result)
{
	struct gm_cache_view view;

	if (result != CUDA_ERROR_INVALID_VALUE || !look(dptr, &view) || view.address != dptr ||
	    view.state != GM_BLOCK_ACTIVE)
		return result;
	gm_recorder_header()->operations_lost++;
	return CUDA_SUCCESS;
}

bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes)
{
	struct gm_cache_view view;

	if (!look(address, &view) || view.state != GM_BLOCK_ACTIVE || address < view.address ||
	    address - view.address >= view.requested)
		return false;
	*ret_base = view.address;
	*ret_bytes = view.requested;
	return true;
}
