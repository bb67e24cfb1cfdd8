/*
 * context.h - in which context and on which device a call works, and what ends with a context.
 *
 * Contexts are found where they are used, because cudart gets its own through private tables, where no hook sees it.
 * The driver is asked which context is current at every call that records something. A thread keeps what it knows of a
 * handle only until any context has ended. A handle that comes back after its context ended is a new context, with a
 * new id.
 *
 * Asking the driver takes as long as the rest of a served call. So it is not asked while the answer can only be the one
 * context that exists, or none:
 *  - Every public way to make another context current is hooked, including those of the graphics libraries and the
 *    query itself. A thread asks again after such a call, or if it got another answer than it remembers. All threads
 *    ask again when a context was made or has ended.
 *  - The runtime uses private tables of the driver to make a device's primary context current to a thread that had none
 *    (seen: after cudaDeviceReset, no public call does so before the next cuMemAlloc). With several devices the runtime
 *    could change between them unseen. So with several devices, and once a second context of any kind was seen, the
 *    driver is asked at every call.
 *  - The driver is also asked at every call once other private tables were handed out, or objects call the driver past
 *    us.
 *  - It is also asked once there may be a host function, and while the process exits: the driver may then allow no call
 *    at all, and the query shows that.
 *
 *   id       never used twice in a process; recorded as struct gm_segment.context
 *   domain   the device's number, as in the journal
 *
 * A context that no hook saw created is its device's primary context. If that is known to be another one, it is a green
 * context: its memory belongs to the primary context.
 *
 * Thread context: any, inside a hook. One lock (rank: before domain), not held across driver calls. Signal context:
 * none.
 */
#ifndef GM_PRELOAD_CONTEXT_H
#define GM_PRELOAD_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/driver/real.h"

#define GM_DOMAIN_UNKNOWN 0xffu

struct gm_where {
	uint32_t context;		/* id; 0: none */
	uint8_t domain;			/* GM_DOMAIN_UNKNOWN if there is no context */
};

enum gm_context_role {
	GM_CONTEXT_PRIMARY,
	GM_CONTEXT_OWN,			/* made by cuCtxCreate */
	GM_CONTEXT_GREEN		/* works in its device's primary context */
};

/* What this thread knows. @certain: while gm_context_epoch has this value, only this context can be current. @moves:
 * how often another context may have become current. */
struct gm_where_known {
	uint32_t certain, epoch, moves;
	struct gm_where where;
	CUcontext handle;
};
extern __thread struct gm_where_known gm_where_known GM_HIDDEN;
extern _Atomic(uint32_t) gm_context_epoch GM_HIDDEN;	/* never 0 */

/* The program has looked a name up since the last check for objects that call the driver past us (order.h). Until the
 * next check no thread is certain of its context. */
extern _Atomic(bool) gm_name_resolved GM_HIDDEN;

/* Return the context that is current to this thread. At most one driver call, if the context is known. */
struct gm_where gm_where_ask(void);
static inline struct gm_where gm_where_now(void)
{
	if (__builtin_expect(gm_where_known.certain == gm_context_epoch && !gm_name_resolved, 1))
		return gm_where_known.where;
	return gm_where_ask();
}

/* Another context may have become current to this thread. Called after the real call. */
static inline void gm_where_moved(void)
{
	gm_where_known.certain = 0;
	gm_where_known.moves++;
}

/* Return the device on which this thread worked last; 0 if there is none. No driver call; safe in signal context. */
uint8_t gm_where_last(void);

/* Return the domain of a device; the first time, record its name, uuid and size. GM_DOMAIN_UNKNOWN: @device cannot be a
 * device's number. */
uint8_t gm_domain_of(CUdevice device);

/* Return how many devices the driver has; 0: not known. */
int gm_device_count(void);

/* The driver has shown that @handle is a context of @device with that role. */
void gm_context_seen(CUcontext handle, CUdevice device, enum gm_context_role role);
void gm_context_seen_green(CUcontext handle);	/* the driver is asked for the device */

/*
 * The end of contexts: call these around the real call. From gm_context_ending or gm_primary_ending on, the handle
 * means a new context. gm_context_ended then ends what was recorded in the old context, or, if @ended is false, undoes
 * the first call.
 */
struct gm_ending {
	uint32_t slot;			/* in the table of contexts; 0: the context is not known */
	uint8_t domain;
	uint64_t op, tsc;
	uint64_t host_now;		/* gm_host_now() (host.h) before the real call */
	uint32_t stack;			/* of the code that ends the context, as from gm_stack_of_free */
};

/* The caller sets @host_now and @stack of @ending; the other members are set here. */
void gm_context_ending(struct gm_ending *ending, CUcontext handle);
void gm_primary_ending(struct gm_ending *ending, CUdevice device);
void gm_context_ended(const struct gm_ending *ending, bool ended);

/* Callbacks for code that keeps something for each context. ending: the context is about to end (or, @ending false, did
 * not end). ended: it has ended; @handle is what it had (NULL: not known). Called with no lock held, in the order in
 * which the watchers were added at the start. */
struct gm_context_watcher {
	void (*ending)(uint32_t context, bool ending);
	void (*ended)(uint32_t context, CUcontext handle, const struct gm_ending *ending);
	void (*several)(void);		/* a second context is used for the first time */
};
void gm_context_watch(const struct gm_context_watcher *watcher);

/* @context was made, was made current, or belongs to a stream (NULL: not known). Once two contexts were used, default
 * streams have to be looked up at every call. Cheap for the context that was used first. */
void gm_context_used(CUcontext context);

/* The program got our hook for every call that makes a context current. From now on the driver is not asked if it could
 * only answer with the one context. */
void gm_context_trust(void);

/* Undo that until the process ends, because something may make contexts current unseen, or the driver may forbid a
 * call. Async-signal-safe. */
void gm_context_doubt(void);

/* Some handle may mean another context from now on, or the conditions above have changed: make every thread ask the
 * driver again. Any thread; safe in signal context. */
void gm_context_handles_changed(void);

/* Return the only context that this process has had, as far as is known; 0: none, or several. */
uint32_t gm_context_only(void);

/* The same, but also 0 if a second context was used (gm_context_used). */
uint32_t gm_context_only_used(void);

/* Return the id of the context to which work in @handle belongs (for a green context: its primary context); 0: @handle
 * is not known. */
uint32_t gm_context_find(CUcontext handle);

/* The same, but ask the driver about an unknown handle, because no call may have worked in the context yet. */
uint32_t gm_context_meet(CUcontext handle);

/* Return the living context with the next higher id than @id; 0: there is none. */
uint32_t gm_context_next(uint32_t id);

/* Return the handle of context @id; NULL: it has ended, or its handle is not known, because only green contexts of this
 * primary context were seen. *@ret_role and *@ret_device are set if the context lives. */
CUcontext gm_context_handle(uint32_t id, enum gm_context_role *ret_role, CUdevice *ret_device);

/* The same, but ask the driver for an unknown handle. Objects that outlast a call are made in this context, because the
 * current one may be a green context, which can end earlier. */
CUcontext gm_context_owner(uint32_t id);

/* enter: make context @id current to this thread, if it is not. leave: undo that; takes the result of enter. */
bool gm_context_enter(uint32_t id);
void gm_context_leave(bool entered);

#endif
