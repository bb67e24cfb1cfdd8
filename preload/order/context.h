/*
 * context.h - in which context and on which device a call works, and what ends with a context.
 *
 * Contexts are found where they are used (cudart gets its own through private tables, where no
 * hook sees it): the driver says which one is current at every call that records something, and a
 * thread keeps what it knows of a handle only until some context has ended. A handle that comes
 * back after its context ended is another context, with another id.
 *
 * The driver is not asked (that takes as long as the rest of a served call) while the answer can only be the one
 * context that there is, or none:
 *  - Every public way of making another context current is hooked, those of the graphics libraries
 *    too, and so is the query itself: a thread that made such a call, or got another answer than
 *    it remembers, asks again, and all threads do when a context was made or has ended.
 *  - The runtime uses private tables of the driver: by them it makes a device's primary context current
 *    to a thread that had none (seen: after cudaDeviceReset, no public call does so before the next
 *    cuMemAlloc). With several devices it could change from one to another unseen, so that the
 *    driver is asked each time there, and as soon as a second context of any kind was met.
 *  - Where other private tables were handed out, or objects call the driver past us, the driver is always asked.
 *  - In a host function, and while the process exits, the driver may allow no call at all: once there may be such a
 *    function, it is asked as well.
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

/* What this thread knows. @certain: as long as gm_context_epoch has this value, only this context
 * can be current. @moves: how often another context may have become current. */
struct gm_where_known {
	uint32_t certain, epoch, moves;
	struct gm_where where;
	CUcontext handle;
};
extern __thread struct gm_where_known gm_where_known GM_HIDDEN;
extern _Atomic(uint32_t) gm_context_epoch GM_HIDDEN;	/* never 0 */

/* The program has looked a name up since the last check for objects that call the driver past us
 * (order.h): nothing is certain before the next one. */
extern _Atomic(bool) gm_name_resolved GM_HIDDEN;

/* The context that is current to this thread. At most one driver call, once the context is
 * known. */
struct gm_where gm_where_ask(void);
static inline struct gm_where gm_where_now(void)
{
	if (__builtin_expect(gm_where_known.certain == gm_context_epoch && !gm_name_resolved, 1))
		return gm_where_known.where;
	return gm_where_ask();
}

/* Another context may have become current to this thread: called after the real call. */
static inline void gm_where_moved(void)
{
	gm_where_known.certain = 0;
	gm_where_known.moves++;
}

/* The device on which this thread worked last; 0 if it has not. No driver call; signal context,
 * too. */
uint8_t gm_where_last(void);

/* The domain of a device; records its name, uuid and size the first time. GM_DOMAIN_UNKNOWN for a
 * number that cannot be a device's. */
uint8_t gm_domain_of(CUdevice device);

/* How many devices the driver has; 0 unknown. */
int gm_device_count(void);

/* The driver has told that @handle is a context of @device with that role. */
void gm_context_seen(CUcontext handle, CUdevice device, enum gm_context_role role);
void gm_context_seen_green(CUcontext handle);	/* the device is the handle's */

/*
 * The end of contexts, around the real call. From gm_context_ending or gm_primary_ending on, the
 * handle means a new context. Then gm_context_ended ends what was recorded in the old one, or
 * undoes that when @ended is false.
 */
struct gm_ending {
	uint32_t slot;			/* in the table of contexts; 0: the context is not known */
	uint8_t domain;
	uint64_t op, tsc;
	uint64_t host_now;		/* gm_host_now() (host.h) before the real call */
	uint32_t stack;			/* of the code that ends it, as from gm_stack_of_free */
};

/* @ending: @host_now and @stack are the caller's, the rest is set here. */
void gm_context_ending(struct gm_ending *ending, CUcontext handle);
void gm_primary_ending(struct gm_ending *ending, CUdevice device);
void gm_context_ended(const struct gm_ending *ending, bool ended);

/* Callbacks for code that keeps something by context. ending: the context is about to end (or,
 * @ending false, did not); ended: it has ended, with the handle that it had (NULL: none was known).
 * No lock is held. Watchers are called in the order in which they were added, at the start. */
struct gm_context_watcher {
	void (*ending)(uint32_t context, bool ending);
	void (*ended)(uint32_t context, CUcontext handle, const struct gm_ending *ending);
	void (*several)(void);		/* work is done in a second context for the first time */
};
void gm_context_watch(const struct gm_context_watcher *watcher);

/* @context was made or made current, or is a stream's (NULL: not known). Once there are two, the
 * pseudo handles of streams have to be looked up each time. Cheap for a context that was used
 * before. */
void gm_context_used(CUcontext context);

/* All hooks of calls that make a context current are handed out: from now on the driver is not
 * asked where it could only answer with the one context. */
void gm_context_trust(void);

/* The reverse, until the process ends: something may make contexts current unseen, or a call of the
 * driver may be forbidden. Async-signal-safe. */
void gm_context_doubt(void);

/* Some handle may mean another context from now on, or the conditions above have changed: every
 * thread asks the driver again. Any thread, signal context, too. */
void gm_context_handles_changed(void);

/* The only context that this process has ever had, as far as is known; 0: there were several, or
 * none. */
uint32_t gm_context_only(void);

/* The same, if no other context was used either (gm_context_used). */
uint32_t gm_context_only_used(void);

/* The id of the context in which work in @handle counts (for a green context: its primary context);
 * 0: @handle is not known. */
uint32_t gm_context_find(CUcontext handle);

/* The same, and the driver is asked about a handle that is not known: no call may have worked in the
 * context yet. */
uint32_t gm_context_meet(CUcontext handle);

/* The next living context's id after @id, 0: there is none. */
uint32_t gm_context_next(uint32_t id);

/* The handle of context @id; NULL: it has ended, or its handle is not known (a primary context of
 * which only green contexts were seen). @ret_role, @ret_device: set when the context lives. */
CUcontext gm_context_handle(uint32_t id, enum gm_context_role *ret_role, CUdevice *ret_device);

/* The same, and the driver is asked for a handle that is not known. What lasts longer than a call is made in this
 * context: the one that is current may be a green one, which can end before. */
CUcontext gm_context_owner(uint32_t id);

/* Make context @id current to this thread, if it is not. Returns whether gm_context_leave, which is
 * given the result, has something to undo. */
bool gm_context_enter(uint32_t id);
void gm_context_leave(bool entered);

#endif
