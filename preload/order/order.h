/*
 * order.h - what the GPU is given, in which order: the hooks of the classes WORK and ORDER report here.
 *
 * These functions name streams and contexts, and call preload/order/reuse.h, which decides when memory is reused.
 * host.h: work whose progress the host can see. context.h: the context in which a call works.
 *
 * With allocator:native, or if nothing can be recorded, gm_order_on is false, and a hook pays one load.
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_ORDER_H
#define GM_PRELOAD_ORDER_H

#include <stdbool.h>

#include "preload/order/reuse.h"
#include "preload/order/context.h"

/* Return the stream as the caller names it, never 0. */
static inline uint64_t gm_stream_name(CUstream stream, bool per_thread)
{
	uint64_t name = (uint64_t)(uintptr_t)stream;

	return name ? name : per_thread ? 2 : 1;	/* CU_STREAM_PER_THREAD, CU_STREAM_LEGACY */
}

/* ---- stream capture: which streams capture, and which driver calls are allowed meanwhile (capture.c) ----
 *
 * While a stream captures, the driver refuses some calls, and these invalidate the capture. A call of ours must never
 * do that. So while a stream may be capturing, we call the driver in RELAXED mode, which allows all calls but
 * cuCtxSynchronize and cuCtxRecordEvent, and restore the thread's own mode afterwards.
 */

/* A capture has begun in this process. Never reset, because a capture can end in many ways (its stream is destroyed, it
 * is invalidated), and an unnecessary query of the driver costs little. */
extern _Atomic(bool) gm_capture_seen GM_HIDDEN;

/* Does @stream capture? @per_thread: the program called a function with the suffix _ptsz. */
bool gm_stream_captures_asked(CUstream stream, bool per_thread);
static inline bool gm_stream_captures(CUstream stream, bool per_thread)
{
	return gm_capture_seen && gm_stream_captures_asked(stream, per_thread);
}

/* Call these before and after driver calls of our own. */
struct gm_relaxed { bool changed; CUstreamCaptureMode mode; };
struct gm_relaxed gm_relax(void);
void gm_unrelax(struct gm_relaxed *relaxed);

/* Count captures from now on, and report them to @reuse. */
void gm_capture_start(struct gm_reuse *reuse);

extern _Atomic(uint32_t) gm_captures GM_HIDDEN;

/* Does any stream of the process capture? */
static inline bool gm_capturing(void)
{
	return gm_captures != 0;
}

/* beginning: before the real call that begins a capture, or by which @stream may join one. begun: after that call, with
 * the @context that gm_capture_beginning returned; joined: instead of begun, if the stream may have joined a capture.
 * over: after the call that ends the capture, whatever its result. From beginning to over no event of the stream's
 * context is recorded. */
uint32_t gm_capture_beginning(CUstream stream, bool per_thread);
void gm_capture_begun(CUstream stream, bool per_thread, uint32_t context, CUresult result);
void gm_capture_joined(CUstream stream, bool per_thread, uint32_t context);
void gm_capture_over(CUstream stream, bool per_thread);

/* A stream has ended, or a context with its streams: so have their captures. */
void gm_capture_stream_destroyed(CUstream stream);
void gm_capture_context_ended(uint32_t context);

/* Work is submitted while a stream captures. One call in 64 asks the driver which captures have ended. */
void gm_capture_recheck(void);

/* ---- submissions (order.c) ---- */

extern bool gm_order_on GM_HIDDEN;		/* set once, in gm_order_start */
extern struct gm_reuse_hot gm_order_hot GM_HIDDEN;

/* The owner of the reused blocks. Both functions are as in struct gm_reuse_ops. */
struct gm_order_blocks {
	uint32_t (*context_of)(uint32_t owner);
	size_t (*complete)(const struct gm_reuse_item *items, size_t count);
};

/* Start; called by the cache when it starts. Returns 0 or -errno. */
int gm_order_start(const struct gm_order_blocks *blocks);
struct gm_reuse *gm_order_reuse(void);

/* Return the key of @stream, never 0: its handle, made unique. A default stream's key contains the context and thread;
 * if the handle belonged to a destroyed stream before, the key contains a number. @per_thread: the program called a
 * function with the suffix _ptsz or _ptds. */
uint64_t gm_stream_key(CUstream stream, bool per_thread);
/* The same, for callers that know the current context (id). */
uint64_t gm_stream_key_in(uint32_t context, CUstream stream, bool per_thread);
/* Return the context (id) to which the stream's work belongs; 0: not known. */
uint32_t gm_stream_context(CUstream stream, bool per_thread);

enum gm_work_flags {
	GM_WORK_LAUNCH = 1,		/* a kernel or graph: the host sees its writes if managed or mapped
					 * memory exists */
	GM_WORK_HOST = 2,		/* an asynchronous copy that reads or writes host memory, or may do so */
	GM_WORK_WAITED = 4,		/* the call returns when its work is done (a synchronous copy) */
	GM_WORK_KERNEL = 8		/* a kernel: no later work overlaps the work before the kernel */
};
void gm_work_slow(CUstream stream, bool per_thread);

/* The stream to which this thread submitted last. Further work on that stream skips gm_work_slow while the generation
 * stays the same and gm_order_hot.attention is 0. */
struct gm_order_last { uint64_t stream; uint32_t generation; };
extern __thread struct gm_order_last gm_order_last GM_HIDDEN;
extern _Atomic(uint32_t) gm_order_generation GM_HIDDEN;

#if GM_TEST_RULES
extern _Atomic(uint64_t) gm_test_works GM_HIDDEN;	/* submissions seen (test/rules/selfcheck.c) */
#endif

/* Call this before every submission, in the work hooks. @flags are of use after the real call (host.h). Returns
 * @generation for gm_work_over. */
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

/* Call gm_work_over after the real call, whatever its result. */
void gm_work_again(CUstream stream, bool per_thread);
static inline void gm_work_over(CUstream stream, bool per_thread, uint32_t generation)
{
	if (__builtin_expect(generation != gm_order_generation, 0) && gm_order_on)
		gm_work_again(stream, per_thread);
}

/* Before @stream waits for an event, perhaps of another context. The wait is no work, but a free in the stream's order
 * comes after it, so the stream's context needs marks. context_waits: all streams of @context wait. */
void gm_order_waits_slow(CUstream stream, bool per_thread);
static inline void gm_order_waits(CUstream stream, bool per_thread)
{
	if (gm_order_on && !gm_context_only_used())
		gm_order_waits_slow(stream, per_thread);
}
void gm_order_context_waits(CUcontext context);

/* ---- ends, and what they cover ---- */

/* ends: before the real call that destroys @stream, whose key is never used again. ended: after it, with its result. */
void gm_order_stream_ends(CUstream stream);
void gm_order_stream_ended(CUstream stream, CUresult result);

/* ---- streams that memory is freed on (streams.c) ---- */

/* Stream-ordered memory is served to a stream, or freed on it: add the stream to the timeline. @stream is the caller's
 * name for it, in its current context. @fresh: nothing was freed on it so far. */
void gm_order_stream_meet(uint64_t key, CUstream stream, bool fresh);
/* Report every stream-ordered free from now on, before its block can be handed out again. Called when there is so much
 * stream-ordered memory that another request could lack it. */
void gm_order_report_frees(void);
extern _Atomic(bool) gm_order_frees_reported GM_HIDDEN;
/* Report a stream-ordered free. @meets: add the stream to the timeline if it is not known. */
void gm_order_stream_freed(uint64_t key, CUstream stream, bool meets);
/* Make the stream @own wait, on the device, for everything that was freed on stream @key. If no event covers that and
 * @may_record is set, wait for all work of the stream instead. Returns false if that is not possible. */
bool gm_order_behind_stream(uint64_t key, CUstream own, bool may_record);
/* Look up how far the ended streams have come. Returns a number that goes up whenever one of them is complete. */
uint32_t gm_order_streams_over(void);
/* stream_over: the stream is about to be destroyed. streams_lost: the streams of @context were destroyed with it. */
void gm_order_stream_over(uint64_t key, CUstream stream);
void gm_order_streams_lost(uint32_t context);
void gm_order_stream_destroyed(CUstream stream);	/* the handle means a new stream from now on */

/* Is @context (NULL: the current one) the only living context that was given work? A green context is not the same as
 * its primary context here, because synchronising the green one does not cover the primary one's work. */
bool gm_order_covers(CUcontext context);

/* Make all later work of @back run after the earlier uses of all memory that was freed early so far. @back is a private
 * stream of the current context, whose work does not count. The host does not wait, and single-stream mode goes on. */
void gm_order_behind_frees(CUstream back);

/* Does the driver have events of whole contexts (CUDA 12.5)? Without these the cache frees as with free:sync. */
bool gm_order_has_context_events(void);

/* ---- early reuse: a kernel that may not overlap its predecessor (hook_launch.c) ---- */

/* The cache reused memory that work of @stream (a key; the one of single-stream mode) may still be using. */
void gm_order_early_reuse(uint64_t stream);
struct gm_order_early { _Atomic(uint32_t) reuses, over; };
extern struct gm_order_early gm_order_early GM_HIDDEN;

/* Call this before a kernel. 0: the kernel may overlap its predecessor. Otherwise it must not, and after the launch the
 * caller passes the result to gm_order_early_over as @reuses. */
static inline uint32_t gm_order_early_now(void)
{
	uint32_t reuses = gm_order_early.reuses;

	return reuses == gm_order_early.over ? 0 : reuses;
}
void gm_order_early_over(CUstream stream, bool per_thread, uint32_t reuses);

/* Is @stream the one on which memory was last reused early? False while it captures. */
bool gm_order_is_early(CUstream stream, bool per_thread);

/* ---- work that hooks may not see (unseen.c) ----
 *
 * Such work can come through private tables of the driver, or from objects that call the driver past us. If it is
 * possible, no memory is reused early, and no context counts as the only one. These functions may also be called
 * inside the loader, and before the library has started.
 */

/* Make @reuse leave single-stream mode as soon as there may be unseen work; at once, if that is so already. */
void gm_unseen_start(struct gm_reuse *reuse);

/* Work may be submitted that no hook sees. @why is printed under verbose, once the options are read. */
void gm_unseen_work(const char *why);
bool gm_unseen(void);

/* Check for objects that call the driver past us: at the start, and again before memory is freed early if the program
 * has looked a name up since. No lock held. */
void gm_unseen_check_slow(void);
static inline void gm_unseen_check(void)
{
	if (gm_name_resolved)
		gm_unseen_check_slow();
}

/* ---- in the driver's place (as_driver.c) ---- */

/* Wait as the driver's own cudaFree would: for all work submitted so far in the memory's @context (0: the current one).
 * *@ret_all: every context that may touch the memory has passed this point. If false, the free has to wait in limbo. */
CUresult gm_order_wait_context(uint32_t context, bool *ret_all);

/* During a capture, let the driver decide whether the program may call malloc or free: make a call without effect in
 * the thread's own capture mode, in the current context, or, if there is none, in @context (id; 0: none). Return 0 if
 * the program's call is allowed; else the error, and the capture is invalidated as by the driver's own malloc or
 * free. */
CUresult gm_capture_permission(uint32_t context);

/*
 * Functions of the program that the driver calls: host functions, callbacks, host nodes of graphs, destructors of user
 * objects. Inside such a function the driver refuses every call, even cuCtxGetCurrent, with CUDA_ERROR_NOT_PERMITTED
 * (seen on a GPU). So once the driver has such a function, that call tells whether this thread runs one. The functions
 * are not wrapped, because the driver's getters must return the program's own functions.
 */

/* The program is about to give the driver such a function (added), or node parameters that may contain one (in). */
void gm_host_function_added(void);
void gm_host_function_in(const CUgraphNodeParams *params);

/* Does this thread run such a function now? */
bool gm_in_host_function(void);

/* Call @fn before the first such function is given to the driver; at once if one was given. There is one @fn, set at
 * the start. */
void gm_host_function_watch(void (*fn)(void));

/* ---- events of contexts that were given work, and tickets (tickets.c) ----
 *
 * A ticket is an event of one stream or of one context; 0: no ticket. Functions with the parameter @arg ignore it: they
 * have the types of struct gm_reuse_ops.
 */
extern const struct gm_timeline_ops gm_ticket_ops GM_HIDDEN;
void gm_ticket_start(struct gm_timeline *time);

/* Context @id is given work from now on. False: there is no room to remember it. No lock held, because the driver is
 * asked. Returns true, too, if the context turns out to have ended. */
bool gm_ticket_context(uint32_t id);
/* The same for every living context, because work may be submitted unseen. */
void gm_ticket_all_contexts(void);

/* Is this the only living context that was given work? Compares @handle; @id if @handle is NULL. */
bool gm_ticket_covered_by(CUcontext handle, uint32_t id);
/* Return the living context with this handle that was given work; 0: none, or the handle is a green context's. */
uint32_t gm_ticket_context_of(CUcontext handle);

/* Work of context @who may touch memory of context @whose from now on (either 0: not known). */
void gm_ticket_touches(uint32_t who, uint32_t whose);

/* ending: the context is about to end (or, @ending false, did not end): the driver is not asked about its events
 * meanwhile. ended: it has ended, and its work is complete. */
void gm_ticket_context_ending(uint32_t id, bool ending);
void gm_ticket_context_ended(uint32_t id);

/* Record an event behind all work submitted so far to @stream (NULL: to the whole context @id). *@ticket 0: make a new
 * ticket; otherwise record that ticket anew. @whole: if no event can be recorded on @stream, record one of the whole
 * context; the caller then holds "order", so that no capture can begin meanwhile. Returns 0; -EAGAIN: a capture forbids
 * it; else -errno. */
int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket);

/* Make later work of @stream wait for @ticket, on the device. */
int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket);

/* Members of struct gm_reuse_ops. */
int gm_ticket_query(void *arg, uint64_t ticket);
void gm_ticket_drop(void *arg, uint64_t ticket);

/* Block the host until @ticket is complete. */
CUresult gm_ticket_synchronise(uint64_t ticket);

/* Return an event of context @id that the caller may query but must not record; NULL: there is none. */
CUevent gm_ticket_event(uint32_t id);

/* Make later work of @own (a private stream) run after all work submitted so far. False: not possible. */
bool gm_order_behind_all(CUstream own);

/* Call this before something is freed: if work may come unseen, it may come in any living context. No lock held.
 * @gm_order_met: gm_context_epoch at the last time. */
extern _Atomic(uint32_t) gm_order_met GM_HIDDEN;
static inline void gm_order_meet_unseen(void)
{
	if (__builtin_expect(gm_unseen() && gm_order_met != gm_context_epoch, 0)) {
		gm_order_met = gm_context_epoch;
		gm_ticket_all_contexts();
	}
}

#endif
