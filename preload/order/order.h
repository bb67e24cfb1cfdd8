/*
 * order.h - which stream is given work, in which order, as far as reuse of memory depends on it.
 *
 * The hooks of work and order call it; reuse.h decides; this is what lies between, with tickets.h
 * (events of contexts), capture.h, unseen.h, host.h (what the host may see of that work) and
 * as_driver.h (what a free has to do in the driver's place).
 *
 * With allocator native, or where nothing can be recorded, gm_order_on is false and all of it
 * costs one load. Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_ORDER_H
#define GM_PRELOAD_ORDER_H

#include "allocator/reuse.h"
#include "preload/order/capture.h"

extern bool gm_order_on GM_HIDDEN;		/* set once, in gm_order_start */
extern struct gm_reuse_hot gm_order_hot GM_HIDDEN;

/* Whose blocks are reused: struct gm_reuse_ops has both. */
struct gm_order_blocks {
	uint32_t (*context_of)(uint32_t owner);
	size_t (*complete)(const struct gm_reuse_item *items, size_t count);
};

/* Called by the cache when it starts; 0 or -errno. */
int gm_order_start(const struct gm_order_blocks *blocks);
struct gm_reuse *gm_order_reuse(void);

/* The stream's key: its handle with what makes it unique (context and thread of the pseudo
 * handles, a number where a handle is used again). @per_thread: the call came by a _ptsz/_ptds
 * name. Never 0. */
uint64_t gm_stream_key(CUstream stream, bool per_thread);
/* The same where the current context is known (id). */
uint64_t gm_stream_key_in(uint32_t context, CUstream stream, bool per_thread);

enum gm_work_flags {
	GM_WORK_LAUNCH = 1,		/* a kernel or graph: writes what the host sees while managed or
					 * mapped memory exists */
	GM_WORK_HOST = 2,		/* an asynchronous copy from or to host memory (or it may be) */
	GM_WORK_WAITED = 4,		/* the call returns when its work is done (a synchronous copy) */
	GM_WORK_KERNEL = 8		/* a kernel: nothing later overlaps what came before it */
};
void gm_work_slow(CUstream stream, bool per_thread);

/* The stream that this thread submitted to last and that is known to us; it is asked about again
 * once the generation has moved. */
struct gm_order_last { uint64_t stream; uint32_t generation; };
extern __thread struct gm_order_last gm_order_last GM_HIDDEN;
extern _Atomic(uint32_t) gm_order_generation GM_HIDDEN;

#if GM_TEST_RULES
extern _Atomic(uint64_t) gm_test_works GM_HIDDEN;	/* submissions seen (selfcheck.c) */
#endif

/* Before every submission, in the work hooks. What the host may see of it (@flags) is noted after
 * the real call (host.h). Returns @generation for gm_work_over. */
static inline uint32_t gm_work(CUstream stream, bool per_thread, unsigned int flags)
{
	uint32_t generation = gm_order_generation;

	(void)flags;
#if GM_TEST_RULES
	gm_test_works++;
#endif
	if (gm_order_on && (gm_order_last.stream != gm_stream_name(stream, per_thread) ||
			    gm_order_last.generation != generation || gm_order_hot.attention))
		gm_work_slow(stream, per_thread);
	return generation;
}

/* After the real call, whatever its result. */
void gm_work_again(CUstream stream, bool per_thread);
static inline void gm_work_over(CUstream stream, bool per_thread, uint32_t generation)
{
	if (__builtin_expect(generation != gm_order_generation, 0) && gm_order_on)
		gm_work_again(stream, per_thread);
}

/* ---- ends, and what they cover ---- */

/* @stream is about to be destroyed: its key is never used again. Before the real call; then after
 * it, with its result. */
void gm_order_stream_ends(CUstream stream);
void gm_order_stream_ended(CUstream stream, CUresult result);
/* It ended with its context: the same of its key. */
void gm_order_stream_destroyed(CUstream stream);

/* Was no other context than @context (NULL: the current one) ever given work? A green context is
 * its own here: a synchronise of it does not cover the primary's. */
bool gm_order_covers(CUcontext context);

/* What is given to @back from now on (a private stream of the current context; never "work") comes
 * after everything that was freed early so far. No host wait, no transition. */
void gm_order_behind_frees(CUstream back);

/* Does the driver have events of whole contexts (12.5)? Without, the cache frees as free:sync. */
bool gm_order_has_context_events(void);

/* ---- early reuse: a kernel that may not overlap its predecessor (hook_launch.c) ---- */

/* The cache handed out memory again that work of @stream (a key), the one stream, may still be
 * using. */
void gm_order_early_reuse(uint64_t stream);
struct gm_order_early { _Atomic(uint32_t) reuses, over; };
extern struct gm_order_early gm_order_early GM_HIDDEN;

/* Before a kernel: must it not overlap? 0: it may, else @reuses for gm_order_early_over, after it was
 * launched. */
static inline uint32_t gm_order_early_now(void)
{
	uint32_t reuses = gm_order_early.reuses;

	return reuses == gm_order_early.over ? 0 : reuses;
}
void gm_order_early_over(CUstream stream, bool per_thread, uint32_t reuses);

/* Is @stream the one where memory was reused early last? */
bool gm_order_is_early(CUstream stream, bool per_thread);

/* ---- for segments of the cache that go back to the driver ---- */

/* An event after everything submitted so far in every context that was given work; false: not now.
 * Is it complete (or its contexts gone)? It may cover anybody's work: never waited for. */
bool gm_order_ticket(uint64_t *ret_ticket);
bool gm_order_ticket_query(uint64_t ticket);
void gm_order_ticket_drop(uint64_t ticket);
/* What is given to @own (a private stream) from now on comes after all of that. */
bool gm_order_behind_all(CUstream own);

#endif
