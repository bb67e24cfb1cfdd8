/*
 * context.h - which context and device a call works in, and what a context's end takes along.
 *
 * Contexts are found where they are used (cudart gets its own through private tables, where no
 * hook sees it): the driver says which one is current at every call that records something, and a
 * thread keeps the answer only for as long as the handle is the same and no context has ended. A
 * handle that comes back after its context ended is another context, with another id.
 *
 *   id       never used twice in a process; recorded as struct gm_segment.context
 *   domain   the device's number, as in the journal
 *
 * A context that no hook saw created is its device's primary context, or, when that is known to be
 * another, a green context: what is allocated there is the primary context's.
 *
 * Thread context: any, inside a hook. One lock (rank: before domain), not held across driver
 * calls. Signal context: none. Fork: a child calls gm_contexts_forget.
 */
#ifndef GM_PRELOAD_CONTEXT_H
#define GM_PRELOAD_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hook.h"

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

/* The one that is current to this thread. At most one driver call once it is known. */
struct gm_where gm_where_now(void);

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
};

void gm_context_ending(struct gm_ending *ending, CUcontext handle);
void gm_primary_ending(struct gm_ending *ending, CUdevice device);
void gm_context_ended(const struct gm_ending *ending, bool ended);

/* Some handle may mean another context from now on: cached answers are asked for again. */
void gm_context_handles_changed(void);

/* A context's record of a block ended: forget every way that leads to it. In record.c. */
struct gm_block;
void gm_block_gone(void *arg, uint32_t block, const struct gm_block *copy);

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

void gm_contexts_forget(void);

#endif
