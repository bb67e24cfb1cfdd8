/*
 * order.h - what the GPU was given, in which order, as far as reuse of memory depends on it.
 *
 * The hooks of work, order and identity (hook_work.c, hook_order.c) tell; reuse.h decides; this is
 * what lies between: streams' keys, tickets that are CUDA events, the contexts that were given
 * work, captures, host functions, and what the host may look at after a free.
 *
 * With allocator native, or where nothing can be recorded, gm_order_on is false and all of it
 * costs one load. Thread context: any, inside a hook. Signal context: none. Fork: gm_order_forget.
 */
#ifndef GM_PRELOAD_ORDER_H
#define GM_PRELOAD_ORDER_H

#include "allocator/reuse.h"
#include "preload/hook.h"

extern bool gm_order_on GM_HIDDEN;		/* set once, in gm_order_start */
extern struct gm_reuse_hot gm_order_hot GM_HIDDEN;

/* order.c. Called from gm_hooks_start when the allocator is caching; 0 or -errno. */
int gm_order_start(void);
void gm_order_forget(void);
struct gm_reuse *gm_order_reuse(void);

/* The stream's key: its handle with what makes it unique (context and thread of the pseudo
 * handles, a number where a handle is used again). @per_thread: the call came by a _ptsz/_ptds
 * name. Never 0. */
uint64_t gm_stream_key(CUstream stream, bool per_thread);

enum gm_work_flags {
	GM_WORK_LAUNCH = 1,		/* a kernel or graph: writes what the host sees while managed or
					 * mapped memory exists */
	GM_WORK_HOST = 2,		/* an asynchronous copy from or to host memory (or it may be) */
	GM_WORK_WAITED = 4,		/* the call returns when its work is done (a synchronous copy) */
	GM_WORK_KERNEL = 8		/* a kernel: nothing later overlaps what came before it */
};
void gm_work_slow(CUstream stream, bool per_thread, unsigned int flags);

/* Before every submission, in the work hooks. */
static inline void gm_work(CUstream stream, bool per_thread, unsigned int flags)
{
	if (gm_order_on)
		gm_work_slow(stream, per_thread, flags);
}

/* ---- told by the hooks (order.c) ---- */

/* @context was made or made current, or is a stream's (NULL: nothing is told). Two of them: the
 * pseudo handles have to be looked at each time. Cheap for one that it was told of before. */
void gm_order_context_used(CUcontext context);

/* @stream is about to be destroyed: its key is never used again. Before the real call. */
void gm_order_stream_ends(CUstream stream);

/* Was no other context than @context (NULL: the current one) ever given work? A green context is
 * its own here: a synchronise of it does not cover the primary's. */
bool gm_order_covers(CUcontext context);

/* Work may be submitted that no hook sees (order_unseen.c). @why is said under verbose. May be
 * called before gm_order_start, which asks gm_order_unseen and then leaves one-stream mode. */
void gm_order_unseen_work(const char *why);
bool gm_order_unseen(void);

/* The cache handed out memory again that work of the one stream may still be using: that stream's
 * next kernel may not overlap its predecessor (order_early.c). */
void gm_order_early_reuse(void);
struct gm_order_early { _Atomic(uint32_t) reuses, over; };
extern struct gm_order_early gm_order_early GM_HIDDEN;

/* Before a kernel: must it not overlap? 0: it may, else what gm_order_early_over is told when it
 * was launched. */
static inline uint32_t gm_order_early_now(void)
{
	uint32_t reuses = gm_order_early.reuses;

	return reuses == gm_order_early.over ? 0 : reuses;
}
void gm_order_early_over(CUstream stream, bool per_thread, uint32_t reuses);

/* ---- captures (order_capture.c) ---- */

/* Around the real begin and the real end of a capture, exclusively; then what came of it. */
void gm_capture_lock(void);
void gm_capture_begun(CUstream stream, bool per_thread, CUresult result);
void gm_capture_over(CUstream stream, bool per_thread, CUresult result);

bool gm_capturing(void);			/* does any stream of the process capture? */
/* In a capture the driver decides about the program's own malloc and free: a throw-away call in
 * the thread's own mode. 0: it would have been allowed; else the error, the capture invalidated as
 * the driver does. */
CUresult gm_capture_permission(void);

/* ---- host functions (order_host.c) ---- */

/* Is this thread running a host function, where the driver refuses every call (800)? */
bool gm_in_host_function(void);
void gm_host_function_given(void);		/* one was given to the driver */

/* ---- what the host may look at (order_host.c) ---- */

/* Is work pending, not yet covered by a synchronise or a completed event, that the host can
 * observe? Then a cudaFree is its barrier. A load or two when there is none. */
bool gm_host_sees_pending(void);
/* Managed or mapped host memory was made: launches are visible to the host from now on. */
void gm_host_sees_memory(void);
extern _Atomic(bool) gm_host_watches GM_HIDDEN;	/* it was */

/* Work with these enum gm_work_flags was submitted to @stream: after the real call, since a mark
 * made before could be covered by a synchronise that the work missed. */
void gm_host_submitted_slow(CUstream stream, bool per_thread);
static inline void gm_host_submitted(CUstream stream, bool per_thread, unsigned int flags)
{
	if (flags & GM_WORK_HOST || (flags & GM_WORK_LAUNCH && gm_host_watches))
		gm_host_submitted_slow(stream, per_thread);
}

/* What was submitted so far; then, after a wait that covered it: of everything, of one context's
 * streams, of one stream. */
uint64_t gm_host_now(void);
void gm_host_all_done(uint64_t now);
void gm_host_context_done(CUcontext context, uint64_t now);
void gm_host_stream_done(uint64_t key, uint64_t now);

/* What an event stands for. Around its real record (on @key's stream, or, with @key 0, in all of
 * @context), and around the program's look at it. A graph's launch may record events, too. */
struct gm_host_mark { uint64_t key, now; CUcontext context; };
struct gm_host_mark gm_host_event_recording(CUevent event, uint64_t key, CUcontext context);
void gm_host_event_recorded(CUevent event, const struct gm_host_mark *mark);
struct gm_host_mark gm_host_event_mark(CUevent event);
void gm_host_event_done(const struct gm_host_mark *mark);
void gm_host_event_forget(CUevent event);	/* it stands for nothing now */
void gm_host_events_forget(void);		/* none does */
void gm_host_forget(void);			/* all of it: in a forked child */
void gm_host_events_shared(void);		/* another process may record them, from now on */

/* ---- the program's own waiting ---- */

/* The wait that the driver's own cudaFree would do: everything submitted so far in the process'
 * contexts. No lock held. */
CUresult gm_order_wait_all(void);

/* A context's end: its tickets are complete, its streams are gone. After it ended. */
void gm_order_context_ended(uint32_t context);

#endif
