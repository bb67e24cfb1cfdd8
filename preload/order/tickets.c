/*
 * tickets.c - events of the contexts that were given work (see order.h).
 *
 * Events are made with CU_EVENT_DISABLE_TIMING, kept per context, and used again; none is ever
 * destroyed: a context takes its own along, and after that their handles are not touched any more.
 * The work of a context that ended is complete. A stream that is destroyed goes on with its work,
 * which the event of its context covers as any other (test/conformance, "destroyed streams").
 *
 * A part is never unmapped, and its context's entry is not used again while it has parts: the
 * holder of a ticket reads both without a lock.
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one leaf, never held over a driver call.
 */
#include <errno.h>

#include "allocator/lock.h"
#include "allocator/map.h"
#include "allocator/rules.h"
#include "preload/order/order.h"

#define CONTEXTS 256u			/* given work, and alive, at one time */
#define SLAB_BYTES 16384u		/* of parts */

enum life { LIFE_UNUSED, LIFE_LIVE, LIFE_ENDING, LIFE_ENDED };

struct worked {				/* a context that was given work */
	_Atomic(uint8_t) life;
	uint32_t id;
	uint32_t parts;			/* of tickets, and spare: it is used again at 0; lock: lock */
	struct part *spare;		/* whose events nobody uses; lock: lock */
	CUcontext handle;
};

struct part {
	struct part *next;		/* of the same ticket, or spare */
	struct worked *of;
	CUevent event;
};

static struct gm_lock lock = { .rank = GM_RANK_LEAF };
static struct worked contexts[CONTEXTS];	/* lock: lock */
static _Atomic(uint32_t) contexts_used;
static _Atomic(bool) overflowed;	/* a context has no room here: nothing is known */
static struct part *unused;		/* parts that are no context's; lock: lock */

/* The context this thread gave work to last, while no context has ended since. */
static _Atomic(uint32_t) ends = 1;
static __thread struct { uint32_t id, ends; const struct worked *of; } last;

static struct part *part_of(uint64_t ticket)
{
	return (struct part *)(uintptr_t)ticket;
}

static uint64_t ticket_of(const struct part *part)
{
	return (uint64_t)(uintptr_t)part;
}

/* ---- contexts ---------------------------------------------------------------------------------- */

/* A context that nobody saw created was taken for its device's primary one, but may be a green one
 * of it: its events would cover a part of the work only. The driver knows. */
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

static struct worked *find_locked(uint32_t id)
{
	for (uint32_t i = 0; i < contexts_used; i++)
		if (contexts[i].id == id && contexts[i].life != LIFE_UNUSED)
			return &contexts[i];
	return NULL;
}

static struct worked *add_locked(uint32_t id, CUcontext handle)
{
	struct worked *found = find_locked(id);
	uint32_t at = 0;

	if (found)
		return found;
	while (at < contexts_used && (contexts[at].life != LIFE_UNUSED || contexts[at].parts))
		at++;
	if (at == CONTEXTS || !handle) {
		overflowed = true;
		return NULL;
	}
	contexts[at] = (struct worked){ .id = id, .handle = handle, .life = LIFE_LIVE };
	if (at == contexts_used)
		contexts_used++;
	return &contexts[at];
}

bool gm_ticket_context(uint32_t id)
{
	uint32_t seen = ends;
	struct worked *of;
	CUcontext handle;

	if (last.id == id && last.ends == seen)
		return true;
	if (!gm_lock(&lock))
		return false;
	of = find_locked(id);
	gm_unlock(&lock);
	if (!of) {
		handle = true_handle(id);
		if (!gm_lock(&lock))
			return false;
		of = add_locked(id, handle);
		gm_unlock(&lock);
		if (!of)
			return false;
	}
	last.id = id;
	last.ends = seen;
	last.of = of;
	return true;
}

bool gm_ticket_covered_by(CUcontext handle, uint32_t id)
{
	bool covered = (handle || id) && !gm_unseen();

	if (!gm_lock(&lock))
		return false;
	covered = covered && !overflowed;
	for (uint32_t i = 0; i < contexts_used; i++)
		if ((contexts[i].life == LIFE_LIVE || contexts[i].life == LIFE_ENDING) &&
		    !(handle ? contexts[i].handle == handle : contexts[i].id == id))
			covered = false;
	gm_unlock(&lock);
	return covered;
}

void gm_ticket_context_ending(uint32_t id, bool ending)
{
	struct worked *of;

	if (!gm_lock(&lock))
		return;
	of = find_locked(id);
	if (of && of->life != LIFE_ENDED)
		of->life = ending ? LIFE_ENDING : LIFE_LIVE;
	gm_unlock(&lock);
}

static void unuse_locked(struct part *part)
{
	part->of->parts--;
	part->next = unused;
	unused = part;
}

void gm_ticket_context_ended(uint32_t id)
{
	struct worked *of;

	if (!gm_lock(&lock))
		return;
	of = find_locked(id);
	if (of) {
		while (of->spare) {
			struct part *part = of->spare;

			of->spare = part->next;
			unuse_locked(part);
		}
		of->life = of->parts ? LIFE_ENDED : LIFE_UNUSED;
	}
	gm_unlock(&lock);
	ends++;
}

/* ---- parts ------------------------------------------------------------------------------------- */

static struct part *unused_part_locked(void)
{
	struct part *part = unused;

	if (!part) {
		part = gm_map_pages(SLAB_BYTES);
		if (!part)
			return NULL;
		for (unsigned int i = 1; i < SLAB_BYTES / sizeof(*part); i++)
			part[i - 1].next = &part[i];
	}
	unused = part->next;
	return part;
}

/* A part with a new event. The context may have ended while that was made. */
static struct part *make_part(struct worked *of, uint32_t context)
{
	struct part *part = NULL;
	bool entered = gm_context_enter(context);
	CUevent event = NULL;

	if (GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING))
		event = NULL;
	gm_context_leave(entered);
	if (!event || !gm_lock(&lock))
		return NULL;
	if (of->id == context && of->life == LIFE_LIVE)
		part = unused_part_locked();
	if (part) {
		*part = (struct part){ .of = of, .event = event };
		of->parts++;
	}
	gm_unlock(&lock);
	return part;
}

/* A part of @of, whichever context that is now. 0, and NULL where it has ended, or is nobody's. */
static int new_part(struct worked *of, struct part **ret_part)
{
	struct part *part = NULL;
	uint32_t context;
	uint8_t life;

	*ret_part = NULL;
	if (!gm_lock(&lock))
		return -EBUSY;
	life = of->life;
	context = of->id;
	if (life == LIFE_LIVE && of->spare) {
		part = of->spare;
		of->spare = part->next;
		part->next = NULL;
	}
	gm_unlock(&lock);
	if (life == LIFE_ENDING)
		return -EAGAIN;
	if (life == LIFE_LIVE && !part) {
		part = make_part(of, context);
		if (!part)
			return -ENOMEM;
	}
	*ret_part = part;
	return 0;
}

static void drop_parts(struct part *part)
{
	if (!part || !gm_lock(&lock))
		return;
	while (part) {
		struct part *next = part->next;
		struct worked *of = part->of;

		if (of->life == LIFE_ENDED) {
			unuse_locked(part);
			if (!of->parts)
				of->life = LIFE_UNUSED;
		} else {
			part->next = of->spare;
			of->spare = part;
		}
		part = next;
	}
	gm_unlock(&lock);
}

/* A part of context @id; NULL: there can be none now. */
static struct part *part_of_context(uint32_t id)
{
	struct part *part = NULL;
	struct worked *of;

	if (!gm_lock(&lock))
		return NULL;
	of = find_locked(id);
	gm_unlock(&lock);
	if (!of || new_part(of, &part))
		return NULL;
	return part;
}

CUevent gm_ticket_event(uint32_t id)
{
	struct part *part = gm_ticket_context(id) ? part_of_context(id) : NULL;
	CUevent event = part ? part->event : NULL;

	drop_parts(part);	/* who records it later may */
	return event;
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

/* Did the context end, rather than the call fail? */
static bool is_of_ended(CUresult result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_DEINITIALIZED ||
	       result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
}

/* One more part for @ticket, where @of is somebody's. */
static int record_part(struct worked *of, struct part **ticket)
{
	struct part *part;
	int r = new_part(of, &part);

	if (r || !part)
		return r;
	r = record_error(GM_REAL(cuCtxRecordEvent)(of->handle, part->event));
	if (r) {
		drop_parts(part);
		return r;
	}
	part->next = *ticket;
	*ticket = part;
	return 0;
}

int gm_ticket_record_all(void *arg, uint64_t *ret_ticket)
{
	struct gm_relaxed relaxed;
	struct part *ticket = NULL;
	int r = 0;

	(void)arg;
	/* Where work is not seen it may be in any context. */
	if (gm_unseen())
		for (uint32_t id = 0; (id = gm_context_next(id)) != 0;)
			gm_ticket_context(id);
	if (overflowed)
		return -ENOSPC;
	relaxed = gm_relax();
	for (uint32_t at = 0; !r && at < contexts_used; at++)
		if (gm_rule(GM_RULE_ALL_CONTEXTS) || &contexts[at] == last.of)
			r = record_part(&contexts[at], &ticket);
	gm_unrelax(&relaxed);
	if (r) {
		drop_parts(ticket);
		return r;
	}
	*ret_ticket = ticket_of(ticket);
	return 0;
}

int gm_ticket_record_context(uint32_t id, CUstream stream, bool whole, uint64_t *ticket)
{
	struct part *part = *ticket ? part_of(*ticket) : part_of_context(id);
	struct gm_relaxed relaxed;
	int r;

	if (!part)
		return -ENOMEM;
	relaxed = gm_relax();
	/* A green context's stream may not take an event of the primary one. */
	r = stream ? record_error(GM_REAL(cuEventRecord)(part->event, stream)) : -EIO;
	if (r == -EIO && whole)
		r = record_error(GM_REAL(cuCtxRecordEvent)(part->of->handle, part->event));
	gm_unrelax(&relaxed);
	if (r && !*ticket)
		drop_parts(part);
	if (!r)
		*ticket = ticket_of(part);
	return r;
}

static bool has_ended(const struct part *part)
{
	return part->of->life == LIFE_ENDED || part->of->life == LIFE_UNUSED;
}

int gm_ticket_stream_wait(CUstream stream, bool per_thread, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	CUresult result = CUDA_SUCCESS;

	for (const struct part *part = part_of(ticket); part && !result; part = part->next) {
		if (has_ended(part))
			continue;
		result = per_thread ? GM_REAL(cuStreamWaitEvent_ptsz)(stream, part->event, 0)
				    : GM_REAL(cuStreamWaitEvent)(stream, part->event, 0);
	}
	gm_unrelax(&relaxed);
	return result ? -EIO : 0;
}

/* 1: complete; 0: not yet; -errno. */
static int query_part(const struct part *part)
{
	CUresult result;

	if (has_ended(part))
		return 1;
	if (part->of->life == LIFE_ENDING)
		return -EAGAIN;
	result = GM_REAL(cuEventQuery)(part->event);
	if (!result || is_of_ended(result))
		return 1;
	return result == CUDA_ERROR_NOT_READY ? 0 : -EIO;
}

int gm_ticket_query(void *arg, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	int r = 1;

	(void)arg;
	for (const struct part *part = part_of(ticket); part && r == 1; part = part->next)
		r = query_part(part);
	gm_unrelax(&relaxed);
	return r;
}

uint32_t gm_ticket_progress(void *arg, uint64_t ticket)
{
	struct gm_relaxed relaxed = gm_relax();
	uint32_t count = 0;

	(void)arg;
	for (const struct part *part = part_of(ticket); part; part = part->next)
		count += query_part(part) == 1;
	gm_unrelax(&relaxed);
	return count;
}

static bool is_among(uint32_t context, const uint32_t *among, size_t count)
{
	for (size_t i = 0; among && i < count; i++)
		if (among[i] == context)
			return true;
	return !among;
}

static int wait_part(const struct part *part)
{
	CUresult result;

	if (part->of->life != LIFE_LIVE)
		return part->of->life == LIFE_ENDING ? -EAGAIN : 0;
	result = GM_REAL(cuEventSynchronize)(part->event);
	return !result || is_of_ended(result) ? 0 : -EIO;
}

int gm_ticket_wait(void *arg, uint64_t ticket, const uint32_t *among, size_t count)
{
	struct gm_relaxed relaxed;
	int r = 0;

	(void)arg;
	if (gm_in_host_function())
		return -EBUSY;
	relaxed = gm_relax();
	for (const struct part *part = part_of(ticket); part && !r; part = part->next)
		if (!is_among(part->of->id, among, count) && query_part(part) != 1)
			r = -EBUSY;
	for (const struct part *part = part_of(ticket); part && !r; part = part->next)
		if (is_among(part->of->id, among, count))
			r = wait_part(part);
	gm_unrelax(&relaxed);
	return r;
}

CUresult gm_ticket_synchronise(uint64_t ticket)
{
	const struct part *part = part_of(ticket);
	struct gm_relaxed relaxed;
	CUresult result;

	if (!part || part->of->life != LIFE_LIVE)
		return CUDA_SUCCESS;
	relaxed = gm_relax();
	result = GM_REAL(cuEventSynchronize)(part->event);
	gm_unrelax(&relaxed);
	return is_of_ended(result) ? CUDA_SUCCESS : result;
}

void gm_ticket_drop(void *arg, uint64_t ticket)
{
	(void)arg;
	drop_parts(part_of(ticket));
}
