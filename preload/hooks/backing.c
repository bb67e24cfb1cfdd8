/*
 * backing.c - memory that lives as long as it has references or mappings (see backing.h).
 *
 * Owns the backings and their mappings, and the map's spaces HANDLE, EXTERNAL and MAPPING.
 * Thread context: any; one lock, rank before domain. Signal context: none.
 */
#include <errno.h>
#include <stddef.h>

#include "allocator/lock.h"
#include "preload/hooks/backing.h"
#include "preload/process/slots.h"
#include "recorder/journal/recorder.h"

struct backing {
	uint32_t unused;		/* gm_slots' link */
	uint32_t block;			/* id of the record; 0: this slot is not in use */
	uint64_t handle, size;
	uint64_t shown, shown_size;	/* address and size in the record */
	uint32_t references, mappings;	/* held by the program, except those about to end */
	uint32_t pending;		/* ends that the driver has not confirmed yet */
	uint32_t first, last;		/* list of mappings, including those about to end */
	uint32_t space;
	bool keyed;			/* the map has an entry from @handle to this backing */
};

struct mapping {
	uint32_t unused;
	uint32_t backing;		/* 0: this slot is not in use */
	uint64_t address, offset, size;	/* @offset in the backing */
	uint32_t prev, next;		/* list of the backing's mappings */
	uint32_t taken_next;		/* list of the mappings that one step ends */
	bool taken;
};

struct gm_map *gm_pointers;

static struct gm_lock lock;
static struct gm_slots backings = { .item_bytes = sizeof(struct backing) };	/* lock: lock */
static struct gm_slots mappings = { .item_bytes = sizeof(struct mapping) };	/* lock: lock */
static _Atomic(uint32_t) mapping_count;

static struct backing *backing_at(uint32_t id)
{
	return gm_slots_at(&backings, id);
}

static struct mapping *mapping_at(uint32_t id)
{
	return gm_slots_at(&mappings, id);
}

/* May the record show the address of this mapping? A mapping of a part of a VMM handle must not be shown, because
 * the record has the size of the whole handle and would seem to cover neighbouring memory. */
static bool shows_locked(const struct backing *b, const struct mapping *m)
{
	return !m->taken && (b->space == GM_MAP_EXTERNAL || (!m->offset && m->size >= b->size));
}

/* Set the address in the record to that of the first mapping that may be shown, or to the handle if there is none. */
static void place_locked(struct backing *b, uint64_t op, uint32_t stack)
{
	uint64_t address = b->handle;
	uint8_t flags = GM_SEGMENT_UNMAPPED;

	for (uint32_t id = b->first; id && flags; id = mapping_at(id)->next) {
		if (shows_locked(b, mapping_at(id))) {
			address = mapping_at(id)->address;
			flags = 0;
		}
	}
	if (address == b->shown && b->size == b->shown_size)
		return;
	gm_record_change(op, b->block, address, b->size, flags, stack);
	b->shown = address;
	b->shown_size = b->size;
}

static void unlink_mapping_locked(uint32_t id)
{
	struct mapping *m = mapping_at(id);
	struct backing *b = backing_at(m->backing);

	*(m->prev ? &mapping_at(m->prev)->next : &b->first) = m->next;
	*(m->next ? &mapping_at(m->next)->prev : &b->last) = m->prev;
	m->backing = 0;
	gm_slots_drop(&mappings, id);
	mapping_count--;
}

static void drop_backing_locked(uint32_t id)
{
	struct backing *b = backing_at(id);

	while (b->first) {
		gm_map_take_if(gm_pointers, GM_MAP_MAPPING, mapping_at(b->first)->address,
			       b->first);
		unlink_mapping_locked(b->first);
	}
	if (b->keyed)
		gm_map_take_if(gm_pointers, b->space, b->handle, id);
	b->block = 0;
	gm_slots_drop(&backings, id);
}

/* Put @handle into the map as the key of backing @id. An older backing under @handle loses its key: no hook saw it
 * end, or only mappings keep it alive. Returns false when there is no memory. */
static bool key_locked(uint32_t id, uint64_t handle)
{
	struct backing *b = backing_at(id);
	uint64_t old = 0;

	if (b->keyed)
		gm_map_take_if(gm_pointers, b->space, b->handle, id);
	b->handle = handle;
	b->keyed = !gm_map_put(gm_pointers, b->space, handle, id, &old);
	if (old && old != id)
		backing_at((uint32_t)old)->keyed = false;
	return b->keyed;
}

/* Count one pending end of backing @id. If nothing holds the backing any more, remove its handle from the map,
 * because the driver may hand out the same handle again before its call returns to us. */
static void taken_locked(uint32_t id, struct gm_backing_step *step)
{
	struct backing *b = backing_at(id);

	b->pending++;
	if (b->references || b->mappings)
		return;
	if (b->keyed)
		gm_map_take_if(gm_pointers, b->space, b->handle, id);
	b->keyed = false;
	gm_record_freeing(b->block);
	step->block = b->block;
}

static void restore_locked(uint32_t id)
{
	struct backing *b = backing_at(id);

	b->pending--;
	if (!b->keyed && !gm_map_get(gm_pointers, b->space, b->handle))
		key_locked(id, b->handle);
	gm_record_not_freed(b->block);
}

static void confirm_locked(uint32_t id, uint64_t op, uint64_t tsc, uint64_t stream, uint32_t stack)
{
	struct backing *b = backing_at(id);

	b->pending--;
	if (b->references || b->mappings || b->pending)
		return;
	gm_record_free_stack(op, b->block, tsc, stream, stack);
	drop_backing_locked(id);
}

int gm_backing_add(enum gm_map_space space, uint64_t handle, uint32_t block, uint64_t size)
{
	uint32_t id;
	int rc = 0;

	if (!gm_lock(&lock))
		return -ETIMEDOUT;
	id = gm_slots_new(&backings);
	if (id) {
		*backing_at(id) = (struct backing){ .block = block, .size = size, .shown = handle,
			.shown_size = size, .references = 1, .space = space };
		if (!key_locked(id, handle)) {
			backing_at(id)->block = 0;
			gm_slots_drop(&backings, id);
			id = 0;
		}
	}
	if (!id)
		rc = -ENOMEM;
	gm_unlock(&lock);
	return rc;
}

bool gm_backing_retain(enum gm_map_space space, uint64_t handle)
{
	uint32_t id;

	if (!gm_lock(&lock))
		return false;
	id = (uint32_t)gm_map_get(gm_pointers, space, handle);
	if (id)
		backing_at(id)->references++;
	gm_unlock(&lock);
	return id != 0;
}

/* Find the mapping that contains @address, which usually is its beginning. */
static uint32_t find_mapping_locked(uint64_t address)
{
	uint32_t found = (uint32_t)gm_map_get(gm_pointers, GM_MAP_MAPPING, address);

	for (uint32_t id = 1; !found && id < mappings.used; id++) {
		const struct mapping *m = mapping_at(id);

		if (m->backing && !m->taken && address - m->address < m->size)
			found = id;
	}
	return found;
}

void gm_backing_retain_at(enum gm_map_space space, uint64_t handle, uint64_t address)
{
	uint32_t mapping, id;
	struct backing *b;

	if (!gm_lock(&lock))
		return;
	mapping = find_mapping_locked(address);
	id = mapping ? mapping_at(mapping)->backing
		     : (uint32_t)gm_map_get(gm_pointers, space, handle);
	b = id ? backing_at(id) : NULL;
	/* cuda.h promises the handle that was used to map the memory. If the backing has no references, the driver
	 * may have made a new handle. */
	if (b && (!b->references || b->handle == handle)) {
		if (!b->keyed || b->handle != handle)
			key_locked(id, handle);
		b->references++;
	}
	gm_unlock(&lock);
}

static void map_locked(uint32_t id, uint64_t address, uint64_t offset, uint64_t size, uint64_t op,
		       uint32_t stack)
{
	struct backing *b = backing_at(id);
	uint32_t new = gm_slots_new(&mappings);
	struct mapping *m;
	uint64_t old = 0;

	if (!new)
		return;
	if (gm_map_put(gm_pointers, GM_MAP_MAPPING, address, new, &old)) {
		gm_slots_drop(&mappings, new);
		return;
	}
	m = mapping_at(new);
	*m = (struct mapping){ .backing = id, .address = address, .offset = offset, .size = size,
			       .prev = b->last };
	*(b->last ? &mapping_at(b->last)->next : &b->first) = new;
	b->last = new;
	b->mappings++;
	mapping_count++;
	if (old) {	/* no hook saw the old mapping end */
		backing_at(mapping_at((uint32_t)old)->backing)->mappings--;
		unlink_mapping_locked((uint32_t)old);
	}
	if (b->size < offset + size)
		b->size = offset + size;
	place_locked(b, op, stack);
}

void gm_backing_map(enum gm_map_space space, uint64_t handle, uint64_t address, uint64_t offset,
		    uint64_t size, uint64_t op, uint32_t stack)
{
	uint32_t id;

	if (!gm_lock(&lock))
		return;
	id = (uint32_t)gm_map_get(gm_pointers, space, handle);
	if (id)
		map_locked(id, address, offset, size, op, stack);
	gm_unlock(&lock);
}

void gm_backing_release(enum gm_map_space space, uint64_t handle, struct gm_backing_step *step)
{
	uint32_t id;

	*step = (struct gm_backing_step){ 0 };
	if (!gm_lock(&lock))
		return;
	id = (uint32_t)gm_map_get(gm_pointers, space, handle);
	if (id && backing_at(id)->references) {
		backing_at(id)->references--;
		step->backing = id;
		taken_locked(id, step);
	}
	gm_unlock(&lock);
}

static void take_mapping_locked(uint32_t id, struct gm_backing_step *step)
{
	struct mapping *m = mapping_at(id);

	gm_map_take_if(gm_pointers, GM_MAP_MAPPING, m->address, id);
	m->taken = true;
	m->taken_next = step->mappings;
	step->mappings = id;
	backing_at(m->backing)->mappings--;
	taken_locked(m->backing, step);
}

void gm_backing_unmap(uint64_t address, uint64_t size, struct gm_backing_step *step)
{
	uint64_t end = address + size, at = address;

	*step = (struct gm_backing_step){ 0 };
	if (!mapping_count || !gm_lock(&lock))
		return;
	do {
		uint32_t id = (uint32_t)gm_map_get(gm_pointers, GM_MAP_MAPPING, at);

		if (!id)
			break;
		take_mapping_locked(id, step);
		at += mapping_at(id)->size;
	} while (at < end);
	/* There is a gap (a multicast object, or a mapping that no hook saw): look at every mapping. */
	for (uint32_t id = 1; at < end && id < mappings.used; id++) {
		const struct mapping *m = mapping_at(id);

		if (m->backing && !m->taken && m->address >= at && m->address < end)
			take_mapping_locked(id, step);
	}
	gm_unlock(&lock);
}

static void unmapped_locked(uint32_t id, uint64_t op, uint64_t tsc, uint64_t stream, uint32_t stack)
{
	uint32_t of = mapping_at(id)->backing;

	unlink_mapping_locked(id);
	if (backing_at(of)->references || backing_at(of)->mappings)
		place_locked(backing_at(of), op, stack);
	confirm_locked(of, op, tsc, stream, stack);
}

/* Is mapping @id still about to end? The end of a context may have removed it meanwhile. */
static bool is_taken(uint32_t id)
{
	return mapping_at(id)->backing && mapping_at(id)->taken;
}

static bool is_pending(uint32_t id)
{
	return id && backing_at(id)->block && backing_at(id)->pending;
}

void gm_backing_done(const struct gm_backing_step *step, uint64_t op, uint64_t tsc, uint64_t stream,
		     uint32_t stack)
{
	uint32_t id, next;

	if ((!step->backing && !step->mappings) || !gm_lock(&lock))
		return;
	for (id = step->mappings; id; id = next) {
		next = mapping_at(id)->taken_next;
		if (is_taken(id))
			unmapped_locked(id, op, tsc, stream, stack);
	}
	if (is_pending(step->backing))
		confirm_locked(step->backing, op, tsc, stream, stack);
	gm_unlock(&lock);
}

void gm_backing_undo(const struct gm_backing_step *step)
{
	uint32_t id;

	if ((!step->backing && !step->mappings) || !gm_lock(&lock))
		return;
	for (id = step->mappings; id; id = mapping_at(id)->taken_next) {
		struct mapping *m = mapping_at(id);

		if (!is_taken(id))
			continue;
		gm_map_put(gm_pointers, GM_MAP_MAPPING, m->address, id, NULL);
		m->taken = false;
		backing_at(m->backing)->mappings++;
		restore_locked(m->backing);
	}
	if (is_pending(step->backing)) {
		backing_at(step->backing)->references++;
		restore_locked(step->backing);
	}
	gm_unlock(&lock);
}

void gm_backing_end(enum gm_map_space space, uint64_t handle, uint64_t op, uint64_t tsc,
		    uint32_t stack)
{
	uint32_t id;

	if (!gm_lock(&lock))
		return;
	id = (uint32_t)gm_map_get(gm_pointers, space, handle);
	if (id) {
		gm_record_free_stack(op, backing_at(id)->block, tsc, 0, stack);
		drop_backing_locked(id);
	}
	gm_unlock(&lock);
}

void gm_backing_block_ended(uint32_t block)
{
	if (!gm_lock(&lock))
		return;
	for (uint32_t id = 1; id < backings.used; id++) {
		if (backing_at(id)->block == block)
			drop_backing_locked(id);
	}
	gm_unlock(&lock);
}
