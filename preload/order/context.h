/*
 * context.h - which context and device a call works in, and what a context's end takes along.
 *
 * Contexts are found where they are used (cudart gets its own through private tables, where no
 * hook sees it): the driver says which one is current at every call that records something, and a
 * thread keeps what it knows of a handle only until some context has ended. A handle that comes
 * back after its context ended is another context, with another id.
 *
 * The driver is not asked (that takes as long as the rest of a served call) while there is nothing
 * that the answer could be but the one context that there is, or none:
 *  - Every public way of making another context current is hooked, those of the graphics libraries
 *    too, and so is the question itself: a thread that made such a call, or got another answer than
 *    it remembers, asks again, and all threads do when a context was made or has ended.
 *  - The runtime has its private tables, and uses them: it makes a device's primary context current
 *    to a thread that had none (seen: after cudaDeviceReset, no public call does before the next
 *    cuMemAlloc). With more devices than one it could change from one to another unseen, so the
 *    driver is asked each time there, and as soon as a second context of any kind was met.
 *  - Where other private tables were handed out, or objects were bound past us, nothing is known.
 *  - In a host function, and when the process is exiting, the question is also whether the driver
 *    allows anything at all: it is asked once there may be one.
 *
 *   id       never used twice in a process; recorded as struct gm_segment.context
 *   domain   the device's number, as in the journal
 *
 * A context that no hook saw created is its device's primary context, or, when that is known to be
 * another, a green context: what is allocated there is the primary context's.
 *
 * Thread context: any, inside a hook. One lock (rank: before domain), not held across driver
 * calls. Signal context: none.
 */
#ifndef GM_PRELOAD_CONTEXT_H
#define GM_PRELOAD_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/driver/real.h"

#define GM_DOMAIN_UNKNOWN 0xffu

struct gm_where {
	uint32_t context;		/* id; 0: none */
	uint8_t domain;			/* GM_DOMAIN_UNKNOWN without a context */
};

enum gm_context_role {
	GM_CONTEXT_PRIMARY,
	GM_CONTEXT_OWN,			/* cuCtxCreate's */
	GM_CONTEXT_GREEN		/* works in its device's primary context */
};

/* What this thread knows. @certain: nothing but this can be current as long as gm_context_epoch has
 * this value. @moves: how often another context may have become current. */
struct gm_where_known {
	uint32_t certain, epoch, moves;
	struct gm_where where;
	CUcontext handle;
};
extern __thread struct gm_where_known gm_where_known GM_HIDDEN;
extern _Atomic(uint32_t) gm_context_epoch GM_HIDDEN;	/* never 0 */

/* The host looked a name up since it was last checked whether something is bound past us (order.h):
 * until that is known nothing is certain. */
extern _Atomic(bool) gm_name_resolved GM_HIDDEN;

/* The one that is current to this thread. At most one driver call once it is known. */
struct gm_where gm_where_ask(void);
static inline struct gm_where gm_where_now(void)
{
	if (__builtin_expect(gm_where_known.certain == gm_context_epoch && !gm_name_resolved, 1))
		return gm_where_known.where;
	return gm_where_ask();
}

/* Another context may have become current to this thread: told after the real call. */
static inline void gm_where_moved(void)
{
	gm_where_known.certain = 0;
	gm_where_known.moves++;
}

/* The device that this thread worked on last, 0 if it has not: no driver call, any context. */
uint8_t gm_where_last(void);

/* The domain of a device; records name, uuid and size at first sight. GM_DOMAIN_UNKNOWN for what
 * cannot be a device of ours. */
uint8_t gm_domain_of(CUdevice device);

/* How many devices the driver has; 0 unknown. */
int gm_device_count(void);

/* The driver said so: @handle is such a context of @device. */
void gm_context_seen(CUcontext handle, CUdevice device, enum gm_context_role role);

/*
 * The end of contexts, around the real call. From begin on the handle means a new context; then what
 * was recorded in the old one is forgotten, or, when @ended is false, begin is taken back.
 */
struct gm_ending {
	uint32_t slot;			/* 0: no context that we know */
	uint8_t domain;
	uint64_t op, tsc;
	uint64_t host_now;		/* gm_host_now() (host.h) before the real call */
	uint32_t stack;			/* of who ends it, as gm_stack_of_free says it */
};

/* @ending: @host_now and @stack are the caller's, the rest is set here. */
void gm_context_ending(struct gm_ending *ending, CUcontext handle);
void gm_primary_ending(struct gm_ending *ending, CUdevice device);
void gm_context_ended(const struct gm_ending *ending, bool ended);

/* Who keeps something by context is called when one ends: of one that is about to end, or did not
 * after all; of one that has ended, with the handle that it had (NULL: none was known). No lock is
 * held. They are called in the order in which they were added, at the start. */
struct gm_context_watcher {
	void (*ending)(uint32_t context, bool ending);
	void (*ended)(uint32_t context, CUcontext handle, const struct gm_ending *ending);
	void (*several)(void);		/* work is done in a second context for the first time */
};
void gm_context_watch(const struct gm_context_watcher *watcher);

/* @context was made or made current, or is a stream's (NULL: nothing is known). Two of them: the
 * pseudo handles have to be looked up each time. Cheap for one that was used before. */
void gm_context_used(CUcontext context);

/* Every hook that makes a context current is there: from now on the driver is not asked where there
 * is nothing that it could answer but the one context. */
void gm_context_trust(void);

/* Not any more: something makes contexts current unseen, or a call of the driver may be forbidden.
 * For good. Async-signal-safe. */
void gm_context_doubt(void);

/* Some handle may mean another context from now on, or what the answers rest on has changed: cached
 * ones are asked for again. Any thread, any context. */
void gm_context_handles_changed(void);

/* The only context that this process has ever had, as far as is known; 0: several, or none. */
uint32_t gm_context_only(void);

/* The same, where nobody has used another one either. */
uint32_t gm_context_only_used(void);

/* The id that work in context @handle counts as (a green one's: its primary context's); 0: no
 * context that was met. */
uint32_t gm_context_find(CUcontext handle);

/* The next living context's id after @id, 0: there is none. */
uint32_t gm_context_next(uint32_t id);

/* The handle of context @id; NULL: gone, or not known: a primary one that only its green ones were
 * met of. @ret_role, @ret_device: set when the context lives. */
CUcontext gm_context_handle(uint32_t id, enum gm_context_role *ret_role, CUdevice *ret_device);

/* Make context @id current to this thread, whatever is; and take that back. */
bool gm_context_enter(uint32_t id);
void gm_context_leave(bool entered);

#endif
