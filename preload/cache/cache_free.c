/*
 * cache_free.c - what a call of cudaFree or cudaFreeAsync does to a block of the caching allocator (see cache.h).
 *
 * The call waits first where the driver's own would and the program may rely on it. Then the block
 * is free at once, or when the GPU is past the free (preload/order/reuse.h).
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

#define BACK_NS UINT64_C(1000000)	/* the free of idle memory takes a few microseconds */

#define unlikely(x) __builtin_expect(!!(x), 0)

struct freeing {
	uint64_t key;			/* of the stream it is freed on; 0 none */
	CUstream on;			/* that stream */
	uint64_t stream;		/* of the block's segment */
	const struct gm_cache_heap *heap;
	uint8_t kind;			/* of the heap */
	bool waited;			/* nothing can use it any more: the host has waited */
	bool goes_back;			/* a cache above us frees it, so that the driver has it */
	uint64_t early;			/* the stream that may not have come past it */
	bool has_stack;			/* @stack is known */
	uint32_t stack;
};

/* The stack of the free, taken once. Returns who frees. */
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

/* In the order of another stream than the block's own. */
static __attribute__((noinline)) bool freed_elsewhere(struct freeing *freeing, const struct gm_reuse_item *item)
{
	if (gm_order_frees_told)
		gm_order_stream_freed(freeing->key, freeing->on, true);
	return gm_reuse_freed(gm_order_reuse(), item, freeing->key, gm_stream_context(freeing->on, false),
			      &freeing->early);
}

/* Under no lock: the block is its freer's by its state. */
static enum gm_cache_when reusable(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	struct freeing *freeing = arg;
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };
	bool ordered = freeing->key != 0, now;

	if (freeing->waited)
		return GM_FREE_SEEN;
	/* Stream-ordered memory: in the order of its own stream at once; cudaFree of a pool's promises
	 * that nothing uses it. So while others capture (PyTorch's keeps what graphs use instead). */
	if (freeing->stream &&
	    (ordered ? freeing->key == freeing->stream || !gm_rule(GM_RULE_STREAM_ORDER)
		     : freeing->kind == GM_KIND_POOL)) {
		now = freeing->kind == GM_KIND_POOL || !gm_capturing();
		if (ordered && now && unlikely(gm_order_frees_told))
			gm_order_stream_freed(freeing->key, freeing->on, freeing->kind == GM_KIND_POOL &&
					      gm_cache_heap_in_pages(freeing->heap));
		if (now && !ordered)
			return GM_FREE_SEEN;
		if (now)
			return GM_FREE_NOW;
	}
	now = unlikely(ordered) ? freed_elsewhere(freeing, &item)
				: gm_reuse_freed(gm_order_reuse(), &item, 0, 0, &freeing->early);
	/* Before anybody can be handed it. */
	if (now && freeing->early)
		gm_order_early_reuse(freeing->early);
	return now;
}

#define NO_STREAM UINT64_MAX		/* the key of none */

/* The work of every context that was submitted up to now may use the block. Freed as if in the order of a stream, so
 * that the thread which comes to do the free of another one never waits for that work (preload/order/reuse.h). */
enum gm_cache_when gm_cache_ask(uint32_t block, uint32_t number, uint64_t bytes)
{
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };
	uint64_t early;
	bool now = gm_reuse_freed(gm_order_reuse(), &item, NO_STREAM, 0, &early);

	if (now && early)
		gm_order_early_reuse(early);
	return now ? GM_FREE_NOW : GM_FREE_LATER;
}

/* Programs also use cudaFree to wait for the GPU before the host looks at something. And beside a
 * capture there is no event to tell later when the memory is free, nor would a flush give it back:
 * then it waits as the driver's does. So it does where memory is scarce. */
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

/* The driver has it when it has waited, as its own does. */
static inline bool waits_to_go_back(const struct freeing *freeing)
{
	return unlikely(freeing->goes_back) && gm_state.options.free != GM_FREE_DEFERRED;
}

static bool refuse(CUresult result, CUresult *ret_result)
{
	/* Lost while we were at it: the record that says so is nobody's. */
	if (result == CUDA_ERROR_INVALID_VALUE && gm_recorder_is_lost())
		result = CUDA_SUCCESS;
	*ret_result = gm_leave(result);
	return true;
}

/* What is idle in @heap goes back to the driver; or later, where another thread grows. */
static __attribute__((noinline)) void give_back(struct gm_cache_heap *heap)
{
	if (!gm_cache_growth_try(heap->domain))
		return;
	gm_cache_heap_release(heap);
	gm_cache_back_wait(heap, BACK_NS);
	gm_cache_growth_unlock(heap->domain);
}

/* @freeing is decided; record and do it. */
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
	/* No flight: a reader sees it done or not done. */
	r = gm_cache_heap_free(heap, 0, block, dptr, &how);
	if (unlikely(freeing->goes_back) && !r)
		give_back(heap);
	/* Freed before, or the middle of something: as the driver says it. */
	return refuse(r == -ENOENT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, ret_result);
}

/* The heap of a pointer that lies in a segment of ours; NULL: it is not our business. */
static inline struct gm_cache_heap *heap_of_pointer(CUdeviceptr dptr, uint32_t *ret_block,
						    struct gm_cache_view *ret_view)
{
	*ret_block = gm_cache_on() && dptr ? gm_page_map_find(gm_cache_page_map, dptr) : 0;
	return *ret_block ? gm_cache_heap_peek(*ret_block, ret_view) : NULL;
}

/* A free of @dptr, which is in no block of ours that is known of. Once the journal is lost no block is:
 * nobody can tell what else lies in its segment, which the driver would free as a whole. */
static __attribute__((noinline)) bool free_lost(CUdeviceptr dptr, CUresult *ret_result)
{
	if (!gm_recorder_is_lost() || !gm_state_is_mine() || !dptr || !gm_cache_page_map ||
	    !gm_page_map_find(gm_cache_page_map, dptr))
		return false;
	return refuse(CUDA_SUCCESS, ret_result);
}

/* A free of @dptr, which lies in @view's block, begins. False: it has ended, refused as the driver would: with
 * @in_capture a capture is no reason. */
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

/* @in_capture: also where the driver would refuse it beside a capture, or make a node of it. */
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
