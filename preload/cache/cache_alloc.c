/*
 * cache_alloc.c - serve a call of cudaMalloc or cudaMallocAsync from the caching allocator (see cache.h).
 *
 * A request is served from a free block, or by one of the steps in the table below. If something goes wrong on our
 * side, the call is left to the driver.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>

#include "allocator/rules.h"
#include "preload/cache/cache_internal.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"
#include "preload/order/order.h"
#include "recorder/journal/state.h"

#define LIMBO_FLOOR (UINT64_C(128) << 20)	/* limbo may always hold this many bytes */

#define LIVE_FADES 4096u		/* at each request the peak of live bytes loses one part of this many */
#define GROWTH_NS UINT64_C(10000000000)	/* longest wait before a pages heap grows: others may take the memory */
#define DEDICATED_BYTES (UINT64_C(2) << 20)
#define POISON 0xa5u

#define unlikely(x) __builtin_expect(!!(x), 0)

/* Does @heap have more in limbo than the option allows? The option is a fraction of the bytes that are live or were
 * live lately, because a program that frees nearly all its memory at the end of a round has the most in limbo just
 * then. A program that frees faster than the GPU finishes has to wait, as in every cudaFree of the driver. */
static bool over_budget(struct gm_cache_heap *heap)
{
	uint64_t limbo = gm_reuse_limbo_bytes(gm_order_reuse(), heap->number), budget;
	uint64_t live = gm_cache_heap_live_bytes(heap), lately = heap->live_lately;

	lately -= lately / LIVE_FADES;
	heap->live_lately = live > lately ? live : lately;
	budget = (uint64_t)(gm_state.options.limbo * (double)heap->live_lately);
	return limbo > (budget > LIMBO_FLOOR ? budget : LIMBO_FLOOR);
}

static inline int from_free(struct gm_cache_heap *heap, struct gm_call *call)
{
	return gm_cache_heap_alloc(heap, call->op, &call->alloc, &call->block);
}

/* Could a request of @bytes be served if all memory that is not live came back? The driver's figures answer that for
 * the device; the heap itself checks our limits. */
static bool could_fit(const struct gm_cache_heap *heap, uint64_t bytes)
{
	size_t free_bytes = 0, total_bytes = 0;
	uint64_t ours = 0;

	if (GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
		return true;
	for (struct gm_cache_heap *other = NULL; (other = gm_cache_heap_next(other, heap->domain));) {
		uint64_t live = gm_cache_heap_live_bytes(other);

		ours += other->segments > live ? other->segments - live : 0;
	}
	return gm_cache_orphans_any() || bytes <= free_bytes + ours ||
	       (gm_cache_back_waits(heap->domain) && !gm_cache_is_past_device(heap));
}

/* Make the request's stream wait, on the device, for the next other stream that has freed a block of @least bytes in
 * @heap's pages, and give that stream's free blocks to the request's stream. Begin with *@at 0. Returns their bytes;
 * 0: there is no further such stream. */
static uint64_t take_over_next(struct gm_cache_heap *heap, uint64_t key, uint64_t least, uint32_t *at)
{
	CUstream own = gm_cache_request.stream;
	struct gm_stream_track from;
	uint64_t point, bytes = 0;

	/* During a capture, only explicit streams, because a default stream could join the capture. */
	while (!bytes && (own > CU_STREAM_PER_THREAD || !gm_capturing())) {
		/* Fix the point first, because a free after it may not have recorded the event that is waited for. */
		point = gm_reuse_turn(gm_order_reuse());
		if (!gm_timeline_stream_next(gm_reuse_time(gm_order_reuse()), at, &from))
			break;
		if (from.key == key || !gm_cache_heap_freed_on(heap, from.key, least) ||
		    !gm_order_behind_stream(from.key, own, false))
			continue;
		/* Record the stream's event behind the wait, because an earlier event would claim that the GPU has
		 * passed these frees. */
		gm_order_stream_meet(key, own, false);
		gm_timeline_stream_freed(gm_reuse_time(gm_order_reuse()), key, (uintptr_t)own, true);
		bytes = gm_cache_heap_take_over(heap, from.key, key, point);
	}
	return bytes;
}

/* Reuse pages that other streams freed, in place. Make the request's stream wait for streams that freed a large
 * enough block, or else for any streams, one after the other until the request fits. It waits for no more streams
 * than needed, because they may be waiting for it. */
static int take_over(struct gm_cache_heap *heap, struct gm_call *call)
{
	uint64_t least = call->alloc.requested;
	struct gm_relaxed relaxed;
	bool any = false;
	int r = -EAGAIN;

	if (!could_fit(heap, least))
		return -ENOMEM;
	gm_order_report_frees();	/* else no free records a newer event, and an old one would claim too much */
	relaxed = gm_relax();
	for (unsigned int i = 0; r == -EAGAIN && i < 2; i++, least = 0)
		for (uint32_t at = 0; r == -EAGAIN && take_over_next(heap, call->alloc.stream, least, &at);) {
			r = from_free(heap, call);
			any = true;
		}
	gm_unrelax(&relaxed);
	if (r == -EAGAIN)
		r = any ? gm_cache_heap_grow(heap, call->op, &call->alloc, &call->block) : -ENOMEM;
	return r;
}

/* Serve a stream-ordered request from memory whose free is not complete. This is the last resort. */
static int from_pending(struct gm_cache_heap *heap, struct gm_call *call)
{
	uint64_t bytes;

	if (gm_cache_heap_in_pages(heap))
		return take_over(heap, call);
	gm_cache_request.chains = true;
	bytes = gm_cache_heap_empty(heap, UINT64_MAX) + gm_cache_orphans_chain(heap);
	gm_cache_request.chains = false;
	return bytes ? gm_cache_heap_grow(heap, call->op, &call->alloc, &call->block) : -ENOMEM;
}

/* Grow the heap under the growth lock. Only the holder of that lock may decide that the device is out of memory,
 * because another thread may have grown the heap, or may be about to give memory back. @last: also use memory whose
 * free is not complete. */
static int grow(struct gm_cache_heap *heap, struct gm_call *call, bool last)
{
	bool locked = gm_rule(GM_RULE_GROWTH) && gm_cache_growth_lock(heap->domain);
	int r = -EAGAIN;

	if (!locked && gm_rule(GM_RULE_GROWTH))
		return -ETIMEDOUT;
	if (locked)
		r = from_free(heap, call);
	if (r == -EAGAIN) {
		gm_cache_release_ended(heap->domain);
		r = gm_cache_heap_grow(heap, call->op, &call->alloc, &call->block);
	}
	if (r == -ENOMEM && gm_rule(GM_RULE_FLUSH) && gm_cache_empty(heap->domain, heap))
		r = gm_cache_heap_grow(heap, call->op, &call->alloc, &call->block);
	if (r == -ENOMEM && last && gm_rule(GM_RULE_FLUSH) && heap->kind == GM_KIND_POOL)
		r = from_pending(heap, call);
	if (locked)
		gm_cache_growth_unlock(heap->domain);
	return r;
}

/* ---- the steps of a request that no free block serves ---- */

struct serving {
	struct gm_cache_heap *heap;
	struct gm_call *call;
	struct gm_cache_await await;
	bool streams;			/* also wait for stream-ordered frees */
	bool driven;			/* the step driver() has been taken */
	bool asked;			/* other processes have been asked */
};

/* Shall the request wait for stream-ordered frees? Only requests of PyTorch's interface (gpumem_torch_malloc): the
 * driver's cudaMalloc never waits for such frees, and default pools hand the memory out behind the point of the
 * free. */
static bool waits_for_streams(const struct serving *s)
{
	return s->heap->kind != GM_KIND_POOL && s->call->alloc.stream;
}

static bool is_pool_in_pages(const struct serving *s)
{
	return s->heap->kind == GM_KIND_POOL && gm_cache_heap_in_pages(s->heap);
}

/* Poll limbo. While it holds more than the option limbo allows, wait for the oldest frees. */
static int limbo(struct serving *s)
{
	struct gm_reuse *reuse = gm_order_reuse();
	int r = -EAGAIN;

	if (gm_reuse_poll(reuse))
		r = from_free(s->heap, s->call);
	while (r == -EAGAIN && over_budget(s->heap) && !gm_reuse_wait(reuse))
		r = from_free(s->heap, s->call);
	return r;
}

/* Grow with the driver's memory. A pages heap grows past its live memory only when waiting for freed memory is in
 * vain. The wait happens without the growth lock, because the GPU's work may end only after another thread has grown
 * a heap. */
static int driver(struct serving *s)
{
	struct gm_cache_heap *heap = s->heap;
	uint64_t at = gm_now_ns(), waited = 0;
	int r;

	if (!s->driven) {
		gm_cache_request.result = CUDA_SUCCESS;
		gm_cache_request.bytes = s->call->alloc.requested;
		gm_cache_request.grown = false;
	}
	s->driven = true;
	if (is_pool_in_pages(s) && !s->streams)
		gm_order_stream_meet(s->call->alloc.stream, gm_cache_request.stream, false);
	gm_cache_request.waits = heap->pages && !heap->moving.impatient && !gm_capturing() && !gm_in_host_function();
	gm_cache_await_begin(&s->await);
	while ((r = grow(heap, s->call, false)) == -EBUSY) {
		gm_cache_request.waits = gm_cache_await_pages(heap) &&
					 (waited += gm_passed_ns(&at, GROWTH_NS / 8)) < GROWTH_NS;
		gm_cache_await_begin(&s->await);
	}
	gm_cache_request.waits = false;
	return r;
}

static int freed(struct serving *s)
{
	int r = -ENOMEM;

	while (r == -ENOMEM && could_fit(s->heap, s->call->alloc.requested) &&
	       gm_cache_await(&s->await, s->heap->domain, s->call->alloc.requested, s->streams))
		r = grow(s->heap, s->call, false);
	return r;
}

static int pending(struct serving *s)
{
	return grow(s->heap, s->call, true);
}

/* For a default pool in pages: no memory fits in place, so start again and also wait for streams. Pages can move once
 * the host knows that the GPU has passed their frees. */
static int streams(struct serving *s)
{
	if (!is_pool_in_pages(s) || s->streams)
		return -ENOMEM;
	s->streams = true;
	return -ERESTART;
}

static int others(struct serving *s)
{
	if (s->asked || gm_cache_request.result != CUDA_ERROR_OUT_OF_MEMORY ||
	    !gm_cache_ask_others(s->heap->domain, s->call->alloc.requested))
		return -ENOMEM;
	s->asked = true;
	s->streams = waits_for_streams(s);
	return -ERESTART;
}

/* A step is taken if the step before it ended with @on. -ERESTART: go on from the step DRIVER again. */
#define DRIVER 1u
static const struct step { int (*take)(struct serving *s); int on; } steps[] = {
	{ limbo, -EAGAIN },		/* a block that the GPU has finished with by now */
	[DRIVER] = { driver, -EAGAIN },	/* the driver's memory, if need be after other heaps gave idle segments back */
	{ freed, -ENOMEM },		/* the same, after waiting for freed memory */
	{ pending, -ENOMEM },		/* stream-ordered: memory whose free is not complete, behind that free */
	{ streams, -ENOMEM },		/* default pool in pages: again, and wait also for stream-ordered frees */
	{ others, -ENOMEM },		/* again, after other processes gave idle memory back */
};

/* Serve a request that no free block serves, by the steps. @r: the error of gm_cache_heap_alloc. */
static __attribute__((noinline)) int serve_late(struct gm_cache_heap *heap, struct gm_call *call,
						int r)
{
	struct serving s = { .heap = heap, .call = call };

	gm_alloc_flight(call);
	if (!call->op)
		return -ENODEV;		/* nothing is recorded */
	s.streams = waits_for_streams(&s);
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]) && r == steps[i].on; i++) {
		r = steps[i].take(&s);
		if (r == -ERESTART) {
			r = steps[DRIVER].on;
			i = DRIVER - 1;
		}
	}
	if (s.driven && gm_cache_request.grown)
		gm_cache_missed(heap);
	if (s.driven && !r)
		gm_cache_grew(heap, call);
	return r;
}

/* End a request that failed with @r. Returns false if the driver shall be asked. */
static bool fail(const struct gm_cache_heap *heap, struct gm_call *call, int r, CUresult *ret_result)
{
	enum gm_limit which;

	/* If the tables were lost meanwhile, @r means nothing. */
	if (gm_get(&gm_rec.lost))
		return false;
	call->exhausted = r == -ENOMEM;
	/* No room for a segment, which may be much larger than the request, or no addresses for pages: let the driver
	 * try to serve just the request. (After a limit of ours refused it, nobody else may be asked.) */
	if (r == -ENOMEM && (gm_cache_request.result == CUDA_ERROR_OUT_OF_MEMORY ||
			     gm_cache_limit(heap->domain, &which) == GM_HEAP_UNLIMITED))
		return false;
	if (r == -ENOMEM) {
		gm_cache_request.over_limit = true;
		*ret_result = gm_alloc_pass(call, CUDA_ERROR_OUT_OF_MEMORY);
		gm_cache_request.over_limit = false;
	} else if (r == -EIO && gm_cache_request.result) {
		*ret_result = gm_alloc_pass(call, gm_cache_request.result);
	} else {
		return false;		/* a fault of ours, or a size that fits into no heap */
	}
	return true;
}

/* Fill memory that is handed out, as the option fill says. Memory of a pool is filled by work of the request's
 * stream. Memory of cudaMalloc has no stream, so it is filled completely before the program gets it. */
static void fill(struct gm_cache_heap *heap, CUdeviceptr address, uint64_t bytes)
{
	unsigned char value = gm_state.options.fill == GM_FILL_ZERO ? 0 : POISON;
	CUstream stream = gm_cache_request.stream;
	struct gm_relaxed relaxed;
	struct gm_visit visit;
	uint32_t seen;

	if (heap->kind == GM_KIND_POOL) {
		seen = gm_work(stream, false, 0);
		relaxed = gm_relax();
		GM_REAL(cuMemsetD8Async)(address, value, bytes, stream);
		gm_unrelax(&relaxed);
		gm_work_over(stream, false, seen);
		return;
	}
	visit = gm_visit_begin(heap);
	stream = gm_cache_back_stream(heap);
	if (!GM_REAL(cuMemsetD8Async)(address, value, bytes, stream))
		GM_REAL(cuStreamSynchronize)(stream);
	gm_visit_end(&visit);
}

/* Serve a request from a free block, else by the steps. A call that a free block served has no flight to end. */
static inline bool serve(struct gm_cache_heap *heap, struct gm_call *call, CUdeviceptr *dptr,
			 CUresult *ret_result)
{
	int r = from_free(heap, call);

	if (unlikely(r)) {
		r = serve_late(heap, call, r);
		if (r)
			return fail(heap, call, r, ret_result);
	}
	/* If the block's record was lost meanwhile, the address may belong to no block, or to another one. */
	if (unlikely(gm_get(&gm_rec.lost)))
		return false;
	*dptr = call->alloc.address;
	if (unlikely(gm_cache_unusual & GM_CACHE_FILLS))
		fill(heap, call->alloc.address, call->alloc.requested);
	*ret_result = unlikely(call->op) ? gm_alloc_pass(call, CUDA_SUCCESS)
					 : gm_leave(CUDA_SUCCESS);
	return true;
}

/* Does the driver refuse allocations now, because of a capture? If so, the call has ended. */
static inline bool refused(struct gm_call *call, const struct gm_cache_heap *heap,
			   CUresult *ret_result)
{
	CUresult result = unlikely(gm_capturing()) ? gm_cache_permission(heap) : CUDA_SUCCESS;

	if (!unlikely(result))
		return false;
	*ret_result = gm_alloc_pass(call, result);
	return true;
}

/* Shall the driver serve the request, because the program may hand the memory to others who know whole segments
 * only? */
static inline bool is_dedicated(uint64_t bytes, uint16_t module)
{
	return bytes >= DEDICATED_BYTES && (gm_writers_any() || gm_writers_own_segment(module));
}

bool gm_cache_malloc(struct gm_call *call, CUdeviceptr *dptr, CUresult *ret_result)
{
	struct gm_cache_heap *heap;

	if (unlikely(!gm_cache_on() || !dptr || !call->alloc.requested ||
		     is_dedicated(call->alloc.requested, call->alloc.module)))
		return false;
	heap = gm_cache_context_heap(&call->where);
	if (unlikely(!heap || heap->faulted))
		return false;
	call->alloc.whole = call->alloc.requested >= GM_CACHES_FROM && gm_writers_caches(call->alloc.module);
	return refused(call, heap, ret_result) || serve(heap, call, dptr, ret_result);
}

bool gm_cache_malloc_ordered(struct gm_call *call, CUdeviceptr *dptr, CUstream stream,
			     CUresult *ret_result)
{
	struct gm_cache_heap *heap;

	if (!gm_cache_on() || !call->alloc.requested)
		return false;
	heap = gm_cache_context_heap(&call->where);
	if (!heap || heap->faulted)
		return false;
	if (refused(call, heap, ret_result))
		return true;
	call->alloc.stream = gm_stream_key(stream, false);
	gm_cache_request.stream = stream;
	if (serve(heap, call, dptr, ret_result))
		return true;
	call->alloc.stream = 0;				/* the driver's memory is not stream-ordered */
	return false;
}

bool gm_cache_malloc_async(struct gm_call *call, CUdeviceptr *dptr, CUstream stream, uint64_t key,
			   CUresult *ret_result)
{
	struct gm_cache_heap *heap;

	if (unlikely(!gm_cache_on() || !dptr || !call->alloc.requested))
		return false;
	heap = gm_cache_pool_heap(&call->where);
	if (unlikely(!heap || heap->faulted))
		return false;
	if (refused(call, heap, ret_result))
		return true;
	gm_cache_request.stream = stream;
	call->alloc.stream = key;
	call->alloc.domain = heap->domain;
	if (serve(heap, call, dptr, ret_result))
		return true;
	call->alloc.stream = (uintptr_t)stream;		/* as for the driver's memory */
	return false;
}
