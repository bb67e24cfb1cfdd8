/*
 * order.h - which stream is given work, in which order, as far as reuse of memory depends on it.
 *
 * The hooks of the classes WORK and ORDER call it, and it calls preload/order/reuse.h, which decides.
 * What the host may see of that work is in host.h; context.h says in which context a call works.
 *
 * With allocator native, or where nothing can be recorded, gm_order_on is false and all of it
 * costs one load. Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_ORDER_H
#define GM_PRELOAD_ORDER_H

#include <stdbool.h>

#include "preload/order/reuse.h"
#include "preload/order/context.h"

/* A stream as the caller names it: never 0. */
static inline uint64_t gm_stream_name(CUstream stream, bool per_thread)
{
	uint64_t name = (uint64_t)(uintptr_t)stream;

	return name ? name : per_thread ? 2 : 1;	/* CU_STREAM_PER_THREAD, CU_STREAM_LEGACY */
}

/* ---- stream capture: which streams capture, and what we may ask meanwhile (capture.c) ----
 *
 * While a stream captures, some calls are refused and invalidate the capture; calls of ours must
 * never do that. While some stream may be capturing, our driver calls are made in RELAXED mode
 * (which allows all but cuCtxSynchronize and cuCtxRecordEvent), and the thread's own mode is
 * restored.
 * */

/* Some capture has begun in this process. Never reset: a capture may end in many ways (its stream
 * is destroyed, it is invalidated), and to ask the driver in vain costs little. */
extern _Atomic(bool) gm_capture_seen GM_HIDDEN;

/* Does @stream capture? @per_thread: the call came by a _ptsz name. */
bool gm_stream_captures_asked(CUstream stream, bool per_thread);
static inline bool gm_stream_captures(CUstream stream, bool per_thread)
{
	return gm_capture_seen && gm_stream_captures_asked(stream, per_thread);
}

/* Around driver calls of our own. */
struct gm_relaxed { bool changed; CUstreamCaptureMode mode; };
struct gm_relaxed gm_relax(void);
void gm_unrelax(struct gm_relaxed *relaxed);

/* From now on captures are counted and reported to @reuse; before, none is. */
void gm_capture_start(struct gm_reuse *reuse);

extern _Atomic(uint32_t) gm_captures GM_HIDDEN;

/* Does any stream of the process capture? */
static inline bool gm_capturing(void)
{
	return gm_captures != 0;
}

/* Before the real call that begins a capture, or by which @stream may join one, and after it, with what the first
 * returned; after the call that ends it, whatever that returned. No event of the stream's context is recorded
 * from the
 * first to the last. */
uint32_t gm_capture_beginning(CUstream stream, bool per_thread);
void gm_capture_begun(CUstream stream, bool per_thread, uint32_t context, CUresult result);
/* Of a stream that may have joined one. */
void gm_capture_joined(CUstream stream, bool per_thread, uint32_t context);
void gm_capture_over(CUstream stream, bool per_thread);

/* A stream, or a context with its streams, has ended: so have its captures. */
void gm_capture_stream_destroyed(CUstream stream);
void gm_capture_context_ended(uint32_t context);

/* Work is submitted while some stream captures: now and then the driver is asked whether it still
 * does. */
void gm_capture_recheck(void);

/* ---- submissions (order.c) ---- */

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

/* The stream's key: its handle, made unique (for pseudo handles by context and thread, for a handle
 * that is used again by a number). @per_thread: the call came by a _ptsz/_ptds name. Never 0. */
uint64_t gm_stream_key(CUstream stream, bool per_thread);
/* The same where the current context is known (id). */
uint64_t gm_stream_key_in(uint32_t context, CUstream stream, bool per_thread);
/* The context (id) in which its work counts; 0: it is not known. */
uint32_t gm_stream_context(CUstream stream, bool per_thread);

enum gm_work_flags {
	GM_WORK_LAUNCH = 1,		/* a kernel or graph: writes what the host sees while managed or
					 * mapped memory exists */
	GM_WORK_HOST = 2,		/* an asynchronous copy from or to host memory (or it may be) */
	GM_WORK_WAITED = 4,		/* the call returns when its work is done (a synchronous copy) */
	GM_WORK_KERNEL = 8		/* a kernel: nothing later overlaps what came before it */
};
void gm_work_slow(CUstream stream, bool per_thread);

/* The stream to which this thread submitted last; gm_work_slow is called for it again only after
 * the generation has changed. */
struct gm_order_last { uint64_t stream; uint32_t generation; };
extern __thread struct gm_order_last gm_order_last GM_HIDDEN;
extern _Atomic(uint32_t) gm_order_generation GM_HIDDEN;

#if GM_TEST_RULES
extern _Atomic(uint64_t) gm_test_works GM_HIDDEN;	/* submissions seen (test/rules/selfcheck.c) */
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

/* Before @stream waits for an event, perhaps of another context: that is no work, but what is freed in the
 * stream's order
 * comes after it. The same of all streams of @context. */
void gm_order_waits_slow(CUstream stream, bool per_thread);
static inline void gm_order_waits(CUstream stream, bool per_thread)
{
	if (gm_order_on && !gm_context_only_used())
		gm_order_waits_slow(stream, per_thread);
}
void gm_order_context_waits(CUcontext context);

/* ---- ends, and what they cover ---- */

/* @stream is about to be destroyed: its key is never used again. gm_order_stream_ends before the
 * real call, gm_order_stream_ended after it, with its result. */
void gm_order_stream_ends(CUstream stream);
void gm_order_stream_ended(CUstream stream, CUresult result);

/* ---- streams that memory is freed on (streams.c) ---- */

/* Stream-ordered memory of the stream of @key, which the caller names @stream, in its current context, is served or
 * freed. @fresh: nothing was freed on it. */
void gm_order_stream_meet(uint64_t key, CUstream stream, bool fresh);
/* There is so much stream-ordered memory that another request could lack it: from now on a free in the order of
 * a stream is told of, before the block can be handed out again. */
void gm_order_tell_frees(void);
extern _Atomic(bool) gm_order_frees_told GM_HIDDEN;
/* Something is freed so. @meets: a stream that is not known is met. */
void gm_order_stream_freed(uint64_t key, CUstream stream, bool meets);
/* @own waits, on the device, for all that was freed on the stream of @key; @may_record: else for all that the
 * stream was given. False: that could not be arranged. */
bool gm_order_behind_stream(uint64_t key, CUstream own, bool may_record);
/* Ask the streams that have ended. A number that rises when one of them is complete. */
uint32_t gm_order_streams_over(void);
/* It is about to be destroyed; those of @context were. */
void gm_order_stream_over(uint64_t key, CUstream stream);
void gm_order_streams_lost(uint32_t context);
void gm_order_stream_destroyed(CUstream stream);	/* its key is never used again */

/* Was no other context than @context (NULL: the current one) ever given work? A green context
 * counts as one of its own here: a synchronise of it does not cover the primary context's work. */
bool gm_order_covers(CUcontext context);

/* Work that is given to @back from now on (a private stream of the current context, whose work does
 * not count) runs after earlier uses of everything that was freed early so far. The host does not
 * wait, and single-stream mode does not end. */
void gm_order_behind_frees(CUstream back);

/* Does the driver have events of whole contexts (12.5)? Without, the cache frees as free:sync. */
bool gm_order_has_context_events(void);

/* ---- early reuse: a kernel that may not overlap its predecessor (hook_launch.c) ---- */

/* The cache handed out memory that work of @stream (a key), the one stream of single-stream mode,
 * may still be using. */
void gm_order_early_reuse(uint64_t stream);
struct gm_order_early { _Atomic(uint32_t) reuses, over; };
extern struct gm_order_early gm_order_early GM_HIDDEN;

/* Before a kernel. 0: it may overlap its predecessor; else it must not, and the result is passed to
 * gm_order_early_over as @reuses after the launch. */
static inline uint32_t gm_order_early_now(void)
{
	uint32_t reuses = gm_order_early.reuses;

	return reuses == gm_order_early.over ? 0 : reuses;
}
void gm_order_early_over(CUstream stream, bool per_thread, uint32_t reuses);

/* Is @stream the one on which memory was last reused early? */
bool gm_order_is_early(CUstream stream, bool per_thread);

/* ---- work that hooks may not see (unseen.c) ----
 *
 * It may come through private tables of the driver, or from objects that call the driver past us.
 * Where there may be any, nothing is reused early and no context is taken to be the only one. These
 * functions may be called inside the loader and before the library has started, too.
 * */

/* From now on @reuse is made to leave single-stream mode when there may be such work; at once if
 * there is already. */
void gm_unseen_start(struct gm_reuse *reuse);

/* Work may be submitted that no hook sees. @why is printed under verbose, once the options are
 * read. */
void gm_unseen_work(const char *why);
bool gm_unseen(void);

/* Check for objects that call the driver past us: at the start, and, after the program has looked a
 * name up, before freed memory is handed out again early. No lock held. */
void gm_unseen_check_slow(void);
static inline void gm_unseen_check(void)
{
	if (gm_name_resolved)
		gm_unseen_check_slow();
}

/* ---- in the driver's place (as_driver.c) ---- */

/* Wait as the driver's own cudaFree would: for everything submitted so far in the context of
 * the memory, or in the current one (@context 0). @ret_all: no work at all is pending that was
 * submitted before; where it is false, what is freed still has to wait for its epoch. */
CUresult gm_order_wait_context(uint32_t context, bool *ret_all);

/* During a capture the driver decides whether the program's own malloc or free is allowed. It is
 * asked by a call without effect in the thread's own mode, in the current context or, without one,
 * in @context (id; 0: none). 0: the program's call is allowed; else the error, and the capture is
 * invalidated as by the driver's own. */
CUresult gm_capture_permission(uint32_t context);

/*
 * Functions of the program's that the driver calls: host functions, callbacks, host nodes of
 * graphs, destructors of user objects. In such a function the driver refuses every call with
 * CUDA_ERROR_NOT_PERMITTED, cuCtxGetCurrent too (seen on a GPU): so once there is one, that call
 * tells whether this thread is in one. The functions are not wrapped, so that getters of the driver
 * return the program's own functions.
 */

/* The program is about to give the driver such a function; or parameters of a node, which may
 * contain one. */
void gm_host_function_added(void);
void gm_host_function_in(const CUgraphNodeParams *params);

/* Is this thread running one? */
bool gm_in_host_function(void);

/* Call @fn before the first such function is given to the driver, or now if one was. There is one
 * @fn, set at the start. */
void gm_host_function_watch(void (*fn)(void));

/* ---- events of contexts that were given work, and tickets (tickets.c) ----
 *
 * A ticket is an event of a stream or a context; 0: there is none. The functions with an @arg are those of struct
 * gm_reuse_ops, which ignore it.
 */
extern const struct gm_timeline_ops gm_ticket_ops GM_HIDDEN;
void gm_ticket_start(struct gm_timeline *time);

/* Context @id is given work from now on. False: there is no room to remember it. No lock held: the driver is
 * asked, and
 * the context may turn out to have ended. */
bool gm_ticket_context(uint32_t id);
/* The same for each context that there is, since work may be submitted unseen. */
void gm_ticket_all_contexts(void);

/* Is every context that was given work, and lives, this one? By its handle, or its id. */
bool gm_ticket_covered_by(CUcontext handle, uint32_t id);
/* The context that was given work whose handle this is; 0: a green context, or none that is known. */
uint32_t gm_ticket_context_of(CUcontext handle);

/* Work of context @who may touch memory of context @whose from now on (0: not known). */
void gm_ticket_touches(uint32_t who, uint32_t whose);

/* ending: the context is about to end, so that the driver is not asked about its events meanwhile
 * (or, @ending false, it did not end). ended: it has ended, and its work is complete. */
void gm_ticket_context_ending(uint32_t id, bool ending);
void gm_ticket_context_ended(uint32_t id);

/* An event after everything submitted to one stream (NULL: to all of its context); *ticket 0: a new
 * ticket, else that one is recorded anew. @whole: for the whole context where no event can be
 * recorded on that stream. The caller then holds the order lock, since no capture may begin
 * meanwhile. 0; -EAGAIN where a capture forbids it; -errno. */
int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket);

/* Later work of @stream waits for @ticket, on the device. */
int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket);

/* As struct gm_reuse_ops has them. */
int gm_ticket_query(void *arg, uint64_t ticket);
void gm_ticket_drop(void *arg, uint64_t ticket);

/* The host waits for a ticket. */
CUresult gm_ticket_synchronise(uint64_t ticket);

/* An event of context @id for queries only, never to be recorded; NULL: there is none. */
CUevent gm_ticket_event(uint32_t id);

/* Work that is given to @own (a private stream) from now on runs after everything submitted so far.
 * False: this could not be arranged. */
bool gm_order_behind_all(CUstream own);

/* Where work may come unseen, it may come in any context: before something is freed. No lock held. */
extern _Atomic(uint32_t) gm_order_met GM_HIDDEN;	/* the gm_context_epoch when they were all met last */
static inline void gm_order_meet_unseen(void)
{
	if (__builtin_expect(gm_unseen() && gm_order_met != gm_context_epoch, 0)) {
		gm_order_met = gm_context_epoch;
		gm_ticket_all_contexts();
	}
}

#endif
