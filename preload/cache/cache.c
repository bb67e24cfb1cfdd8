/*
 * cache.c - the caching allocator's start, and which addresses are its own (see cache.h).
 *
 * cache_alloc.c and cache_free.c serve calls.
 *
 * Thread context: any, inside a hook; functions for calls from inside another hook: any. Signal context: as
 * cache.h says.
 */
#include "allocator/page_map.h"
#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"
#include "preload/order/order.h"

static uint32_t context_of(uint32_t owner)
{
	const struct gm_cache_heap *heap = gm_cache_heap_by_number(owner);

	return heap ? heap->context : 0;
}

static void context_ended(uint32_t context, CUcontext handle, const struct gm_ending *ending)
{
	(void)handle;
	gm_cache_context_ended(context, ending->tsc, ending->stack);
}

static void host_function_added(void)
{
	gm_cache_unusual |= GM_CACHE_HOST_FUNCTIONS;
}

int gm_cache_start(void)
{
	static const struct gm_order_blocks blocks = { .context_of = context_of,
						       .complete = gm_cache_heap_complete };
	static const struct gm_context_watcher contexts = { .ending = gm_cache_context_ending,
							    .ended = context_ended };
	static const struct gm_record_watcher calls = { .driver_allocated = gm_cache_address_reused,
							.describe = gm_cache_describe };
	int r = gm_order_start(&blocks);

	if (!r)
		r = gm_cache_heaps_start();
	if (r)
		return r;
	gm_cache_heap_ask(gm_cache_ask);
	gm_host_start();
	gm_context_watch(&contexts);
	gm_record_watch(&calls);
	gm_retry_by(gm_cache_retry);
	gm_host_function_watch(host_function_added);
	if (gm_state.options.fill != GM_FILL_NONE) {	/* every block is filled before it is handed out */
		gm_reuse_end_single(gm_order_reuse());
		gm_cache_unusual |= GM_CACHE_FILLS;
	}
	/* Without events of whole contexts nothing tells later when all streams of a context are past a free. */
	if (!gm_order_has_context_events())
		gm_state.options.free = GM_FREE_SYNC;
	if (gm_state.options.free == GM_FREE_SYNC)
		gm_cache_unusual |= GM_CACHE_WAITS;
	gm_cache_unusual &= ~(uint32_t)GM_CACHE_OFF;
	return 0;
}

void gm_cache_lost(void)
{
	gm_cache_unusual |= GM_CACHE_OFF;
	gm_context_doubt();
}

/* ---- blocks of ours ---- */

uint32_t gm_cache_block(CUdeviceptr address, struct gm_block *ret_copy)
{
	uint32_t block = gm_cache_on() ? gm_page_map_find(gm_cache_page_map, address) : 0;

	if (!block || !gm_cache_heap_of(block, ret_copy) || address < ret_copy->address ||
	    address - ret_copy->address >= ret_copy->size)
		return 0;
	return ret_copy->state == GM_BLOCK_ACTIVE ? block : 0;
}

/* ---- for calls from inside another hook of the same thread ---- */

static bool peek(CUdeviceptr address, struct gm_cache_view *ret_view, uint32_t *ret_block)
{
	if (!gm_state_is_mine() || !gm_cache_on())
		return false;
	*ret_block = gm_page_map_find(gm_cache_page_map, address);
	return *ret_block && gm_cache_heap_peek(*ret_block, ret_view);
}

bool gm_cache_covers(CUdeviceptr address)
{
	struct gm_cache_view view;
	uint32_t block;

	return peek(address, &view, &block);
}

uint32_t gm_cache_context_of(CUdeviceptr address)
{
	const struct gm_cache_heap *heap;
	struct gm_cache_view view;
	uint32_t block = gm_cache_on() ? gm_page_map_find(gm_cache_page_map, address) : 0;

	heap = block ? gm_cache_heap_peek(block, &view) : NULL;
	return heap ? heap->context : 0;
}

CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result)
{
	struct gm_cache_view view;
	uint32_t block;

	if (result != CUDA_ERROR_INVALID_VALUE || !peek(dptr, &view, &block))
		return result;
	return gm_cache_heap_free_inside(block, dptr) ? CUDA_SUCCESS : result;
}

bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes)
{
	struct gm_cache_view view;
	uint32_t block;

	if (!peek(address, &view, &block) || view.state != GM_BLOCK_ACTIVE || address < view.address ||
	    address - view.address >= view.requested)
		return false;
	*ret_base = view.address;
	*ret_bytes = view.requested;
	return true;
}
