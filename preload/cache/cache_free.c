/*
 * cache_free.c - free a block of the caching allocator by cudaFree or cudaFreeAsync (see cache.h).
 *
 * The call first waits where the driver's own call would wait and the program may rely on it. Then the block is free
 * at once, or when the GPU has passed the free (preload/order/reuse.h).
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>

#include "allocator/page_map.h"
#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"
#include "preload/order/order.h"
#include "recorder/modules/modules.h"
#include "recorder/stacks/stacks.h"

#define BACK_NS UINT64_C(1000000)	/* limit of a wait; freeing idle memory takes a few microseconds */

#define unlikely(x) __builtin_expect(!!(x), 0)

struct freeing {
	uint64_t key;			/* of the stream of the free; 0: none */
	CUstream on;			/* that stream */
	uint64_t stream;		/* of the block's segment */
	const struct gm_cache_heap *heap;
	uint8_t kind;			/* of the heap */
	bool waited;			/* the host has waited, so nothing can use the block any more */
	bool goes_back;			/* a caching allocator above us frees it, so the driver shall get it */
	uint64_t early;			/* the stream that may not have passed the free */
	bool has_stack;			/* @stack is known */
	uint32_t stack;
};

/* Take the stack of the free, once. Returns the module that frees. */
static uint16_t stack_of(struct freeing *freeing)
{
	uint16_t module = 0;

	freeing->stack = unlikely(gm_stacks_wanted()) ? gm_stack_of_free(&module) : GM_NONE;
	freeing->has_stack = true;
	return module;
}

static bool frees_freely(struct freeing *freeing, const void *caller)
{
	uint16_t module = gm_stacks_wanted() ? stack_of(freeing) : 0;

	return gm_writers_frees_freely(module ? module : gm_modules_caller(caller, NULL));
}

/* Free the block in the order of a stream that is not its own. */
static __attribute__((noinline)) bool freed_elsewhere(struct freeing *freeing, const struct gm_reuse_item *item)
{
	if (gm_order_frees_reported)
		gm_order_stream_freed(freeing->key, freeing->on, true);
	return gm_reuse_freed(gm_order_reuse(), item, freeing->key, gm_stream_context(freeing->on, false),
			      &freeing->early);
}

/* Decide when the block may be reused. Called under no lock: the block's state makes this thread its owner. */
static enum gm_cache_when reusable(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	struct freeing *freeing = arg;
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };
	bool ordered = freeing->key != 0, now;

	if (freeing->waited)
		return GM_FREE_SEEN;
	/* Stream-ordered memory is free at once if it is freed in the order of its own stream, or by cudaFree if it
	 * is a default pool's, because that call promises that nothing uses the block. For a pool both hold while
	 * other streams capture, too. Memory of PyTorch's interface is kept during captures instead, because graphs
	 * use it. */
	if (freeing->stream &&
	    (ordered ? freeing->key == freeing->stream || !gm_rule(GM_RULE_STREAM_ORDER)
		     : freeing->kind == GM_KIND_POOL)) {
		now = freeing->kind == GM_KIND_POOL || !gm_capturing();
		if (ordered && now && unlikely(gm_order_frees_reported))
			gm_order_stream_freed(freeing->key, freeing->on, freeing->kind == GM_KIND_POOL &&
					      gm_cache_heap_in_pages(freeing->heap));
		if (now && !ordered)
			return GM_FREE_SEEN;
		if (now)
			return GM_FREE_NOW;
	}
	now = unlikely(ordered) ? freed_elsewhere(freeing, &item)
				: gm_reuse_freed(gm_order_reuse(), &item, 0, 0, &freeing->early);
	/* Note this before any thread can get the block. */
	if (now && freeing->early)
		gm_order_early_reuse(freeing->early);
	return now;
}

#define NO_STREAM UINT64_MAX		/* a key of no stream */

/* Decide when a block may be reused whose free was queued. Every context's work that was submitted up to now may use
 * the block. Free it as if in the order of a stream, so that the thread that does another thread's free never has to
 * wait for that work (preload/order/reuse.h). */
enum gm_cache_when gm_cache_ask(uint32_t block, uint32_t number, uint64_t bytes)
{
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };
	uint64_t early;
	bool now = gm_reuse_freed(gm_order_reuse(), &item, NO_STREAM, 0, &early);

	if (now && early)
		gm_order_early_reuse(early);
	return now ? GM_FREE_NOW : GM_FREE_LATER;
}

/* Shall this free wait as the driver's does? Yes where the program may use cudaFree to wait for the GPU before the
 * host looks at results. Also during a capture, because then no event can tell later when the memory is free, and a
 * flush would not give it back. Also where memory is scarce. */
static inline bool is_a_barrier(const struct gm_cache_heap *heap, struct freeing *freeing,
				const void *caller)
{
	if (!gm_host_sees_pending() && !gm_capturing() &&
	    !(gm_cache_unusual & (GM_CACHE_WAITS | GM_CACHE_SCARCE)))
		return false;
	switch (gm_state.options.free) {
	case GM_FREE_SYNC:
		return true;
	case GM_FREE_DEFERRED:
		return false;
	default:
		return gm_capturing() ||
		       (gm_host_sees_pending() && gm_rule(GM_RULE_HOST_BARRIER) &&
			!frees_freely(freeing, caller)) ||
		       (gm_order_hot.many && gm_rule(GM_RULE_SCARCE) &&
			gm_cache_scarce(heap->domain));
	}
}

/* Shall the free wait before the memory goes back to the driver, as the driver's own cudaFree waits? */
static inline bool waits_to_go_back(const struct freeing *freeing)
{
	return unlikely(freeing->goes_back) && gm_state.options.free != GM_FREE_DEFERRED;
}

static bool refuse(CUresult result, CUresult *ret_result)
{
	/* The journal was lost meanwhile, so the record that made us refuse means nothing. */
	if (result == CUDA_ERROR_INVALID_VALUE && gm_recorder_is_lost())
		result = CUDA_SUCCESS;
	*ret_result = gm_leave(result);
	return true;
}

/* Give idle memory of @heap back to the driver; later, if another thread holds the growth lock. */
static __attribute__((noinline)) void give_back(struct gm_cache_heap *heap)
{
	if (!gm_cache_growth_try(heap->domain))
		return;
	gm_cache_heap_release(heap);
	gm_cache_back_wait(heap, BACK_NS);
	gm_cache_growth_unlock(heap->domain);
}

/* Free the block as @freeing says, and record that. */
static inline bool free_block(CUdeviceptr dptr, struct gm_cache_heap *heap, uint32_t block,
			      struct freeing *freeing, CUresult *ret_result)
{
	struct gm_cache_free how = {
		.stream = freeing->key, .when = reusable, .arg = freeing,
	};
	int r;

	if (!freeing->has_stack)
		stack_of(freeing);
	how.stack = freeing->stack;
	/* No flight is recorded, because readers see the free wholly or not at all. */
	r = gm_cache_heap_free(heap, 0, block, dptr, &how);
	if (unlikely(freeing->goes_back) && !r)
		give_back(heap);
	/* A double free or an interior pointer gets the driver's error. */
	return refuse(r == -ENOENT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, ret_result);
}

/* Return the heap of a pointer into a segment of ours; NULL: the pointer is not the cache's. */
static inline struct gm_cache_heap *heap_of_pointer(CUdeviceptr dptr, uint32_t *ret_block,
						    struct gm_cache_view *ret_view)
{
	*ret_block = gm_cache_on() && dptr ? gm_page_map_find(gm_cache_page_map, dptr) : 0;
	return *ret_block ? gm_cache_heap_peek(*ret_block, ret_view) : NULL;
}

/* Free @dptr, which is in no known block of ours. If the journal is lost, no block is known, but the page map still
 * has our segments. A free of a pointer into one of them succeeds without effect, because the driver would free the
 * whole segment with everything else in it. */
static __attribute__((noinline)) bool free_lost(CUdeviceptr dptr, CUresult *ret_result)
{
	if (!gm_recorder_is_lost() || !gm_state_is_mine() || !dptr || !gm_cache_page_map ||
	    !gm_page_map_find(gm_cache_page_map, dptr))
		return false;
	return refuse(CUDA_SUCCESS, ret_result);
}

/* Begin a free of @dptr, which lies in @view's block. Returns false if the call has ended, refused as the driver
 * would refuse it. @in_capture: a capture is no reason to refuse. */
static inline __attribute__((always_inline)) bool
begin_free(struct freeing *freeing, const struct gm_cache_heap *heap, const struct gm_cache_view *view,
	   CUdeviceptr dptr, bool in_capture, CUresult *ret_result)
{
	CUresult refused;

	if (unlikely(gm_cache_unusual & GM_CACHE_HOST_FUNCTIONS) &&
	    gm_rule(GM_RULE_HOST_FUNCTION) && gm_in_host_function())
		refused = CUDA_ERROR_NOT_PERMITTED;
	else if (unlikely(heap->faulted))
		refused = (CUresult)heap->faulted;
	else
		refused = unlikely(gm_capturing()) && !in_capture ? gm_cache_permission(heap) : CUDA_SUCCESS;
	if (!refused && (view->address != dptr || view->state != GM_BLOCK_ACTIVE))
		refused = CUDA_ERROR_INVALID_VALUE;
	if (refused)
		return !refuse(refused, ret_result);
	gm_unseen_check();
	freeing->kind = heap->kind;
	freeing->heap = heap;
	freeing->stream = view->stream;
	return true;
}

bool gm_cache_free(CUdeviceptr dptr, const void *caller, CUresult *ret_result)
{
	struct freeing freeing = { 0 };
	struct gm_cache_heap *heap;
	struct gm_cache_view view;
	CUresult result;
	uint32_t block;

	heap = heap_of_pointer(dptr, &block, &view);
	if (!heap)
		return free_lost(dptr, ret_result);
	if (!begin_free(&freeing, heap, &view, dptr, false, ret_result))
		return true;
	gm_record_going(dptr, 0);
	freeing.goes_back = view.requested >= GM_CACHES_FROM && heap->kind == GM_KIND_DEVICE &&
			    gm_writers_caches(view.module);
	if (heap->kind == GM_KIND_DEVICE && (waits_to_go_back(&freeing) || is_a_barrier(heap, &freeing, caller))) {
		result = gm_order_wait_context(heap->context, &freeing.waited);
		if (result) {
			gm_cache_fault(result);
			return refuse(result, ret_result);
		}
	}
	return free_block(dptr, heap, block, &freeing, ret_result);
}

/* @in_capture: free even where the driver would refuse the call during a capture, or make a graph node of it. */
static bool free_in_order(CUdeviceptr dptr, CUstream stream, bool per_thread, bool in_capture, CUresult *ret_result)
{
	struct freeing freeing = { 0 };
	struct gm_cache_heap *heap;
	struct gm_cache_view view;
	uint32_t block;

	heap = heap_of_pointer(dptr, &block, &view);
	if (!heap)
		return free_lost(dptr, ret_result);
	if (!in_capture && gm_stream_captures(stream, per_thread))
		return false;
	if (!begin_free(&freeing, heap, &view, dptr, in_capture, ret_result))
		return true;
	gm_record_going(dptr, 0);
	freeing.key = gm_stream_key(stream, per_thread);
	freeing.on = per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
	return free_block(dptr, heap, block, &freeing, ret_result);
}

bool gm_cache_free_async(CUdeviceptr dptr, CUstream stream, bool per_thread, CUresult *ret_result)
{
	return free_in_order(dptr, stream, per_thread, false, ret_result);
}

bool gm_cache_free_ordered(CUdeviceptr dptr, CUstream stream, CUresult *ret_result)
{
	return free_in_order(dptr, stream, false, true, ret_result);
}
