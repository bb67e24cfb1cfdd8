/*
 * cache_internal.h - the heaps behind cudaMalloc and cudaMallocAsync, and their segments.
 *
 * Between cache.c (what a call gets) and preload/cache/cache_heap.h (the heap and its records). Context: as
 * cache.h.
 */
#ifndef GM_PRELOAD_CACHE_INTERNAL_H
#define GM_PRELOAD_CACHE_INTERNAL_H

#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "preload/order/order.h"

/* What the request under way on this thread looks like to the driver, and what it said. */
struct gm_cache_request {
	CUstream stream;		/* of a stream-ordered one */
	uint64_t bytes;			/* asked for, when nothing free serves it */
	CUresult result;		/* of the driver's last refusal; 0 none */
	bool chains;			/* what was freed in stream order goes back before that is complete */
	bool over_limit;		/* a limit of ours refused it */
	bool ended_only;		/* what is of streams that have ended goes back, nothing else */
};
extern __thread struct gm_cache_request gm_cache_request GM_HIDDEN;

int gm_cache_heaps_start(void);

/* What a thread was served from last: ids of contexts and numbers are never used twice. */
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
	return gm_cache_is_last(&gm_cache_last_pool, where) && gm_cache_last_pool.heap->handle
		? gm_cache_last_pool.heap : gm_cache_pool_heap_find(where);
}

/* The growth lock of a device; false: it could not be had. Nothing that the GPU does is waited for
 * while it is held. */
bool gm_cache_growth_lock(uint8_t domain);
bool gm_cache_growth_try(uint8_t domain);
void gm_cache_growth_unlock(uint8_t domain);

/* Give the idle segments of every heap of @domain back, but @but's; the growth lock held. */
uint64_t gm_cache_empty(uint8_t domain, const struct gm_cache_heap *but);

/* Before a heap grows: give back what nobody else can be served from, segments of streams that have ended; and look
 * which pages may be moved. The growth lock held. */
void gm_cache_release_ended(uint8_t domain);

/* A request that is about to be refused, and what was complete when it began. */
struct gm_cache_await {
	uint64_t stamp;			/* what was freed later is not waited for */
	uint64_t completed, streams;	/* blocks that came out of limbo; streams that came to their frees */
	uint64_t moment;		/* of pages: as @stamp */
	uint64_t pages;			/* how far the GPU was known to be past their frees */
	uint64_t end_ns;		/* streams are waited for until then */
	bool again;			/* not the first wait of this request */
};
void gm_cache_await_begin(struct gm_cache_await *await);
/* Wait for what @domain's device (GM_DOMAIN_UNKNOWN: any) has that waits for the GPU, whoever freed
 * it: until @bytes of it are complete (0: all), or the GPU made no progress for seconds. @streams:
 * for memory of streams that have not come to its free, too. True: something is complete that was not when it
 * began or was waited for last, and the request is worth repeating. No lock of growth held. */
bool gm_cache_await(struct gm_cache_await *await, uint8_t domain, uint64_t bytes, bool streams);

/* Does some heap of @domain hold anything that a flush could give back? */
bool gm_cache_idle_or_limbo(uint8_t domain);

/* Take at most this many bytes of @domain's device from now on (cache_limit.c), which are @fraction of it;
 * what is taken already stays. @setter: GM_LIMIT_CALL or GM_LIMIT_CTL. */
void gm_cache_set_limit(uint8_t domain, uint64_t limit_bytes, double fraction, enum gm_limit setter);

/* What is in force, and by whom; GM_HEAP_UNLIMITED with GM_LIMIT_MEMORY or GM_LIMIT_CTL is no limit. */
uint64_t gm_cache_limit(uint8_t domain, enum gm_limit *ret_which);
/* The same as a part of the device. */
double gm_cache_fraction(uint8_t domain, uint64_t total_bytes);

/* The settings of a new heap on @domain's device. */
void gm_cache_config(uint8_t domain, struct gm_heap_config *config);
void gm_cache_apply_limit(struct gm_cache_heap *heap);	/* made meanwhile, it may have missed that */
/* May the heaps of @domain take @bytes more? Its growth lock held. */
bool gm_cache_within_limit(uint8_t domain, uint64_t bytes);
/* The limit, and what counts against it, into the report of what it refused. */
void gm_cache_describe_limit(uint8_t domain, struct gm_failure *failure);

/* The private stream of a heap whose context is current; NULL: it cannot be had. */
CUstream gm_cache_back_stream(struct gm_cache_heap *heap);

/* @stream, made in the current context at its first use; NULL: it cannot be had. */
CUstream gm_cache_private_stream(CUstream *stream);

/* Make @handle current, where it is not. Returns whether there is something to pop. */
bool gm_cache_push_context(CUcontext handle);
void gm_cache_pop_context(bool pushed);

/* Would the request not fit if the device held nothing but what is live? A program that probes for
 * the largest size asks for such. */
bool gm_cache_is_past_device(const struct gm_cache_heap *heap);

/* Around driver calls: @heap's context is current, the thread's capture mode harmless. */
struct gm_visit { struct gm_relaxed relaxed; bool pushed; };
struct gm_visit gm_visit_begin(const struct gm_cache_heap *heap);
void gm_visit_end(struct gm_visit *visit);

extern struct gm_page_map *gm_cache_page_map GM_HIDDEN;

/* ---- segments of stream-ordered memory go back (cache_orphans.c) ---- */

/* Last used on the stream of @key. In a visit. */
void gm_cache_ordered_segment_free(struct gm_cache_heap *heap, uint64_t address, uint64_t bytes,
				   uint64_t key);
/* Those that could not go back when they should have: now, where they can. Bytes of them. */
uint64_t gm_cache_orphans_back(void);
/* Those of @heap, behind everything given to its device, complete or not. */
uint64_t gm_cache_orphans_chain(struct gm_cache_heap *heap);
bool gm_cache_orphans_room(void);	/* for one more */
bool gm_cache_orphans_any(void);
bool gm_cache_orphans_hold(void);	/* nobody gives some back until they are let go; false: not now */
void gm_cache_orphans_let_go(void);

/* What @heap gave back on its own stream is the driver's again when this returns, or after
 * @limit_ns. */
void gm_cache_back_wait(struct gm_cache_heap *heap, uint64_t limit_ns);
/* The same of every heap of @domain that is so by now. Never waits. No lock held. */
void gm_cache_back_look(uint8_t domain);
/* Is some of it still on its way? A number that rises when some has come. No lock is needed. */
bool gm_cache_back_waits(uint8_t domain);
uint64_t gm_cache_back_progress(void);

/* ---- the context that a pool's heap works in (cache_context.c) ---- */

/* It has none, since that ended: another one of its device, where there is one; or the current one,
 * which is @context. */
void gm_cache_home_find(struct gm_cache_heap *heap);
void gm_cache_home_here(struct gm_cache_heap *heap, uint32_t context);
/* It is about to end: another one; false: there is none. The growth lock held. */
bool gm_cache_home_moves(struct gm_cache_heap *heap);
/* @context has ended, with what the heap had in it. */
void gm_cache_home_lost(struct gm_cache_heap *heap, uint32_t context);

/* ---- what is given back when, what is the driver's (cache_flush.c) ---- */

void gm_cache_short_of_memory(uint8_t domain);
void gm_cache_grew(struct gm_cache_heap *heap, const struct gm_call *call);
/* Had @domain's device little memory left that nobody uses, when it was looked at last? Looks itself
 * now and then. */
bool gm_cache_scarce(uint8_t domain);

/* ---- streams by key (cache_stream.c, cache_stream_frees.c) ---- */

/* One more segment for what is served to the stream of @key, which the caller names @stream, in its
 * current context; one less. @of_pool: it outlives contexts. */
void gm_cache_stream_add_segment(uint64_t key, CUstream stream, bool of_pool);
void gm_cache_stream_drop_segment(uint64_t key, bool of_pool);
/* Its context is about to end (or did not, after all); then its end. */
void gm_cache_streams_ending(uint32_t context, bool ending);
void gm_cache_streams_context_ended(uint32_t context);

/* There is stream-ordered memory that somebody could lack: from now on frees in the order of a block's
 * own stream are marked by an event, before anybody can be handed the block. (Blocks freed otherwise nothing uses
 * any more.) */
void gm_cache_mark_frees(void);
extern _Atomic(bool) gm_cache_frees_marked GM_HIDDEN;
void gm_cache_stream_freed_slow(uint64_t key, CUstream stream);
static inline void gm_cache_stream_freed(uint64_t key, CUstream stream)
{
	if (__builtin_expect(gm_cache_frees_marked, 0))
		gm_cache_stream_freed_slow(key, stream);
}

/* Is what was freed in the order of that stream complete? UNKNOWN: nobody can say. */
enum gm_cache_freed { GM_FREED_COMPLETE, GM_FREED_PENDING, GM_FREED_UNKNOWN };
enum gm_cache_freed gm_cache_stream_ask(uint64_t key);
/* Asks all of them; and what the answer was. @ret_ended: nobody can be served from its segments. */
void gm_cache_streams_poll(void);
enum gm_cache_freed gm_cache_stream_answer(uint64_t key, bool *ret_ended);
/* How often a stream was found to have come to its frees. Is there one that has not? */
uint64_t gm_cache_streams_arrived(void);
bool gm_cache_streams_pending(void);
/* Asks those that have ended. A number that rises when there may be something to give back of one. */
uint32_t gm_cache_streams_poll_ended(void);
/* @address is freed when that is complete, with the help of @own, a private stream; false: it is not. */
bool gm_cache_stream_behind(uint64_t key, uint64_t address, CUstream own);

#endif
