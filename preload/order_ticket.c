/*
 * order_ticket.c - tickets of reuse.h: CUDA events, one for each context that was given work.
 *
 * A ticket is the number of its first part; a part is one context's event. Events are made with
 * CU_EVENT_DISABLE_TIMING, kept per context, and used again; none is ever destroyed: a context
 * takes its own along, and after that their handles are not touched any more. The work of a
 * context that ended is complete.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: gm_ticket_forget.
 * Lock: one leaf, never held over a driver call.
 */
#include <errno.h>
#include <string.h>

#include "allocator/lock.h"
#include "allocator/rules.h"
#include "preload/order_internal.h"
#include "preload/slots.h"

#define CONTEXTS 256u			/* given work, and alive, at one time */

enum given_life { GIVEN_UNUSED, GIVEN_LIVE, GIVEN_ENDING, GIVEN_ENDED };

struct given {
	uint32_t id;
	uint32_t parts;			/* of tickets, and spare: it is used again at 0 */
	uint32_t spare;			/* parts whose events nobody uses */
	uint8_t life;
	CUcontext handle;
};

struct part {
	uint32_t next;			/* of the same ticket, or spare; the first word, as in slots.h */
	uint32_t given;			/* its context's index */
	CUevent event;
};

static struct gm_lock lock = { .rank = GM_RANK_LEAF };
static struct given givens[CONTEXTS];		/* lock */
static _Atomic(uint32_t) givens_used;
static bool overflowed;				/* a context has no room here: nothing is known */
static struct gm_slots parts = { .item_bytes = sizeof(struct part) };	/* lock */

/* The context this thread gave work to last, while no context has ended since. */
static _Atomic(uint32_t) ends = 1;
static __thread struct { uint32_t id, ends; } last_given;

static struct part *part_at(uint32_t id)
{
	return gm_slots_at(&parts, id);
}

/* ---- contexts ---------------------------------------------------------------------------------- */

bool gm_context_enter(uint32_t id)
{
	enum gm_context_role role;
	CUcontext handle, current = NULL;
	CUdevice device;

	handle = gm_context_handle(id, &role, &device);
	if (!handle || (!GM_REAL(cuCtxGetCurrent)(&current) && current == handle))
		return false;
	return !GM_REAL(cuCtxPushCurrent_v2)(handle);
}

void gm_context_leave(bool entered)
{
	CUcontext popped;

	if (entered)
		GM_REAL(cuCtxPopCurrent_v2)(&popped);
}

/* A context that nobody saw created was taken for its device's primary one, but may be a green one
 * of it: its events would cover a part of the work only. The driver tells. */
static CUcontext true_handle(uint32_t id)
{
	enum gm_context_role role = GM_CONTEXT_OWN;
	CUcontext primary = NULL, handle;
	CUdevice device = 0;
	unsigned int flags;
	int active = 0;

	handle = gm_context_handle(id, &role, &device);
	if (role != GM_CONTEXT_PRIMARY ||
	    GM_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) || !active ||
	    GM_REAL(cuDevicePrimaryCtxRetain)(&primary, device))
		return handle;
	if (GM_REAL(cuDevicePrimaryCtxRelease_v2)(device))
		GM_REAL(cuDevicePrimaryCtxRelease)(device);
	if (primary != handle)
		gm_context_seen(primary, device, GM_CONTEXT_PRIMARY);
	return primary;
}

static struct given *find_locked(uint32_t id)
{
	for (uint32_t i = 0; i < givens_used; i++)
		if (givens[i].id == id && givens[i].life != GIVEN_UNUSED)
			return &givens[i];
	return NULL;
}

static bool add_locked(uint32_t id, CUcontext handle)
{
	uint32_t at = 0;

	if (find_locked(id))
		return true;
	while (at < givens_used && (givens[at].life != GIVEN_UNUSED || givens[at].parts))
		at++;
	if (at == CONTEXTS || !handle) {
		overflowed = true;
		return false;
	}
	givens[at] = (struct given){ .id = id, .handle = handle, .life = GIVEN_LIVE };
	if (at == givens_used)
		givens_used++;
	return true;
}

bool gm_ticket_context(uint32_t id)
{
	uint32_t seen = ends;
	CUcontext handle;
	bool known = false, ok;

	if (last_given.id == id && last_given.ends == seen)
		return true;
	if (!gm_lock(&lock))
		return false;
	known = find_locked(id) != NULL;
	gm_unlock(&lock);
	if (!known) {
		handle = true_handle(id);
		if (!gm_lock(&lock))
			return false;
		ok = add_locked(id, handle);
		gm_unlock(&lock);
		if (!ok)
			return false;
	}
	last_given.id = id;
	last_given.ends = seen;
	return true;
}

bool gm_ticket_covered_by(CUcontext handle, uint32_t id)
{
	bool covered = (handle || id) && !gm_order_unseen() && !overflowed;

	if (!gm_lock(&lock))
		return false;
	for (uint32_t i = 0; i < givens_used; i++)
		if ((givens[i].life == GIVEN_LIVE || givens[i].life == GIVEN_ENDING) &&
		    !(handle ? givens[i].handle == handle : givens[i].id == id))
			covered = false;
	gm_unlock(&lock);
	return covered;
}

/* While it ends nothing of it is asked; where it did not end after all, one goes on. */
void gm_ticket_context_ending(uint32_t id, bool ending)
{
	struct given *given;

	if (!gm_lock(&lock))
		return;
	given = find_locked(id);
	if (given && given->life != GIVEN_ENDED)
		given->life = ending ? GIVEN_ENDING : GIVEN_LIVE;
	gm_unlock(&lock);
}

static void drop_spare_locked(struct given *given)
{
	while (given->spare) {
		uint32_t id = given->spare;

		given->spare = part_at(id)->next;
		gm_slots_drop(&parts, id);
		given->parts--;
	}
}

void gm_ticket_context_ended(uint32_t id)
{
	struct given *given;

	if (!gm_lock(&lock))
		return;
	given = find_locked(id);
	if (given) {
		drop_spare_locked(given);
		given->life = given->parts ? GIVEN_ENDED : GIVEN_UNUSED;
	}
	gm_unlock(&lock);
	ends++;
}

/* ---- parts: an event of a context each --------------------------------------------------------- */

static CUevent new_event(uint32_t context)
{
	bool entered = gm_context_enter(context);
	CUevent event = NULL;

	if (GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING))
		event = NULL;
	gm_context_leave(entered);
	return event;
}

/* A part for context number @at of the table; 0: there is no event for it now. */
static uint32_t new_part(uint32_t at)
{
	uint32_t id, context;
	CUevent event;

	if (!gm_lock(&lock))
		return 0;
	context = givens[at].id;
	id = givens[at].spare;
	if (id) {
		givens[at].spare = part_at(id)->next;
		part_at(id)->next = 0;
		gm_unlock(&lock);
		return id;
	}
	gm_unlock(&lock);
	event = new_event(context);
	if (!event || !gm_lock(&lock))
		return 0;
	if (givens[at].id == context && givens[at].life == GIVEN_LIVE)
		id = gm_slots_new(&parts);
	if (id) {
		*part_at(id) = (struct part){ .given = at, .event = event };
		givens[at].parts++;
	}
	gm_unlock(&lock);
	return id;
}

/* Give the parts of a ticket back. */
static void drop_parts(uint32_t id)
{
	if (!gm_lock(&lock))
		return;
	while (id) {
		uint32_t next = part_at(id)->next;
		struct given *given = &givens[part_at(id)->given];

		if (given->life == GIVEN_ENDED) {
			gm_slots_drop(&parts, id);
			if (!--given->parts)
				given->life = GIVEN_UNUSED;
		} else {
			part_at(id)->next = given->spare;
			given->spare = id;
		}
		id = next;
	}
	gm_unlock(&lock);
}

/* A copy of a part, and of what its context is. */
struct view { CUevent event; CUcontext handle; uint32_t next, context; uint8_t life; };

static bool look(uint32_t id, struct view *view)
{
	const struct given *given;

	if (!gm_lock(&lock))
		return false;
	given = &givens[part_at(id)->given];
	*view = (struct view){ part_at(id)->event, given->handle, part_at(id)->next, given->id,
			       given->life };
	gm_unlock(&lock);
	return true;
}

CUevent gm_ticket_event(uint32_t id)
{
	struct view view;
	uint32_t at, part;

	if (!gm_ticket_context(id) || !gm_lock(&lock))
		return NULL;
	for (at = 0; at < givens_used; at++)
		if (givens[at].id == id && givens[at].life == GIVEN_LIVE)
			break;
	gm_unlock(&lock);
	if (at == givens_used)
		return NULL;
	part = new_part(at);
	if (!part || !look(part, &view))
		return NULL;
	drop_parts(part);	/* asked of only, never recorded: whoever records it later may */
	return view.event;
}

/* ---- tickets ----------------------------------------------------------------------------------- */

/* A result of recording, as struct gm_reuse_ops wants it. */
static int record_error(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
	case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
	case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
		return -EAGAIN;
	default:
		return -EIO;
	}
}

/* Is it the context that is gone, rather than the call that failed? */
static bool is_gone(CUresult result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_DEINITIALIZED ||
	       result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
}

/* One more part for @ticket. 0; nothing to do where the context is gone or nobody's. */
static int record_part(uint32_t at, uint32_t *ticket)
{
	struct view view;
	uint32_t part;
	uint8_t life;
	int r;

	if (!gm_lock(&lock))
		return -EBUSY;
	life = givens[at].life;
	gm_unlock(&lock);
	if (life == GIVEN_UNUSED || life == GIVEN_ENDED)
		return 0;
	if (life == GIVEN_ENDING)
		return -EAGAIN;
	part = new_part(at);
	if (!part || !look(part, &view))
		return -ENOMEM;
	r = record_error(GM_REAL(cuCtxRecordEvent)(view.handle, view.event));
	if (r) {
		drop_parts(part);
		return r;
	}
	if (!gm_lock(&lock))
		return -EBUSY;
	part_at(part)->next = *ticket;
	*ticket = part;
	gm_unlock(&lock);
	return 0;
}

int gm_ticket_record_all(void *arg, uint64_t *ret_ticket)
{
	struct gm_relaxed relaxed;
	uint32_t ticket = 0;
	int r = 0;

	(void)arg;
	/* Where work is not seen it may be in any context. */
	if (gm_order_unseen())
		for (uint32_t id = 0; (id = gm_context_next(id)) != 0;)
			gm_ticket_context(id);
	if (overflowed)
		return -ENOSPC;
	relaxed = gm_relax();
	for (uint32_t at = 0; !r && at < givens_used; at++)
		if (gm_rule(GM_RULE_ALL_CONTEXTS) || givens[at].id == last_given.id)
			r = record_part(at, &ticket);
	gm_unrelax(&relaxed);
	if (r) {
		drop_parts(ticket);
		return r;
	}
	*ret_ticket = ticket;
	return 0;
}

int gm_ticket_record_context(uint32_t id, CUstream stream, uint64_t *ticket)
{
	uint32_t part = (uint32_t)*ticket, at;
	struct gm_relaxed relaxed;
	struct view view;
	int r;

	for (at = 0; !part && at < givens_used; at++) {
		if (givens[at].id == id && givens[at].life == GIVEN_LIVE) {
			part = new_part(at);
			break;
		}
	}
	if (!part || !look(part, &view))
		return -ENOMEM;
	relaxed = gm_relax();
	r = record_error(stream ? GM_REAL(cuEventRecord)(view.event, stream)
				: GM_REAL(cuCtxRecordEvent)(view.handle, view.event));
	gm_unrelax(&relaxed);
	if (r && !*ticket)
		drop_parts(part);
	if (!r)
		*ticket = part;
	return r;
}

int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	struct view view;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t part = (uint32_t)ticket; part && !result; part = view.next) {
		if (!look(part, &view)) {
			result = CUDA_ERROR_UNKNOWN;
			break;
		}
		if (view.life == GIVEN_ENDED || view.life == GIVEN_UNUSED)
			continue;
		result = per_thread ? GM_REAL(cuStreamWaitEvent_ptsz)(stream, view.event, 0)
				    : GM_REAL(cuStreamWaitEvent)(stream, view.event, 0);
	}
	gm_unrelax(&relaxed);
	return result ? -EIO : 0;
}

/* 1: complete; 0: not yet; -errno. */
static int query_part(const struct view *view)
{
	CUresult result;

	if (view->life == GIVEN_ENDED || view->life == GIVEN_UNUSED)
		return 1;
	if (view->life == GIVEN_ENDING)
		return -EAGAIN;
	result = GM_REAL(cuEventQuery)(view->event);
	if (!result || is_gone(result))
		return 1;
	return result == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

int gm_ticket_query(void *arg, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	struct view view;
	int r = 1;

	(void)arg;
	for (uint32_t part = (uint32_t)ticket; part && r == 1; part = view.next)
		r = look(part, &view) ? query_part(&view) : -EBUSY;
	gm_unrelax(&relaxed);
	return r;
}

static bool is_among(uint32_t context, const uint32_t *contexts, size_t count)
{
	if (!contexts)
		return true;
	for (size_t i = 0; i < count; i++)
		if (contexts[i] == context)
			return true;
	return false;
}

static int wait_part(const struct view *view)
{
	CUresult result;

	if (view->life != GIVEN_LIVE)
		return view->life == GIVEN_ENDING ? -EAGAIN : 0;
	result = GM_REAL(cuEventSynchronize)(view->event);
	return !result || is_gone(result) ? 0 : -EIO;
}

int gm_ticket_wait(void *arg, uint64_t ticket, const uint32_t *contexts, size_t count)
{
	struct gm_relaxed relaxed;
	struct view view;
	int r = 0;

	(void)arg;
	if (gm_in_host_function())
		return -EBUSY;
	relaxed = gm_relax();
	for (uint32_t part = (uint32_t)ticket; part && !r; part = view.next) {
		if (!look(part, &view))
			r = -EBUSY;
		else if (!is_among(view.context, contexts, count) && query_part(&view) != 1)
			r = -EBUSY;
	}
	for (uint32_t part = (uint32_t)ticket; part && !r; part = view.next) {
		if (!look(part, &view))
			r = -EBUSY;
		else if (is_among(view.context, contexts, count))
			r = wait_part(&view);
	}
	gm_unrelax(&relaxed);
	return r;
}

CUresult gm_ticket_synchronise(uint64_t ticket)
{
	struct gm_relaxed relaxed;
	struct view view;
	CUresult result;

	if (!look((uint32_t)ticket, &view) || view.life != GIVEN_LIVE)
		return CUDA_SUCCESS;
	relaxed = gm_relax();
	result = GM_REAL(cuEventSynchronize)(view.event);
	gm_unrelax(&relaxed);
	return is_gone(result) ? CUDA_SUCCESS : result;
}

void gm_ticket_drop(void *arg, uint64_t ticket)
{
	(void)arg;
	drop_parts((uint32_t)ticket);
}

void gm_ticket_forget(void)
{
	lock = (struct gm_lock){ .rank = GM_RANK_LEAF };
	memset(givens, 0, sizeof(givens));
	givens_used = 0;
	overflowed = false;
	gm_slots_forget(&parts);
	ends++;
}
