/*
 * cache_alloc.c - what a call of cudaMalloc or cudaMallocAsync gets from the caching allocator (see cache.h).
 *
 * A request is served from a free block, or by one of the steps of the table below. Where something goes wrong on
 * our side, the call is left to the driver.
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

#define LIMBO_FLOOR (UINT64_C(128) << 20)	/* bytes that may always wait for the GPU */

#define LIVE_FADES 4096u		/* at each request the peak of what was live loses this part */
#define GROWTH_NS UINT64_C(10000000000)	/* one request waits before a pages heap grows: others may take what it
					 * waits for */
#define DEDICATED_BYTES (UINT64_C(2) << 20)
#define POISON 0xa5u

#define unlikely(x) __builtin_expect(!!(x), 0)

/* Limbo may hold as much as the option says of what is live, or was lately: a program that frees
 * nearly all at the end of its round has the most in limbo just then. One that frees more than the
 * GPU has finished with waits, as every cudaFree of the driver's does. */
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

/* Could @bytes be had if all came back that is not live? Not past what the device has, and not past
 * a limit of ours, which is asked of the heap. */
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

/* Have the request's stream wait, on the device, for what another stream freed of @heap's pages, a block of @least
 * bytes among it: that is its own then. Returns its bytes; 0: there is no further such stream. Begin with *@at 0. */
static uint64_t take_over_next(struct gm_cache_heap *heap, uint64_t key, uint64_t least, uint32_t *at)
{
	CUstream own = gm_cache_request.stream;
	struct gm_stream_track from;
	uint64_t point, bytes = 0;

	/* A default stream could join a capture. */
	while (!bytes && (own > CU_STREAM_PER_THREAD || !gm_capturing())) {
		/* First: a free that comes later may not have recorded the event that is waited for. */
		point = gm_reuse_turn(gm_order_reuse());
		if (!gm_timeline_stream_next(gm_reuse_time(gm_order_reuse()), at, &from))
			break;
		if (from.key == key || !gm_cache_heap_freed_on(heap, from.key, least) ||
		    !gm_order_behind_stream(from.key, own, false))
			continue;
		/* An event before the wait would say that the GPU is past it. */
		gm_order_stream_meet(key, own, false);
		gm_timeline_stream_freed(gm_reuse_time(gm_order_reuse()), key, (uintptr_t)own, true);
		bytes = gm_cache_heap_take_over(heap, from.key, key, point);
	}
	return bytes;
}

/* Of pages, where they are: behind what one other stream freed that is large enough, else behind what several
 * did. The request's stream waits for no more of them than that, since they may be waiting for it. */
static int take_over(struct gm_cache_heap *heap, struct gm_call *call)
{
	uint64_t least = call->alloc.requested;
	struct gm_relaxed relaxed;
	bool any = false;
	int r = -EAGAIN;

	if (!could_fit(heap, least))
		return -ENOMEM;
	gm_order_tell_frees();		/* an event that no later free records would say too much */
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

/* The last resort of a request in stream order: memory whose free is not complete. */
static int from_pending(struct gm_cache_heap *heap, struct gm_call *call)
{
	uint64_t bytes;

	if (gm_cache_heap_in_pages(heap))
		return take_over(heap, call);
	gm_cache_request.chains = true;
	bytes = gm_cache_heap_empty(heap) + gm_cache_orphans_chain(heap);
	gm_cache_request.chains = false;
	return bytes ? gm_cache_heap_grow(heap, call->op, &call->alloc, &call->block) : -ENOMEM;
}

/* Another thread may have grown the heap, or be about to give memory back: the verdict "out of
 * memory" is nobody's but the lock's holder's. */
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
	bool streams;			/* what was freed in stream order is waited for, too */
	bool driven;			/* the driver's memory was tried */
	bool asked;			/* other processes were */
};

/* The driver's cudaMalloc waits for nothing that was freed in stream order, and its pools hand it out behind the
 * point of the free. For PyTorch's interface nobody else does. */
static bool waits_for_streams(const struct serving *s)
{
	return s->heap->kind != GM_KIND_POOL && s->call->alloc.stream;
}

static bool is_pool_in_pages(const struct serving *s)
{
	return s->heap->kind == GM_KIND_POOL && gm_cache_heap_in_pages(s->heap);
}

/* Where more waits for the GPU than the option limbo allows, the oldest of it is waited for. */
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

/* A pages heap grows past what is live only where waiting for what was freed is in vain. What waits for the GPU is
 * waited for without the lock: it may end only with what another thread does after a growth of its own. */
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

/* Behind the point of the free nothing was found that fits where it is: pages move when the host has seen it. */
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

/* Each is taken if the one before it ended with @on; -ERESTART: again from the driver on. */
#define DRIVER 1u
static const struct step { int (*take)(struct serving *s); int on; } steps[] = {
	{ limbo, -EAGAIN },		/* a block that the GPU has finished with by now */
	[DRIVER] = { driver, -EAGAIN },	/* the driver's memory, after what other heaps of the device have idle */
	{ freed, -ENOMEM },		/* the same, after a wait for what was freed */
	{ pending, -ENOMEM },		/* in stream order: memory whose free is not complete, behind it */
	{ streams, -ENOMEM },		/* a pool's pages: again, and what streams freed is waited for, too */
	{ others, -ENOMEM },		/* again, after other processes gave back what they have idle */
};

/* Nothing that is free serves it, for the reason @r. */
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

/* It was not served, for the reason @r. */
static bool fail(const struct gm_cache_heap *heap, struct gm_call *call, int r, CUresult *ret_result)
{
	enum gm_limit which;

	/* From tables that were lost meanwhile nothing follows. */
	if (gm_get(&gm_rec.lost))
		return false;
	call->exhausted = r == -ENOMEM;
	/* No room for a segment, which may be much more than was asked for, or no addresses for pages: the
	 * driver's turn, for just that. (Past a limit of ours there is nobody else to ask.) */
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
		return false;		/* a fault of ours, or more than fits into any heap */
	}
	return true;
}

/* What an option says that memory holds when it is handed out. A pool's is filled by work of the request's stream; a
 * cudaMalloc's memory has no stream, and is filled before anybody has it. */
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

/* From what is free, or else. A call that was served at once has no flight to end. */
static inline bool serve(struct gm_cache_heap *heap, struct gm_call *call, CUdeviceptr *dptr,
			 CUresult *ret_result)
{
	int r = from_free(heap, call);

	if (unlikely(r)) {
		r = serve_late(heap, call, r);
		if (r)
			return fail(heap, call, r, ret_result);
	}
	/* Its record was lost while we were at it, so the address may be of nothing, or of what another has. */
	if (unlikely(gm_get(&gm_rec.lost)))
		return false;
	*dptr = call->alloc.address;
	if (unlikely(gm_cache_unusual & GM_CACHE_FILLS))
		fill(heap, call->alloc.address, call->alloc.requested);
	*ret_result = unlikely(call->op) ? gm_alloc_pass(call, CUDA_SUCCESS)
					 : gm_leave(CUDA_SUCCESS);
	return true;
}

/* Does the driver refuse the allocation just now? Then the call has ended. */
static inline bool refused(struct gm_call *call, const struct gm_cache_heap *heap,
			   CUresult *ret_result)
{
	CUresult result = unlikely(gm_capturing()) ? gm_cache_permission(heap) : CUDA_SUCCESS;

	if (!unlikely(result))
		return false;
	*ret_result = gm_alloc_pass(call, result);
	return true;
}

/* Is it the driver's, since the program may hand its memory to others who know of segments alone? */
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
	call->alloc.stream = 0;				/* the driver's memory is in no stream's order */
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
	call->alloc.stream = (uintptr_t)stream;		/* as the driver's */
	return false;
}
