/*
 * host.h - work that is not known to have ended, and whose progress the host can see, because the work reads or writes
 * host memory. While such work is pending, a program may rely on cudaFree to wait for it.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_HOST_H
#define GM_PRELOAD_HOST_H

#include "preload/order/order.h"

/* Start: watch contexts, because their work ends with them. */
void gm_host_start(void);

/* Is work pending that the host can see, and that no synchronise or completed event covers? Then a cudaFree has to
 * wait. Costs two loads if there is none. */
bool gm_host_check_pending(void);
extern _Atomic(uint64_t) gm_host_last GM_HIDDEN;	/* the number of the last submission */
extern _Atomic(uint64_t) gm_host_ended GM_HIDDEN;	/* all submissions up to this number have ended */
static inline bool gm_host_sees_pending(void)
{
	return gm_host_last > gm_host_ended && gm_host_check_pending();
}
/* Managed or mapped host memory was made: the host can see what launches write from now on. */
void gm_host_memory_made(void);
extern _Atomic(bool) gm_host_shares_memory GM_HIDDEN;	/* such memory was made */

/* Work with these enum gm_work_flags was submitted to @stream. Call this after the real call: a number taken before it
 * could be covered by a synchronise that misses the work. */
void gm_host_submitted_slow(CUstream stream, bool per_thread);
static inline void gm_host_submitted(CUstream stream, bool per_thread, unsigned int flags)
{
	if (flags & GM_WORK_HOST || (flags & GM_WORK_LAUNCH && gm_host_shares_memory))
		gm_host_submitted_slow(stream, per_thread);
}

/* now: return the number of the last submission. done: a wait has covered all work up to that number, of all streams,
 * of one context's streams, or of one stream. */
uint64_t gm_host_now(void);
void gm_host_all_done(uint64_t now);
void gm_host_context_done(CUcontext context, uint64_t now);
void gm_host_stream_done(uint64_t key, uint64_t now);

/* The work that an event covers. recording and recorded: call these around the real record, on the stream @key, or,
 * with @key 0, in all of @context. mark and done: call these around a call by which the program finds the event
 * complete. The launch of a graph may also record events. */
struct gm_host_mark { uint64_t key, now; CUcontext context; };
struct gm_host_mark gm_host_event_recording(CUevent event, uint64_t key, CUcontext context);
void gm_host_event_recorded(CUevent event, const struct gm_host_mark *mark);
struct gm_host_mark gm_host_event_mark(CUevent event);
void gm_host_event_done(CUevent event, const struct gm_host_mark *mark);
void gm_host_event_forget(CUevent event);	/* it covers no known work any more */
void gm_host_events_forget(void);		/* no event covers known work any more */
void gm_host_events_shared(void);		/* from now on another process may record events */

#endif
