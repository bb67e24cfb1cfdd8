/*
 * order_internal.h - what order.c (streams, submissions) and order_ticket.c (contexts, events)
 * share. See order.h.
 */
#ifndef GM_PRELOAD_ORDER_INTERNAL_H
#define GM_PRELOAD_ORDER_INTERNAL_H

#include "preload/capture.h"
#include "preload/context.h"
#include "preload/order.h"

/* Context @id is given work from now on. False: there is no room to remember it. */
bool gm_ticket_context(uint32_t id);

/* Of tickets, as struct gm_reuse_ops has them. */
int gm_ticket_record_all(void *arg, uint64_t *ret_ticket);
int gm_ticket_record_context(uint32_t id, CUstream stream, uint64_t *ticket);
int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket);
int gm_ticket_query(void *arg, uint64_t ticket);
int gm_ticket_wait(void *arg, uint64_t ticket, const uint32_t *contexts, size_t count);
CUresult gm_ticket_synchronise(uint64_t ticket);	/* of one context */
void gm_ticket_drop(void *arg, uint64_t ticket);

/* An event of context @id that nobody uses; NULL. Give it back with its context. */
CUevent gm_ticket_event(uint32_t id);
void gm_ticket_event_back(uint32_t id, CUevent event);

/* Is every context that was given work, and lives, this one? By its handle, or its id. */
bool gm_ticket_covered_by(CUcontext handle, uint32_t id);
void gm_ticket_context_ending(uint32_t id, bool ending);
void gm_ticket_context_ended(uint32_t id);

void gm_ticket_forget(void);

/* Make context @id current to this thread, whatever is; and take that back. */
bool gm_context_enter(uint32_t id);
void gm_context_leave(bool entered);

#endif
