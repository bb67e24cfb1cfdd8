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
 *    too, and so is the question itself: a thread that made such a call, or was told otherwise than
 *    it remembers, asks again, and all threads do when a context was made or has ended.
 *  - The runtime has its private tables, and uses them: it makes a device's primary context current
 *    to a thread that had none (seen: after cudaDeviceReset, no public call does before the next
 *    cuMemAlloc). With more devices than one it could change from one to another unseen, so the driver is
 *    asked each time there; and as soon as a second context of any kind was met.
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

#include "preload/hooks/hook.h"

extern _Atomic(bool) gm_order_name_resolved GM_HIDDEN;	/* order.h */

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

/* What this thread knows. @settled: nothing but this can be current as long as gm_context_epoch is
 * the same. @moves: how often it may have been otherwise since. */
struct gm_where_known {
	uint32_t settled, epoch, moves;
	struct gm_where where;
	CUcontext handle;
};
extern __thread struct gm_where_known gm_where_known GM_HIDDEN;
extern _Atomic(uint32_t) gm_context_epoch GM_HIDDEN;	/* never 0 */

/* The one that is current to this thread. At most one driver call once it is known. */
struct gm_where gm_where_ask(void);
static inline struct gm_where gm_where_now(void)
{
	if (__builtin_expect(gm_where_known.settled == gm_context_epoch && !gm_order_name_resolved, 1))
		return gm_where_known.where;
	return gm_where_ask();
}

/* Another context may have become current to this thread: told after the real call. */
static inline void gm_where_moved(void)
{
	gm_where_known.settled = 0;
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

/* The end of contexts, around the real call: from begin on the handle means a new context; end
 * forgets what was recorded in the old one, or, when @ended is false, takes that back. */
struct gm_ending {
	uint32_t slot;			/* 0: no context that we know */
	uint8_t domain;
	uint64_t op, tsc;
	uint64_t host_now;		/* gm_host_now() before the real call */
	uint32_t stack;			/* of who ends it, as gm_stack_of_free says it */
};

void gm_context_ending(struct gm_ending *ending, CUcontext handle);
void gm_primary_ending(struct gm_ending *ending, CUdevice device);
void gm_context_ended(const struct gm_ending *ending, bool ended);

/* Some handle may mean another context from now on, or what the answers rest on has changed: cached
 * ones are asked for again. Any thread, any context. */
void gm_context_handles_changed(void);

/* A context's record of a block ended: forget every way that leads to it. In record.c. */
struct gm_block;
void gm_block_ended(void *arg, uint32_t block, const struct gm_block *copy);

/* The only context that this process has ever had, as far as is known; 0: several, or none. */
uint32_t gm_context_only(void);

/* The id that work in context @handle counts as (a green one's: its primary context's); 0: no
 * context that was met. */
uint32_t gm_context_find(CUcontext handle);

/* The next living context's id after @id, 0: there is none. */
uint32_t gm_context_next(uint32_t id);

/* The handle of context @id; NULL: gone, or not known: a primary one that only its green ones were
 * met of. @ret_role, @ret_device: set when the context lives. */
CUcontext gm_context_handle(uint32_t id, enum gm_context_role *ret_role, CUdevice *ret_device);

#endif
