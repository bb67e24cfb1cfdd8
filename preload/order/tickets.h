/*
 * tickets.h - tickets of reuse.h: CUDA events, one of each context that was given work.
 *
 * A ticket is the address of its first part, an event of one context each; 0: nothing was ever
 * submitted. The functions with an @arg are those of struct gm_reuse_ops, which ignore it.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_TICKETS_H
#define GM_PRELOAD_TICKETS_H

#include "preload/order/context.h"

/* Context @id is given work from now on. False: there is no room to remember it. */
bool gm_ticket_context(uint32_t id);

/* Is every context that was given work, and lives, this one? By its handle, or its id. */
bool gm_ticket_covered_by(CUcontext handle, uint32_t id);

/* The context is about to end, or did not after all: meanwhile nothing of it is asked. It has ended:
 * its parts of tickets are complete. */
void gm_ticket_context_ending(uint32_t id, bool ending);
void gm_ticket_context_ended(uint32_t id);

/* An event after everything submitted so far in every context that was given work: 0; -EAGAIN where a
 * capture forbids it; -errno. */
int gm_ticket_record_all(void *arg, uint64_t *ret_ticket);

/* The same of one stream (NULL: of all its context); *ticket 0: a new one, else that one recorded
 * anew. @whole: of all the context where that stream takes none. That is for whoever holds the order
 * lock, since no capture may begin meanwhile. */
int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket);

/* Later work of @stream waits for @ticket, on the device. */
int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket);

/* As struct gm_reuse_ops has them. */
int gm_ticket_query(void *arg, uint64_t ticket);
uint32_t gm_ticket_progress(void *arg, uint64_t ticket);
int gm_ticket_wait(void *arg, uint64_t ticket, const uint32_t *contexts, size_t count);
void gm_ticket_drop(void *arg, uint64_t ticket);

/* The host waits for a ticket of one context. */
CUresult gm_ticket_synchronise(uint64_t ticket);

/* An event of context @id that may be asked about, never recorded; NULL: there is none. */
CUevent gm_ticket_event(uint32_t id);

#endif
