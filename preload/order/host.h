/*
 * host.h - work whose progress the host can see, because it reads or writes host memory, and which
 * is not yet known to have ended. While there is any, a program may rely on cudaFree to wait for
 * it.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_HOST_H
#define GM_PRELOAD_HOST_H

#include "preload/order/order.h"

/* Called at the start: watches contexts, whose work ends with them. */
void gm_host_start(void);

/* Is there work that the host can observe and that no synchronise or completed event covers yet?
 * Then a cudaFree has to wait. Two loads when there is none. */
bool gm_host_check_pending(void);
extern _Atomic(uint64_t) gm_host_last GM_HIDDEN;	/* the number of the last submission */
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

/* The number of the last submission so far. After a wait that covered everything up to such a
 * number: of all streams, of one context's streams, of one stream. */
uint64_t gm_host_now(void);
void gm_host_all_done(uint64_t now);
void gm_host_context_done(CUcontext context, uint64_t now);
void gm_host_stream_done(uint64_t key, uint64_t now);

/* The work that an event covers. recording and recorded: around the real record (on @key's stream,
 * or, with @key 0, in all of @context). mark and done: around a call by which the program finds the
 * event complete. A graph's launch may record events, too. */
struct gm_host_mark { uint64_t key, now; CUcontext context; };
struct gm_host_mark gm_host_event_recording(CUevent event, uint64_t key, CUcontext context);
void gm_host_event_recorded(CUevent event, const struct gm_host_mark *mark);
struct gm_host_mark gm_host_event_mark(CUevent event);
void gm_host_event_done(CUevent event, const struct gm_host_mark *mark);
void gm_host_event_forget(CUevent event);	/* it covers no known work now */
void gm_host_events_forget(void);		/* no event does */
void gm_host_events_shared(void);		/* another process may record them, from now on */

#endif
