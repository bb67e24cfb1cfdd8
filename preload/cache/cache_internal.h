/*
 * cache_internal.h - the heaps behind cudaMalloc and cudaMallocAsync, and their segments.
 *
 * Between cache_alloc.c and cache_free.c (what a call gets) and preload/cache/cache_heap.h (the heap and its
 * records).
 * Context: as cache.h.
 */
#ifndef GM_PRELOAD_CACHE_INTERNAL_H
#define GM_PRELOAD_CACHE_INTERNAL_H

#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "preload/order/order.h"

/* What the driver calls of the request under way on this thread need to know, and how they
 * ended. */
struct gm_cache_request {
	CUstream stream;		/* of a stream-ordered one */
	uint64_t bytes;			/* that were asked for; set when no free block serves it */
	CUresult result;		/* of the driver's last refusal; 0 none */
	bool chains;			/* memory freed in stream order goes back before its free is complete */
	bool over_limit;		/* a limit of ours refused it */
	bool ended_only;		/* only segments of streams that have ended go back */
	bool waits;			/* a pages heap that would grow past what is live returns -EBUSY first */
	bool grown;			/* the driver gave memory for it */
};
extern __thread struct gm_cache_request gm_cache_request GM_HIDDEN;

void gm_cache_context_start(void);	/* before any heap is there */
int gm_cache_heaps_start(void);

/* Beside a capture: what the driver would say to a malloc or free just now. */
CUresult gm_cache_permission(const struct gm_cache_heap *heap);

/* The heap that served this thread last: ids of contexts and numbers of heaps are never used
 * twice. */
struct gm_cache_last { uint32_t context, number; struct gm_cache_heap *heap; };
extern __thread struct gm_cache_last gm_cache_last GM_HIDDEN;
extern __thread struct gm_cache_last gm_cache_last_pool GM_HIDDEN;

static inline bool gm_cache_is_last(const struct gm_cache_last *last,
				    const struct gm_where *where)
{
	return __builtin_expect(last->heap && last->context == where->context &&
				last->heap->number == last->number && !last->heap->dead, 1);
}

/* The heap of context @where.context, made when there is none; NULL: it cannot be. */
struct gm_cache_heap *gm_cache_context_heap_find(const struct gm_where *where);
static inline struct gm_cache_heap *gm_cache_context_heap(const struct gm_where *where)
{
	return gm_cache_is_last(&gm_cache_last, where) ? gm_cache_last.heap
						       : gm_cache_context_heap_find(where);
}

/* The heap of the device's default pool. */
struct gm_cache_heap *gm_cache_pool_heap_find(const struct gm_where *where);
static inline struct gm_cache_heap *gm_cache_pool_heap(const struct gm_where *where)
{
	return gm_cache_is_last(&gm_cache_last_pool, where) && gm_cache_last_pool.heap->at.handle
		? gm_cache_last_pool.heap : gm_cache_pool_heap_find(where);
}

/* The growth lock of a device; false: it could not be had. No thread waits for work of the GPU
 * while it holds this lock. */
bool gm_cache_growth_lock(uint8_t domain);
bool gm_cache_growth_try(uint8_t domain);
bool gm_cache_growth_waits(uint8_t domain);	/* until one in flight has ended, for a context's end */
void gm_cache_growth_unlock(uint8_t domain);

/* Give the idle segments of every heap of @domain except @but back to the driver; the growth lock
 * is held. Returns the bytes. */
uint64_t gm_cache_empty(uint8_t domain, const struct gm_cache_heap *but);

/* Before a heap grows: give back the segments of streams that have ended, which can serve no
 * request any more; and find out which pages may be moved. The growth lock is held. */
void gm_cache_release_ended(uint8_t domain);

/* A request that is about to be refused, and what was complete when it began. */
struct gm_cache_await {
	uint64_t point;			/* what was freed later is not waited for */
	uint64_t progress;		/* what was complete (gm_reuse_progress) */
	uint64_t at_ns, left_ns;	/* streams and pages are waited for so long (gm_passed_ns) */
	bool again;			/* it has waited before */
};
void gm_cache_await_begin(struct gm_cache_await *await);
/* Wait until memory of @domain's device (GM_DOMAIN_UNKNOWN: of any) that was freed, by any thread,
 * is no longer in use by the GPU: @bytes of it (0: all), or until the GPU has made no progress for
 * seconds. @streams: also for memory whose stream has not got to its free. True: something has
 * become complete since gm_cache_await_begin or the last wait, and the request is worth repeating.
 * No growth lock is held. */
bool gm_cache_await(struct gm_cache_await *await, uint8_t domain, uint64_t bytes, bool streams);

/* A pages heap was to grow past what is live (-EBUSY): wait until the GPU is past more of what was
 * freed. False: that is in vain, and the heap is to grow. Where the GPU got no further for a while,
 * it may be waiting for the host: then the heap never waits for it again. No lock held. */
bool gm_cache_await_pages(struct gm_cache_heap *heap);

/* Has some heap of @domain anything that a flush could give back? */
bool gm_cache_idle_or_limbo(uint8_t domain);

/* Take at most this many bytes of @domain's device from now on (cache_limit.c), which are @fraction of it;
 * what is taken already stays. @setter: GM_LIMIT_CALL or GM_LIMIT_CTL. */
void gm_cache_set_limit(uint8_t domain, uint64_t limit_bytes, double fraction, enum gm_limit setter);

/* The limit in force, bytes, and what set it; GM_HEAP_UNLIMITED with GM_LIMIT_MEMORY or
 * GM_LIMIT_CTL: none. */
uint64_t gm_cache_limit(uint8_t domain, enum gm_limit *ret_which);
/* The same as a part of the device. */
double gm_cache_fraction(uint8_t domain, uint64_t total_bytes);

/* The settings of a new heap on @domain's device. */
void gm_cache_config(uint8_t domain, struct gm_heap_config *config);
void gm_cache_apply_limit(struct gm_cache_heap *heap);	/* a new heap may have missed a change of it */
/* May the heaps of @domain take @bytes more? Its growth lock held. */
bool gm_cache_within_limit(uint8_t domain, uint64_t bytes);
/* The limit, and what counts against it, into the report of what it refused. */
void gm_cache_describe_limit(uint8_t domain, struct gm_failure *failure);

/* The private stream of a heap whose context is current, on which segments go back; NULL: it cannot
 * be had. */
CUstream gm_cache_back_stream(struct gm_cache_heap *heap);

/* @stream, made in the current context at its first use; NULL: it cannot be had. */
CUstream gm_cache_private_stream(CUstream *stream);

/* Make the context @handle current, if it is not. Returns whether gm_cache_pop_context has
 * something to pop. */
bool gm_cache_push_context(CUcontext handle);
void gm_cache_pop_context(bool pushed);

/* Is the request under way too large for the device even if only what is live stayed there?
 * Programs that probe for the largest possible size make such requests. */
bool gm_cache_is_past_device(const struct gm_cache_heap *heap);

/* Around driver calls: @heap's context is current, the thread's capture mode harmless. */
struct gm_visit { struct gm_relaxed relaxed; bool pushed; };
struct gm_visit gm_visit_begin(const struct gm_cache_heap *heap);
void gm_visit_end(struct gm_visit *visit);

extern struct gm_page_map *gm_cache_page_map GM_HIDDEN;

/* ---- default pools (default_pools.c) ---- */

struct gm_default_pool {
	_Atomic(uintptr_t) handle;	/* of the default pool; 0: not asked for yet */
	_Atomic(bool) current;		/* it is the device's current pool */
	_Atomic(bool) changed;		/* it reuses memory in its own way */
	_Atomic(uint64_t) threshold;	/* bytes: what it keeps at a synchronise */
	_Atomic(uint64_t) high;		/* most bytes used, when it was looked */
	_Atomic(uint64_t) reserved_high;	/* of pages: most bytes reserved, when it was looked */
};
extern struct gm_default_pool gm_pools[GM_MAX_DEVICES] GM_HIDDEN;
extern _Atomic(uint64_t) gm_pools_served GM_HIDDEN;	/* a bit for each device of which requests were */

/* Is that an attribute of how it reuses memory? Ask the driver for all of these; false: it did not answer. */
bool gm_pool_is_reuse(CUmemPool_attribute attribute);
bool gm_pool_ask_reuse(struct gm_default_pool *pool, CUmemoryPool handle);

/* ---- segments of stream-ordered memory go back (cache_orphans.c) ---- */

/* Give a segment back that was last used on the stream of @key: now, or as an orphan later. Within
 * a visit. */
void gm_cache_ordered_segment_free(struct gm_cache_heap *heap, uint64_t address, uint64_t bytes,
				   uint64_t key);
/* Give orphans back whose last use is complete by now. Returns their bytes. */
uint64_t gm_cache_orphans_back(void);
/* Give back the orphans of @heap behind everything that its device was given, complete or not.
 * Bytes. */
uint64_t gm_cache_orphans_chain(struct gm_cache_heap *heap);
bool gm_cache_orphans_room(void);	/* is there room for one more? */
bool gm_cache_orphans_any(void);	/* is there one? */
bool gm_cache_orphans_hold(void);	/* gm_cache_orphans_back does nothing until let_go; false: not now */
void gm_cache_orphans_let_go(void);

/* Wait until what @heap gave back on its own stream is the driver's again, at most @limit_ns. */
void gm_cache_back_wait(struct gm_cache_heap *heap, uint64_t limit_ns);
/* Find out of which heaps of @domain that is so by now. Never waits. No lock held. */
void gm_cache_back_look(uint8_t domain);
/* Is memory on its way back to the driver? A number that rises when some has arrived. No lock is
 * needed. */
bool gm_cache_back_waits(uint8_t domain);
uint64_t gm_cache_back_progress(void);

/* ---- the context that a pool's heap works in (cache_context.c) ---- */

/* The heap's context has ended, so that it has none. find: take another one of its device, where
 * there is one. here: take the one whose id is @context. */
void gm_cache_home_find(struct gm_cache_heap *heap);
void gm_cache_home_here(struct gm_cache_heap *heap, uint32_t context);
/* The heap's context is about to end: take another one; false: there is none. The growth lock is
 * held. */
bool gm_cache_home_moves(struct gm_cache_heap *heap);
/* @context has ended, with the streams that the heap had in it. */
void gm_cache_home_lost(struct gm_cache_heap *heap, uint32_t context);

/* ---- little memory is left (cache_flush.c, cache_await.c) ---- */

/* @heap grew for @call: find out how much memory the device has left. */
void gm_cache_grew(struct gm_cache_heap *heap, const struct gm_call *call);
/* Other processes are asked for idle memory of @domain's device, if @bytes can be had then (0: not known). True: some
 * was given back. No lock held. */
bool gm_cache_ask_others(uint8_t domain, uint64_t bytes);
/* @heap has grown: where it gave unused memory back before, the next unused memory stays for longer. */
void gm_cache_missed(struct gm_cache_heap *heap);
/* Was little unused memory left on @domain's device when that was last checked? Checks now and then
 * by itself. */
bool gm_cache_scarce(uint8_t domain);

/* A block that was freed from inside another hook is freed in fact (gm_cache_heap_ask; cache_free.c). */
enum gm_cache_when gm_cache_ask(uint32_t block, uint32_t number, uint64_t bytes);

#endif
