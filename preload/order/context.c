/*
 * context.c - the contexts of this process, by handle and by life (see context.h).
 *
 * Owns the table of contexts, the thread's cached answer, and what is recorded of a device.
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <string.h>

#include "allocator/lock.h"
#include "preload/order/context.h"
#include "preload/process/slots.h"
#include "recorder/journal/recorder.h"

enum life { LIFE_UNUSED, LIFE_LIVE, LIFE_ENDING, LIFE_MERGED };

struct context {
	uint32_t unused;		/* link of gm_slots */
	uint32_t id;
	CUcontext handle;		/* NULL: a primary context, seen only through green ones */
	CUdevice device;
	uint32_t also;			/* slot of an earlier id of this context, whose end failed; 0: none */
	uint8_t role, life;
};

static struct gm_lock lock;	/* of contexts and last_id */
static struct gm_slots contexts = { .item_bytes = sizeof(struct context) };
static uint32_t last_id;
static _Atomic(uint32_t) only;	/* id of the only context so far; 0: none yet; UINT32_MAX: several */
static _Atomic(uint64_t) devices_recorded;	/* one bit for each device */
static _Atomic(int) device_count;

/* The first context that was used, and whether a second one was. */
static _Atomic(uint64_t) first_used;
static _Atomic(bool) several_used;

static _Atomic(bool) trusted, doubted;

#define WATCHERS 6u
static const struct gm_context_watcher *watchers[WATCHERS];	/* set at the start */
static unsigned int watcher_count;

_Atomic(bool) gm_name_resolved;

/* Goes up whenever a handle may mean another context. */
_Atomic(uint32_t) gm_context_epoch = 1;
__thread struct gm_where_known gm_where_known;

uint8_t gm_where_last(void)
{
	const struct gm_where_known *known = &gm_where_known;

	return known->handle && known->where.domain < GM_MAX_DEVICES ? known->where.domain : 0;
}

void gm_context_handles_changed(void)
{
	if (!++gm_context_epoch)
		++gm_context_epoch;
}

void gm_context_trust(void)
{
	trusted = true;
}

void gm_context_doubt(void)
{
	doubted = true;
	gm_context_handles_changed();
}

void gm_context_watch(const struct gm_context_watcher *watcher)
{
	if (watcher_count < WATCHERS)
		watchers[watcher_count++] = watcher;
}

void gm_context_used(CUcontext context)
{
	uint64_t handle = (uint64_t)(uintptr_t)context, first = 0;

	if (!handle || several_used || first_used == handle ||
	    atomic_compare_exchange_strong(&first_used, &first, handle) || first == handle)
		return;
	several_used = true;
	gm_context_handles_changed();
	for (unsigned int i = 0; i < watcher_count; i++)
		if (watchers[i]->several)
			watchers[i]->several();
}

uint32_t gm_context_only_used(void)
{
	return several_used ? 0 : gm_context_only();
}

static struct context *context_at(uint32_t slot)
{
	return gm_slots_at(&contexts, slot);
}

int gm_device_count(void)
{
	int count = device_count;

	if (!count && !GM_REAL(cuDeviceGetCount)(&count))
		device_count = count;
	return count;
}

static void record_device(CUdevice device)
{
	char name[128] = "";
	size_t total = 0;
	CUuuid uuid;

	memset(&uuid, 0, sizeof(uuid));
	GM_REAL(cuDeviceGetName)(name, (int)sizeof(name) - 1, device);
	if (GM_REAL(cuDeviceGetUuid_v2)(&uuid, device))
		GM_REAL(cuDeviceGetUuid)(&uuid, device);
	GM_REAL(cuDeviceTotalMem_v2)(&total, device);
	gm_record_device((uint8_t)device, device, name, (const uint8_t *)uuid.bytes, total);
}

uint8_t gm_domain_of(CUdevice device)
{
	uint64_t bit;

	if (device < 0 || device >= (CUdevice)GM_MAX_DEVICES)
		return GM_DOMAIN_UNKNOWN;
	bit = UINT64_C(1) << device;
	if (!(devices_recorded & bit) && device < gm_device_count()) {
		record_device(device);
		devices_recorded |= bit;
	}
	return devices_recorded & bit ? (uint8_t)device : GM_DOMAIN_UNKNOWN;
}

/* ---- the table ---- */

static uint32_t find_handle_locked(CUcontext handle)
{
	for (uint32_t slot = 1; slot < contexts.used; slot++) {
		const struct context *c = context_at(slot);

		if (c->life == LIFE_LIVE && c->handle == handle)
			return slot;
	}
	return 0;
}

static uint32_t find_primary_locked(CUdevice device)
{
	for (uint32_t slot = 1; slot < contexts.used; slot++) {
		const struct context *c = context_at(slot);

		if (c->life == LIFE_LIVE && c->role == GM_CONTEXT_PRIMARY && c->device == device)
			return slot;
	}
	return 0;
}

static uint32_t add_locked(CUcontext handle, CUdevice device, enum gm_context_role role)
{
	uint32_t slot = gm_slots_new(&contexts);

	if (slot)
		*context_at(slot) = (struct context){ .id = ++last_id, .handle = handle,
			.device = device, .role = (uint8_t)role, .life = LIFE_LIVE };
	if (slot)
		only = only ? UINT32_MAX : last_id;
	if (slot && only == UINT32_MAX)
		gm_context_handles_changed();
	return slot;
}

/* Add a context that no hook saw created. The runtime gets its own from a private table. */
static uint32_t discover_locked(CUcontext handle, CUdevice device)
{
	uint32_t primary = find_primary_locked(device);

	if (primary && !context_at(primary)->handle) {
		context_at(primary)->handle = handle;
		return primary;
	}
	return add_locked(handle, device, primary ? GM_CONTEXT_GREEN : GM_CONTEXT_PRIMARY);
}

/* Return the slot whose id is recorded with memory: for a green context, that of its primary context. */
static uint32_t owner_locked(uint32_t slot)
{
	uint32_t primary;

	if (!slot || context_at(slot)->role != GM_CONTEXT_GREEN)
		return slot;
	primary = find_primary_locked(context_at(slot)->device);
	return primary ? primary : add_locked(NULL, context_at(slot)->device, GM_CONTEXT_PRIMARY);
}

/* End a context whose end no hook saw, and whose handle means another context now. */
static void forget_stale(struct gm_ending *stale)
{
	if (!stale->slot)
		return;
	stale->tsc = gm_stamp();
	gm_context_ended(stale, true);
}

static struct gm_where find_slowly(CUcontext handle)
{
	struct gm_where where = { 0, GM_DOMAIN_UNKNOWN };
	struct gm_ending stale = { .domain = GM_DOMAIN_UNKNOWN };
	uint32_t seen = gm_context_epoch, slot;
	CUdevice device;

	if (GM_REAL(cuCtxGetDevice)(&device) || gm_domain_of(device) == GM_DOMAIN_UNKNOWN)
		return where;
	where.domain = (uint8_t)device;
	gm_context_used(handle);
	if (!gm_lock(&lock))
		return where;
	slot = find_handle_locked(handle);
	if (slot && context_at(slot)->device != device) {	/* its end was not seen */
		stale.slot = slot;
		context_at(slot)->life = LIFE_ENDING;
		slot = 0;
	}
	slot = owner_locked(slot ? slot : discover_locked(handle, device));
	if (slot)
		where.context = context_at(slot)->id;
	gm_unlock(&lock);
	gm_where_known.handle = handle;
	gm_where_known.epoch = seen;
	gm_where_known.where = where;
	forget_stale(&stale);
	return where;
}

/* Is @context the only one that could be current to any thread, even unseen (context.h)? Everything that is read here
 * is set before the epoch goes up, and the caller has read the epoch before. */
static bool is_alone(uint32_t context)
{
	return gm_device_count() == 1 && trusted && !doubted && gm_context_only_used() == context &&
	       !__atomic_load_n((const uint32_t *)&gm_state.exiting, __ATOMIC_ACQUIRE);
}

struct gm_where gm_where_ask(void)
{
	uint32_t seen = gm_context_epoch, moves = gm_where_known.moves;
	CUcontext handle = NULL;

	if (GM_REAL(cuCtxGetCurrent)(&handle) || !handle)
		return (struct gm_where){ 0, GM_DOMAIN_UNKNOWN };
	if (handle != gm_where_known.handle || gm_where_known.epoch != seen)
		return find_slowly(handle);
	/* The calls of a signal handler also pass through the hooks, and raise @moves. */
	if (is_alone(gm_where_known.where.context) && gm_where_known.moves == moves)
		gm_where_known.certain = seen;
	return gm_where_known.where;
}

/* ---- what the driver said ---- */

/* The primary context of @device has this @handle. If a green context's handle was taken for it before, that entry is
 * the same context: it keeps its id and gets this handle, and the green handle is looked up anew. */
static void seen_primary_locked(CUcontext handle, CUdevice device)
{
	uint32_t slot = find_handle_locked(handle), primary = find_primary_locked(device);

	if (slot && slot == primary)
		return;
	if (slot) {
		context_at(slot)->life = LIFE_UNUSED;
		gm_slots_drop(&contexts, slot);
	}
	if (primary)
		context_at(primary)->handle = handle;
	else
		add_locked(handle, device, GM_CONTEXT_PRIMARY);
	gm_context_handles_changed();
}

void gm_context_seen(CUcontext handle, CUdevice device, enum gm_context_role role)
{
	struct gm_ending stale = { .domain = GM_DOMAIN_UNKNOWN };

	gm_context_used(handle);
	if (!handle || !gm_lock(&lock))
		return;
	if (role == GM_CONTEXT_PRIMARY) {
		seen_primary_locked(handle, device);
	} else {	/* created just now: an older context with this handle is gone */
		stale.slot = find_handle_locked(handle);
		if (stale.slot)
			context_at(stale.slot)->life = LIFE_ENDING;
		add_locked(handle, device, role);
		gm_context_handles_changed();
	}
	gm_unlock(&lock);
	forget_stale(&stale);
}

void gm_context_seen_green(CUcontext handle)
{
	CUdevice device = -1;
	CUcontext popped;
	uint32_t slot;
	bool known;

	if (!handle || !gm_lock(&lock))
		return;
	slot = find_handle_locked(handle);
	known = slot && context_at(slot)->role == GM_CONTEXT_GREEN;
	gm_unlock(&lock);
	if (known || GM_REAL(cuCtxPushCurrent_v2)(handle))
		return;
	if (GM_REAL(cuCtxGetDevice)(&device))
		device = -1;
	GM_REAL(cuCtxPopCurrent_v2)(&popped);
	if (device >= 0)
		gm_context_seen(handle, device, GM_CONTEXT_GREEN);
}

uint32_t gm_context_only(void)
{
	uint32_t id = only;

	return id == UINT32_MAX ? 0 : id;
}

uint32_t gm_context_find(CUcontext handle)
{
	uint32_t slot, id = 0;

	if (!handle || !gm_lock(&lock))
		return 0;
	slot = owner_locked(find_handle_locked(handle));
	if (slot)
		id = context_at(slot)->id;
	gm_unlock(&lock);
	return id;
}

uint32_t gm_context_meet(CUcontext handle)
{
	uint32_t id = gm_context_find(handle);
	CUcontext popped;

	if (id || !handle || GM_REAL(cuCtxPushCurrent_v2)(handle))
		return id;
	id = find_slowly(handle).context;
	GM_REAL(cuCtxPopCurrent_v2)(&popped);
	gm_where_moved();
	return id;
}

uint32_t gm_context_next(uint32_t id)
{
	uint32_t next = 0;

	if (!gm_lock(&lock))
		return 0;
	for (uint32_t slot = 1; slot < contexts.used; slot++) {
		const struct context *c = context_at(slot);

		if (c->life == LIFE_LIVE && c->role != GM_CONTEXT_GREEN && c->id > id &&
		    (!next || c->id < next))
			next = c->id;
	}
	gm_unlock(&lock);
	return next;
}

CUcontext gm_context_handle(uint32_t id, enum gm_context_role *ret_role, CUdevice *ret_device)
{
	CUcontext handle = NULL;

	if (!gm_lock(&lock))
		return NULL;
	for (uint32_t slot = 1; slot < contexts.used; slot++) {
		const struct context *c = context_at(slot);

		if (c->life == LIFE_UNUSED || c->id != id)
			continue;
		handle = c->handle;
		*ret_role = (enum gm_context_role)c->role;
		*ret_device = c->device;
		break;
	}
	gm_unlock(&lock);
	return handle;
}

/* A primary context without a known handle was seen only through its green contexts. These keep it alive, so retaining
 * and releasing it changes nothing. */
CUcontext gm_context_owner(uint32_t id)
{
	enum gm_context_role role = GM_CONTEXT_GREEN;
	CUdevice device = -1;
	CUcontext handle = gm_context_handle(id, &role, &device);

	if (handle || role != GM_CONTEXT_PRIMARY || GM_REAL(cuDevicePrimaryCtxRetain)(&handle, device))
		return handle;
	GM_REAL(cuDevicePrimaryCtxRelease_v2)(device);
	gm_context_seen(handle, device, GM_CONTEXT_PRIMARY);
	return handle;
}

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

/* ---- the end ---- */

static void tell_ending(uint32_t id, bool ending)
{
	for (unsigned int i = 0; i < watcher_count; i++)
		if (watchers[i]->ending)
			watchers[i]->ending(id, ending);
}

static void begin_ending(struct gm_ending *ending, CUcontext handle, CUdevice device)
{
	uint32_t id = 0;

	ending->slot = 0;
	ending->domain = GM_DOMAIN_UNKNOWN;
	ending->op = 0;
	gm_context_handles_changed();
	if (!gm_lock(&lock))
		return;
	ending->slot = handle ? find_handle_locked(handle) : find_primary_locked(device);
	if (ending->slot) {
		context_at(ending->slot)->life = LIFE_ENDING;
		device = context_at(ending->slot)->device;
		id = context_at(ending->slot)->id;
	}
	gm_unlock(&lock);
	gm_context_handles_changed();
	if (!ending->slot)
		return;
	tell_ending(id, true);
	ending->domain = gm_domain_of(device);
	ending->tsc = gm_stamp_before();
	ending->op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, ending->domain, 0, 0);
}

void gm_context_ending(struct gm_ending *ending, CUcontext handle)
{
	if (handle)
		begin_ending(ending, handle, -1);
	else
		ending->slot = 0;
}

void gm_primary_ending(struct gm_ending *ending, CUdevice device)
{
	begin_ending(ending, NULL, device);
}

/* Undo begin_ending. Another thread may have worked in the context meanwhile, under a new id: then both ids will end
 * together. */
static void still_lives(uint32_t slot)
{
	uint32_t newer, last = slot, id;

	if (!gm_lock(&lock))
		return;
	id = context_at(slot)->id;
	newer = context_at(slot)->handle ? find_handle_locked(context_at(slot)->handle) : 0;
	context_at(slot)->life = newer ? LIFE_MERGED : LIFE_LIVE;
	if (newer) {
		while (context_at(last)->also)
			last = context_at(last)->also;
		context_at(last)->also = context_at(newer)->also;
		context_at(newer)->also = slot;
	}
	gm_unlock(&lock);
	gm_context_handles_changed();
	tell_ending(id, false);
}

/* Drop @slot from the table. Returns its id, its handle, and the next slot of the same context. */
static uint32_t drop_life(uint32_t slot, CUcontext *ret_handle, uint32_t *ret_next)
{
	uint32_t id;

	*ret_next = 0;
	*ret_handle = NULL;
	if (!gm_lock(&lock))
		return 0;
	id = context_at(slot)->id;
	*ret_handle = context_at(slot)->handle;
	*ret_next = context_at(slot)->also;
	context_at(slot)->life = LIFE_UNUSED;
	gm_slots_drop(&contexts, slot);
	gm_unlock(&lock);
	return id;
}

void gm_context_ended(const struct gm_ending *ending, bool ended)
{
	uint32_t slot = ending->slot;

	gm_context_handles_changed();	/* threads that asked meanwhile ask again */
	if (!slot)
		return;
	if (!ended)
		still_lives(slot);
	while (ended && slot) {
		CUcontext handle;
		uint32_t id = drop_life(slot, &handle, &slot);

		for (unsigned int i = 0; id && i < watcher_count; i++)
			if (watchers[i]->ended)
				watchers[i]->ended(id, handle, ending);
	}
	gm_op_end(ending->op);
}
