/*
 * order_part.c - the contexts that were given work, and their events: the parts of tickets.
 *
 * Events are made with CU_EVENT_DISABLE_TIMING, kept per context, and used again; none is ever
 * destroyed: a context takes its own along, and after that their handles are not touched any more.
 * The work of a context that ended is complete.
 *
 * Thread context: any, inside a hook. Signal context: none.
 * Lock: one leaf, never held over a driver call.
 */
#include <string.h>

#include "allocator/lock.h"
#include "preload/order/order_internal.h"
#include "preload/process/slots.h"

#define CONTEXTS 256u			/* given work, and alive, at one time */

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
		if (givens[i].id == id && givens[i].life != GM_GIVEN_UNUSED)
			return &givens[i];
	return NULL;
}

static bool add_locked(uint32_t id, CUcontext handle)
{
	uint32_t at = 0;

	if (find_locked(id))
		return true;
	while (at < givens_used && (givens[at].life != GM_GIVEN_UNUSED || givens[at].parts))
		at++;
	if (at == CONTEXTS || !handle) {
		overflowed = true;
		return false;
	}
	givens[at] = (struct given){ .id = id, .handle = handle, .life = GM_GIVEN_LIVE };
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
	bool covered = (handle || id) && !gm_order_unseen();

	if (!gm_lock(&lock))
		return false;
	covered = covered && !overflowed;
	for (uint32_t i = 0; i < givens_used; i++)
		if ((givens[i].life == GM_GIVEN_LIVE || givens[i].life == GM_GIVEN_ENDING) &&
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
	if (given && given->life != GM_GIVEN_ENDED)
		given->life = ending ? GM_GIVEN_ENDING : GM_GIVEN_LIVE;
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
		given->life = given->parts ? GM_GIVEN_ENDED : GM_GIVEN_UNUSED;
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

uint32_t gm_part_new(uint32_t at)
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
	if (givens[at].id == context && givens[at].life == GM_GIVEN_LIVE)
		id = gm_slots_new(&parts);
	if (id) {
		*part_at(id) = (struct part){ .given = at, .event = event };
		givens[at].parts++;
	}
	gm_unlock(&lock);
	return id;
}

void gm_parts_drop(uint32_t id)
{
	if (!gm_lock(&lock))
		return;
	while (id) {
		uint32_t next = part_at(id)->next;
		struct given *given = &givens[part_at(id)->given];

		if (given->life == GM_GIVEN_ENDED) {
			gm_slots_drop(&parts, id);
			if (!--given->parts)
				given->life = GM_GIVEN_UNUSED;
		} else {
			part_at(id)->next = given->spare;
			given->spare = id;
		}
		id = next;
	}
	gm_unlock(&lock);
}

bool gm_part_look(uint32_t id, struct gm_part *view)
{
	const struct given *given;

	if (!gm_lock(&lock))
		return false;
	given = &givens[part_at(id)->given];
	*view = (struct gm_part){ part_at(id)->event, given->handle, part_at(id)->next, given->id,
			       given->life };
	gm_unlock(&lock);
	return true;
}

CUevent gm_ticket_event(uint32_t id)
{
	struct gm_part view;
	uint32_t at, part;

	if (!gm_ticket_context(id) || !gm_lock(&lock))
		return NULL;
	for (at = 0; at < givens_used; at++)
		if (givens[at].id == id && givens[at].life == GM_GIVEN_LIVE)
			break;
	gm_unlock(&lock);
	if (at == givens_used)
		return NULL;
	part = gm_part_new(at);
	if (!part || !gm_part_look(part, &view))
		return NULL;
	gm_parts_drop(part);	/* asked of only, never recorded: whoever records it later may */
	return view.event;
}

uint32_t gm_given_count(void)
{
	return overflowed ? UINT32_MAX : givens_used;
}

uint32_t gm_given_at(uint32_t at, uint8_t *ret_life)
{
	uint32_t id;

	if (!gm_lock(&lock)) {
		*ret_life = GM_GIVEN_ENDING;		/* nothing is said of it now */
		return 0;
	}
	id = givens[at].id;
	*ret_life = givens[at].life;
	gm_unlock(&lock);
	return id;
}

uint32_t gm_given_last(void)
{
	return last_given.id;
}

bool gm_parts_link(uint32_t id, uint32_t next)
{
	if (!gm_lock(&lock))
		return false;
	part_at(id)->next = next;
	gm_unlock(&lock);
	return true;
}
