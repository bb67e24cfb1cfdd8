/*
 * order_internal.h - what order.c (streams, submissions), order_part.c (contexts, events) and
 * order_ticket.c share. See order.h.
 */
#ifndef GM_PRELOAD_ORDER_INTERNAL_H
#define GM_PRELOAD_ORDER_INTERNAL_H

#include "preload/order/capture.h"
#include "preload/order/context.h"
#include "preload/order/order.h"

/* ---- order_part.c: contexts that were given work, an event of one each ---- */

enum gm_given_life { GM_GIVEN_UNUSED, GM_GIVEN_LIVE, GM_GIVEN_ENDING, GM_GIVEN_ENDED };

/* How many places of contexts there are; UINT32_MAX: one had no room, nothing is known. */
uint32_t gm_given_count(void);
/* The context (id) at place @at, and whether it lives. */
uint32_t gm_given_at(uint32_t at, uint8_t *ret_life);
uint32_t gm_given_last(void);		/* the one that this thread gave work to last */

/* A copy of a part, and of what its context is. */
struct gm_part { CUevent event; CUcontext handle; uint32_t next, context; uint8_t life; };

/* A part for the context at place @at; 0: there is no event for it now. */
uint32_t gm_part_new(uint32_t at);
bool gm_part_look(uint32_t id, struct gm_part *view);
bool gm_parts_link(uint32_t id, uint32_t next);
void gm_parts_drop(uint32_t id);	/* and those linked behind it */

/* Context @id is given work from now on. False: there is no room to remember it. */
bool gm_ticket_context(uint32_t id);

/* ---- order_ticket.c ---- */

/* Of tickets, as struct gm_reuse_ops has them. */
int gm_ticket_record_all(void *arg, uint64_t *ret_ticket);
/* Of one stream (NULL: of all its context); @whole: of all of it where that stream takes none. That
 * is for whoever holds the order lock: no capture may begin meanwhile. */
int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket);
int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket);
int gm_ticket_query(void *arg, uint64_t ticket);
uint32_t gm_ticket_progress(void *arg, uint64_t ticket);
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

/* Make context @id current to this thread, whatever is; and take that back. */
bool gm_context_enter(uint32_t id);
void gm_context_leave(bool entered);

#endif
