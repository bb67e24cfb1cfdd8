/*
 * cache_internal.h - the heaps behind cudaMalloc and cudaMallocAsync, and their segments.
 *
 * This is the layer between cache_alloc.c and cache_free.c, which decide the result of a call, and
 * preload/cache/cache_heap.h, which has the heaps and their records.
 * Context: as cache.h.
 */
#ifndef GM_PRELOAD_CACHE_INTERNAL_H
#define GM_PRELOAD_CACHE_INTERNAL_H

#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "preload/order/order.h"

/* What the driver calls for this thread's request need to know, and how they ended. */
struct gm_cache_thread_request {
	CUstream stream;		/* of a stream-ordered request */
	uint64_t bytes;			/* requested bytes; set when no free block serves the request */
	CUresult result;		/* of the driver's last refusal; 0: none */
	bool chains;			/* memory freed in stream order may go back before its free is complete */
	bool over_limit;		/* a limit of ours refused it */
	bool ended_only;		/* only segments of streams that have ended go back */
	bool waits;			/* a pages heap returns -EBUSY before it grows past its live memory */
	bool grown;			/* the driver gave memory for the request */
};
extern __thread struct gm_cache_thread_request gm_cache_request GM_HIDDEN;

void gm_cache_context_start(void);	/* call before the first heap is made */
int gm_cache_heaps_start(void);

/* Return the result that the driver would give a malloc or free now, while some stream captures. */
CUresult gm_cache_permission(const struct gm_cache_heap *heap);

/* The heap that served this thread last. The cached pointer is safe, because ids of contexts and numbers of heaps are
 * never used twice. */
struct gm_cache_last_heap { uint32_t context, number; struct gm_cache_heap *heap; };
extern __thread struct gm_cache_last_heap gm_cache_last GM_HIDDEN;
extern __thread struct gm_cache_last_heap gm_cache_last_pool GM_HIDDEN;

static inline bool gm_cache_is_last(const struct gm_cache_last_heap *last,
				    const struct gm_where *where)
{
	return __builtin_expect(last->heap && last->context == where->context &&
				last->heap->number == last->number && !last->heap->dead, 1);
}

/* Return the heap of context @where.context, and make it if there is none; NULL: it could not be made. */
struct gm_cache_heap *gm_cache_context_heap_find(const struct gm_where *where);
static inline struct gm_cache_heap *gm_cache_context_heap(const struct gm_where *where)
{
	return gm_cache_is_last(&gm_cache_last, where) ? gm_cache_last.heap
						       : gm_cache_context_heap_find(where);
}

/* Return the heap of the device's default pool, likewise. */
struct gm_cache_heap *gm_cache_pool_heap_find(const struct gm_where *where);
static inline struct gm_cache_heap *gm_cache_pool_heap(const struct gm_where *where)
{
	return gm_cache_is_last(&gm_cache_last_pool, where) && gm_cache_last_pool.heap->at.handle
		? gm_cache_last_pool.heap : gm_cache_pool_heap_find(where);
}

/* Take the growth lock of a device; false: it could not be taken. lock waits for at most 60 s and then gives the lock
 * up (lock.h); try does not wait; waits: for at most 2 s. No thread waits for work of the GPU while it holds this
 * lock. */
bool gm_cache_growth_lock(uint8_t domain);
bool gm_cache_growth_try(uint8_t domain);
bool gm_cache_growth_waits(uint8_t domain);	/* before a context ends: wait for a growth in flight */
void gm_cache_growth_unlock(uint8_t domain);

/* Give the idle segments of every heap of @domain except @but back to the driver. The growth lock is held. Returns
 * the bytes. */
uint64_t gm_cache_empty(uint8_t domain, const struct gm_cache_heap *but);

/* Give back the segments of streams that have ended, because they can serve no request any more; and find out which
 * pages may be moved. Called before a heap grows. The growth lock is held. */
void gm_cache_release_ended(uint8_t domain);

/* The waits of a request that is about to be refused. */
struct gm_cache_await {
	uint64_t point;			/* later frees are not waited for */
	uint64_t progress;		/* gm_reuse_progress at the beginning, or after the last wait */
	uint64_t at_ns, left_ns;	/* time left to wait for streams and pages (gm_passed_ns) */
	bool again;			/* the request has waited before */
};
void gm_cache_await_begin(struct gm_cache_await *await);
/* Wait until the GPU no longer uses memory of @domain's device (GM_DOMAIN_UNKNOWN: of any) that any thread has freed:
 * until @bytes of it are complete (0: all), or until the GPU has made no progress for seconds. @streams: wait also
 * for memory whose stream has not reached its free. Returns true if something has become complete since
 * gm_cache_await_begin or the last wait, so that it is worth repeating the request. No growth lock is held. */
bool gm_cache_await(struct gm_cache_await *await, uint8_t domain, uint64_t bytes, bool streams);

/* Wait until the GPU has passed more frees, because a pages heap was about to grow past its live memory (-EBUSY).
 * Returns false if waiting is in vain, so that the heap shall grow. If the GPU made no progress for a while, it may
 * be waiting for the host: then the heap never waits for it again. No lock held. */
bool gm_cache_await_pages(struct gm_cache_heap *heap);

/* Has any heap of @domain memory that a flush could give back? */
bool gm_cache_idle_or_limbo(uint8_t domain);

/* Limit the cache to @limit_bytes of @domain's device from now on (cache_limit.c). @fraction is the same as a part of
 * the device. Memory that the cache already has stays. @setter: GM_LIMIT_CALL or GM_LIMIT_CTL. */
void gm_cache_set_limit(uint8_t domain, uint64_t limit_bytes, double fraction, enum gm_limit setter);

/* Return the limit in force, in bytes, and what set it. GM_HEAP_UNLIMITED with GM_LIMIT_MEMORY or GM_LIMIT_CTL: no
 * limit. */
uint64_t gm_cache_limit(uint8_t domain, enum gm_limit *ret_which);
/* Return the same as a part of the device. */
double gm_cache_fraction(uint8_t domain, uint64_t total_bytes);

/* Fill in the configuration of a new heap on @domain's device. */
void gm_cache_config(uint8_t domain, struct gm_heap_config *config);
void gm_cache_apply_limit(struct gm_cache_heap *heap);	/* a new heap may have missed a change of the limit */
/* May the heaps of @domain take @bytes more? Its growth lock is held. */
bool gm_cache_within_limit(uint8_t domain, uint64_t bytes);
/* Add the limit, and the bytes that count against it, to the report of a request that it refused. */
void gm_cache_describe_limit(uint8_t domain, struct gm_failure *failure);

/* Return the private stream on which a heap frees segments. The heap's context is current. NULL: there is none. */
CUstream gm_cache_back_stream(struct gm_cache_heap *heap);

/* Return *@stream; make it in the current context at the first use. NULL: it cannot be made. */
CUstream gm_cache_private_stream(CUstream *stream);

/* Make the context @handle current if it is not. Returns whether gm_cache_pop_context has to pop it again. */
bool gm_cache_push_context(CUcontext handle);
void gm_cache_pop_context(bool pushed);

/* Is the request under way too large for the device even if only live memory stayed there? Programs that probe for
 * the largest possible size make such requests. */
bool gm_cache_is_past_device(const struct gm_cache_heap *heap);

/* Enclose driver calls: meanwhile @heap's context is current, and the thread's capture mode is relaxed. */
struct gm_visit { struct gm_relaxed relaxed; bool pushed; };
struct gm_visit gm_visit_begin(const struct gm_cache_heap *heap);
void gm_visit_end(struct gm_visit *visit);

extern struct gm_page_map *gm_cache_page_map GM_HIDDEN;

/* ---- default pools (default_pools.c) ---- */

struct gm_default_pool {
	_Atomic(uintptr_t) handle;	/* of the default pool; 0: not known yet */
	_Atomic(bool) current;		/* the default pool is the device's current pool */
	_Atomic(bool) changed;		/* the program has changed how the pool reuses memory */
	_Atomic(uint64_t) threshold;	/* bytes that it keeps when the program synchronises */
	_Atomic(uint64_t) high;		/* the most bytes used at any look */
	_Atomic(uint64_t) reserved_high;	/* pages: the most bytes reserved at any look */
};
extern struct gm_default_pool gm_pools[GM_MAX_DEVICES] GM_HIDDEN;
extern _Atomic(uint64_t) gm_pools_served GM_HIDDEN;	/* a bit for each device whose default pool has been served */

/* is_reuse: does @attribute tell how a pool reuses memory? ask_reuse: ask the driver for all such attributes; false
 * if the driver did not answer. */
bool gm_pool_is_reuse(CUmemPool_attribute attribute);
bool gm_pool_ask_reuse(struct gm_default_pool *pool, CUmemoryPool handle);

/* ---- segments of stream-ordered memory go back (cache_orphans.c) ---- */

/* Give back a segment that was last used on the stream of @key: now, or later as an orphan. Called within a visit. */
void gm_cache_ordered_segment_free(struct gm_cache_heap *heap, uint64_t address, uint64_t bytes,
				   uint64_t key);
/* Give back the orphans whose last use is complete by now. Returns their bytes. */
uint64_t gm_cache_orphans_back(void);
/* Free the orphans of @heap behind all work that its device was given, whether or not that is complete. Returns the
 * bytes. */
uint64_t gm_cache_orphans_chain(struct gm_cache_heap *heap);
bool gm_cache_orphans_room(void);	/* is there room for another orphan? */
bool gm_cache_orphans_any(void);	/* is there an orphan? */
bool gm_cache_orphans_hold(void);	/* make gm_cache_orphans_back do nothing until let_go; false: in use */
void gm_cache_orphans_let_go(void);

/* Wait until the driver has the segments that @heap freed on its private stream, at most @limit_ns. */
void gm_cache_back_wait(struct gm_cache_heap *heap, uint64_t limit_ns);
/* Find out for each heap of @domain whether the driver has those segments by now. Never waits. No lock held. */
void gm_cache_back_look(uint8_t domain);
/* back_waits: is memory on its way back to the driver? back_progress: a number that rises when such memory has
 * arrived. No lock is needed. */
bool gm_cache_back_waits(uint8_t domain);
uint64_t gm_cache_back_progress(void);

/* ---- the context that a pool's heap works in (cache_context.c) ---- */

/* Give the heap another context, because its own has ended. find: any other context of its device, if there is one.
 * here: the context with the id @context. */
void gm_cache_home_find(struct gm_cache_heap *heap);
void gm_cache_home_here(struct gm_cache_heap *heap, uint32_t context);
/* Move the heap to another context, because its own is about to end. Returns false if there is none. The growth lock
 * is held. */
bool gm_cache_home_moves(struct gm_cache_heap *heap);
/* Forget @context, which has ended, and the private streams that the heap had in it. */
void gm_cache_home_lost(struct gm_cache_heap *heap, uint32_t context);

/* ---- little memory is left (cache_flush.c, cache_await.c) ---- */

/* Find out how much memory the device has left, because @heap grew for @call. */
void gm_cache_grew(struct gm_cache_heap *heap, const struct gm_call *call);
/* Ask other processes for idle memory of @domain's device, if @bytes may be available then (0: not known). Returns
 * true if some was given back. No lock held. */
bool gm_cache_ask_others(uint8_t domain, uint64_t bytes);
/* Note that @heap has grown. If it gave unused memory back before, it may keep unused memory for longer from now
 * on. */
void gm_cache_missed(struct gm_cache_heap *heap);
/* Was little unused memory left on @domain's device at the last check? Repeats the check now and then. */
bool gm_cache_scarce(uint8_t domain);

/* Decide when a block that was freed from inside another hook may be handed out again (gm_cache_heap_ask;
 * cache_free.c). */
enum gm_cache_when gm_cache_ask(uint32_t block, uint32_t number, uint64_t bytes);

#endif
