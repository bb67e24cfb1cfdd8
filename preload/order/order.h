/*
 * order.h - what the GPU was given, in which order, as far as reuse of memory depends on it.
 *
 * The hooks of work, order and identity (hook_work.c, hook_order.c) tell; reuse.h decides; this is
 * what lies between: streams' keys, tickets that are CUDA events, the contexts that were given
 * work, captures, host functions, and what the host may look at after a free.
 *
 * With allocator native, or where nothing can be recorded, gm_order_on is false and all of it
 * costs one load. Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_ORDER_H
#define GM_PRELOAD_ORDER_H

#include "allocator/reuse.h"
#include "preload/hooks/hook.h"

extern bool gm_order_on GM_HIDDEN;		/* set once, in gm_order_start */
extern struct gm_reuse_hot gm_order_hot GM_HIDDEN;

/* order.c. Called from gm_hooks_start when the allocator is caching; 0 or -errno. */
int gm_order_start(void);
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

/* A stream as the caller names it: never 0. */
static inline uint64_t gm_stream_name(CUstream stream, bool per_thread)
{
	uint64_t name = (uint64_t)(uintptr_t)stream;

	return name ? name : per_thread ? 2 : 1;	/* CU_STREAM_PER_THREAD, CU_STREAM_LEGACY */
}

#if GM_TEST_RULES
extern _Atomic(uint64_t) gm_test_works GM_HIDDEN;	/* submissions seen (selfcheck.c) */
#endif

/* Before every submission, in the work hooks. What the host may see of it (@flags) is noted after
 * the real call (order_host.c). Returns what gm_work_over is told after that. */
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

/* ---- told by the hooks (order.c) ---- */

/* @context was made or made current, or is a stream's (NULL: nothing is told). Two of them: the
 * pseudo handles have to be looked at each time. Cheap for one that it was told of before. */
void gm_order_context_used(CUcontext context);

/* The only context there ever was (id); 0: there were others, or none is known. */
uint32_t gm_order_only_context(void);

/* @stream is about to be destroyed: its key is never used again. Before the real call; then after
 * it, with its result. */
void gm_order_stream_ends(CUstream stream);
void gm_order_stream_ended(CUstream stream, CUresult result);
/* It ended with its context: the same of its key. */
void gm_order_stream_destroyed(CUstream stream);

/* Was no other context than @context (NULL: the current one) ever given work? A green context is
 * its own here: a synchronise of it does not cover the primary's. */
bool gm_order_covers(CUcontext context);

/* Work may be submitted that no hook sees (order_unseen.c). @why is said under verbose. May be
 * called before gm_order_start, which asks gm_order_unseen and then leaves single-stream mode. */
void gm_order_unseen_work(const char *why);
bool gm_order_unseen(void);

/* Are there objects that are bound past us (order_bypass.c)? Looked for at the start, and, after
 * the host looked a name up, before freed memory is handed out again early. No lock held. */
extern _Atomic(bool) gm_order_name_resolved GM_HIDDEN;
void gm_order_check_bindings_slow(void);
static inline void gm_order_check_bindings(void)
{
	if (gm_order_name_resolved)
		gm_order_check_bindings_slow();
}

/* What is given to @back from now on (a private stream of the current context; never "work") comes
 * after everything that was freed early so far. No host wait, no transition. */
void gm_order_behind_frees(CUstream back);

/* Does the driver have events of whole contexts (12.5)? Without, the cache frees as free:sync. */
bool gm_order_has_context_events(void);

/* The cache handed out memory again that work of @stream (a key), the one stream, may still be using:
 * its next kernel may not overlap its predecessor (hook_launch.c). */
void gm_order_early_reuse(uint64_t stream);
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

extern _Atomic(uint32_t) gm_captures GM_HIDDEN;

/* Does any stream of the process capture? */
static inline bool gm_capturing(void)
{
	return gm_captures != 0;
}

/* Before the real call that begins a capture, and after it; after the one that ends it, whatever
 * that returned. No context-wide event is recorded from the first to the last. */
void gm_capture_beginning(void);
void gm_capture_begun(CUstream stream, bool per_thread, CUresult result);
void gm_capture_over(CUstream stream, bool per_thread);

/* For order.c: a stream or a context (with its streams) is gone; look after what was remembered. */
void gm_capture_stream_destroyed(CUstream stream);
void gm_capture_context_ended(uint32_t context);
void gm_capture_recheck(void);

/* In a capture the driver decides about the program's own malloc and free: a throw-away call in
 * the thread's own mode, in the current context or, without one, in @context (id; 0: none). 0: it
 * would have been allowed; else the error, the capture invalidated as the driver does. */
CUresult gm_capture_permission(uint32_t context);

/* ---- host functions (order_host.c) ---- */

/* Is this thread running a host function, where the driver refuses every call (800)? */
bool gm_in_host_function(void);
/* The program is about to have the driver call one, or a node of these parameters does. */
void gm_host_function_added(void);
void gm_host_function_in(const CUgraphNodeParams *params);

/* ---- what the host may look at (order_host.c) ---- */

/* Is work pending, not yet covered by a synchronise or a completed event, that the host can
 * observe? Then a cudaFree is its barrier. Two loads when there is none. */
bool gm_host_check_pending(void);
extern _Atomic(uint64_t) gm_host_last GM_HIDDEN;	/* the last number given out (order_host.c) */
extern _Atomic(uint64_t) gm_host_ended GM_HIDDEN;	/* everything up to it has ended, everywhere */
static inline bool gm_host_sees_pending(void)
{
	return gm_host_last > gm_host_ended && gm_host_check_pending();
}
/* Managed or mapped host memory was made: launches are visible to the host from now on. */
void gm_host_memory_made(void);
extern _Atomic(bool) gm_host_shares_memory GM_HIDDEN;	/* it was */

/* Work with these enum gm_work_flags was submitted to @stream: after the real call, since a mark
 * made before could be covered by a synchronise that the work missed. */
void gm_host_submitted_slow(CUstream stream, bool per_thread);
static inline void gm_host_submitted(CUstream stream, bool per_thread, unsigned int flags)
{
	if (flags & GM_WORK_HOST || (flags & GM_WORK_LAUNCH && gm_host_shares_memory))
		gm_host_submitted_slow(stream, per_thread);
}

/* What was submitted so far; then, after a wait that covered it: of everything, of one context's
 * streams, of one stream. */
uint64_t gm_host_now(void);
void gm_host_all_done(uint64_t now);
void gm_host_context_done(CUcontext context, uint64_t now);
void gm_host_stream_done(uint64_t key, uint64_t now);
void gm_host_context_ended(CUcontext context, uint64_t now);	/* it ended, with its streams */

/* What an event stands for. Around its real record (on @key's stream, or, with @key 0, in all of
 * @context), and around the program's look at it. A graph's launch may record events, too. */
struct gm_host_mark { uint64_t key, now; CUcontext context; };
struct gm_host_mark gm_host_event_recording(CUevent event, uint64_t key, CUcontext context);
void gm_host_event_recorded(CUevent event, const struct gm_host_mark *mark);
struct gm_host_mark gm_host_event_mark(CUevent event);
void gm_host_event_done(CUevent event, const struct gm_host_mark *mark);
void gm_host_event_forget(CUevent event);	/* it stands for nothing now */
void gm_host_events_forget(void);		/* none does */
void gm_host_events_shared(void);		/* another process may record them, from now on */

/* ---- the program's own waiting ---- */

/* The wait that the driver's own cudaFree would do: everything submitted so far in the context of
 * the memory, or the current one (0). No lock held. @ret_all: no work at all is pending that was
 * submitted before; without it what is freed still has to wait for its epoch. */
CUresult gm_order_wait_context(uint32_t context, bool *ret_all);

/* An event after everything submitted so far in every context that was given work; false: not now.
 * Is it complete (or its contexts gone)? It may cover anybody's work: never waited for. */
bool gm_order_ticket(uint64_t *ret_ticket);
bool gm_order_ticket_query(uint64_t ticket);
void gm_order_ticket_drop(uint64_t ticket);
/* What is given to @own (a private stream) from now on comes after all of that. */
bool gm_order_behind_all(CUstream own);

/* A context is about to end (or did not, after all). Then its end: its tickets are complete, its
 * streams are gone. Called by context.c. */
void gm_order_context_ending(uint32_t context, bool ending);
void gm_order_context_ended(uint32_t context);

#endif
