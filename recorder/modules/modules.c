/*
 * modules.c - which object an address belongs to (see modules.h).
 *
 * Owns the table of objects that have numbers, and a small per-thread cache in front of it. The
 * table is open addressing by the object's start; a slot is claimed by one compare-and-swap,
 * filled, and never emptied but by gm_modules_reset. One whose object is gone knows it again for
 * when it comes back; so many at one place, or in a table half full, the first of them is claimed for
 * another object. Contexts as in modules.h.
 */
#include "recorder/modules/modules.h"

#include <stdatomic.h>
#include <stddef.h>

#include "allocator/lock.h"
#include "recorder/modules/module_path.h"
#include "recorder/modules/object.h"
#include "recorder/journal/sys.h"
#include "recorder/unwind/unwind.h"

#define SLOTS 16384u			/* objects with numbers at a time; beyond, 0 */
#define LIVES 16u			/* of other objects at one place that are remembered */
#define PROBES 64u			/* slots looked at for a new object, if one of them is free */
#define CACHE_WAYS 16u
#define CLAIM_SPINS 2000u		/* publication takes microseconds ... */
#define CLAIM_NAPS 2000u		/* ... unless its thread is kept from the processor */
#define CLAIM_NAP_NS 50000
#define CALLER_FRAMES 32

enum slot_state { SLOT_EMPTY, SLOT_CLAIMED, SLOT_READY };

struct slot {
	_Atomic(uint32_t) state;	/* enum slot_state */
	_Atomic(uint32_t) generation;	/* in which it was seen to be loaded */
	_Atomic(uintptr_t) start;	/* stored after all that does not change; 0: not yet */
	_Atomic(uintptr_t) end;
	uintptr_t base;
	_Atomic(uintptr_t) link_map;
	uint64_t identity;
	uint16_t module;
	_Atomic(uint8_t) loaded;
	uint8_t passes_on;		/* libcuda, libcudart ...: not who asked */
};

static struct slot *slots;		/* 1 MiB, touched as used; there when @ready is set */
static _Atomic(uint16_t) used[SLOTS];	/* slots that were ever claimed, in that order: */
static _Atomic(uint32_t) used_count;	/* to look at all of them, not at all there are */
_Atomic(uint32_t) gm_modules_epoch = 1;	/* what was seen before is seen anew */
static _Atomic(bool) ready;
static struct gm_module_sink sink;
static _Atomic(uint32_t) own_numbers;	/* without a sink */

struct cached {
	uintptr_t pc;
	uint32_t generation;
	uint32_t slot;
};
static __thread struct cached cache[CACHE_WAYS];
__thread struct gm_modules_last gm_modules_last;
static __thread volatile uint8_t cache_busy;	/* a signal handler leaves a cache in use alone */
static __thread volatile uint8_t publishing;

void gm_modules_init(const struct gm_module_sink *new_sink)
{
	static _Atomic(void *) memory;

	if (new_sink)
		sink = *new_sink;
	gm_module_path_init();
	slots = gm_table_once(&memory, SLOTS * sizeof(*slots));
	if (!slots)
		return;			/* no address has a module then */
	atomic_store_explicit(&ready, true, memory_order_release);
}

static uint32_t hash_start(uintptr_t start)
{
	return (uint32_t)((start * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* What makes two objects at one place the same one. */
static uint64_t identity_of(const struct gm_object *object, const struct gm_object_identity *id)
{
	uint64_t hash = id->name_hash ^ id->base ^ (object->end << 1);

	for (unsigned int i = 0; i < id->build_id_bytes; i++)
		hash = (hash ^ id->build_id[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static void retire(struct slot *slot)
{
	if (atomic_exchange_explicit(&slot->loaded, 0, memory_order_acq_rel) &&
	    slot->module && sink.unloaded)
		sink.unloaded(sink.ctx, slot->module);
}

/* The object is there again. False: its slot is another's by now. Either this or who claims the slot
 * (take_over) sees what the other did. */
static bool revive(struct slot *slot, const struct gm_object *object, uint64_t wanted, uint32_t now)
{
	uint8_t before;

	atomic_store_explicit(&slot->link_map, object->link_map, memory_order_relaxed);
	before = atomic_exchange_explicit(&slot->loaded, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&slot->state, memory_order_seq_cst) != SLOT_READY ||
	    slot->identity != wanted)
		return false;
	if (!before && slot->module && sink.loaded_again)
		sink.loaded_again(sink.ctx, slot->module);
	atomic_store_explicit(&slot->generation, now, memory_order_release);
	return true;
}

/* A slot in the making: wait for its thread, but not without end. */
static bool is_ready(struct slot *slot)
{
	for (unsigned int i = 0; i < CLAIM_SPINS + CLAIM_NAPS; i++) {
		if (atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_READY)
			return true;
		if (publishing)		/* this very thread, beneath a signal handler */
			return false;
		if (i >= CLAIM_SPINS)
			gm_nap(CLAIM_NAP_NS);
	}
	return false;
}

/* The thread that claimed @slot was cancelled, say: nobody waits for it again. Should it go on
 * after all, its slot is good from the moment it has a start. */
static bool give_up(struct slot *slot)
{
	uint32_t claimed = SLOT_CLAIMED;

	if (publishing)
		return false;
	atomic_compare_exchange_strong_explicit(&slot->state, &claimed, SLOT_READY,
						memory_order_acq_rel, memory_order_acquire);
	return true;
}

static uint16_t number(const struct gm_object *object, const struct gm_object_identity *identity,
		       bool *ret_passes_on)
{
	struct gm_module_info info = {
		.base = identity->base, .start = object->start, .end = object->end,
		.build_id_bytes = identity->build_id_bytes,
	};
	char path[GM_MODULE_PATH_BYTES];
	uint32_t own;

	for (unsigned int i = 0; i < identity->build_id_bytes; i++)
		info.build_id[i] = identity->build_id[i];
	gm_module_path(identity->name, path);
	info.path = path;
	*ret_passes_on = gm_module_passes_on(path);
	if (sink.publish)
		return sink.publish(sink.ctx, &info);
	own = atomic_fetch_add_explicit(&own_numbers, 1, memory_order_relaxed) + 1;
	return own <= UINT16_MAX ? (uint16_t)own : 0;
}

static void fill(struct slot *slot, const struct gm_object *object,
		 const struct gm_object_identity *identity, uint32_t now)
{
	bool passes_on;

	publishing = 1;
	atomic_signal_fence(memory_order_seq_cst);
	slot->module = number(object, identity, &passes_on);
	slot->passes_on = passes_on;
	atomic_store_explicit(&slot->end, object->end, memory_order_relaxed);
	slot->base = identity->base;
	slot->identity = identity_of(object, identity);
	atomic_store_explicit(&slot->link_map, object->link_map, memory_order_relaxed);
	atomic_store_explicit(&slot->generation, now, memory_order_release);
	atomic_store_explicit(&slot->loaded, 1, memory_order_release);
	atomic_store_explicit(&slot->start, object->start, memory_order_release);
	atomic_store_explicit(&slot->state, SLOT_READY, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	publishing = 0;
}

/* The slot of an object seen in this generation already. */
static struct slot *seen(const struct gm_object *object, uint32_t now)
{
	uint32_t at = hash_start(object->start);

	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[(at + i) % SLOTS];
		uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

		if (state == SLOT_EMPTY)
			return NULL;
		if (state == SLOT_READY &&
		    atomic_load_explicit(&slot->start, memory_order_acquire) == object->start &&
		    atomic_load_explicit(&slot->end, memory_order_relaxed) == object->end &&
		    atomic_load_explicit(&slot->generation, memory_order_acquire) == now &&
		    atomic_load_explicit(&slot->link_map, memory_order_relaxed) ==
			    object->link_map &&
		    atomic_load_explicit(&slot->loaded, memory_order_relaxed))
			return slot;
	}
	return NULL;
}

static void note_used(uint32_t at)
{
	uint32_t place = atomic_fetch_add_explicit(&used_count, 1, memory_order_relaxed);

	if (place < SLOTS)
		atomic_store_explicit(&used[place], (uint16_t)at, memory_order_release);
}

/* How many places of @used may be looked at; one that is not stored yet names slot 0. */
static uint32_t slots_used(void)
{
	uint32_t count = atomic_load_explicit(&used_count, memory_order_acquire);

	return count < SLOTS ? count : SLOTS;
}

/* Claim a slot whose object is gone. */
static bool take_over(struct slot *slot)
{
	uint32_t state = SLOT_READY;

	if (!atomic_compare_exchange_strong_explicit(&slot->state, &state, SLOT_CLAIMED,
						     memory_order_seq_cst, memory_order_relaxed))
		return false;
	if (!atomic_load_explicit(&slot->loaded, memory_order_seq_cst)) {
		atomic_store_explicit(&slot->start, 0, memory_order_relaxed);
		return true;
	}
	atomic_store_explicit(&slot->state, SLOT_READY, memory_order_release);
	return false;
}

/* The slots that a new object may have: the first whose object is gone, and how many of those there
 * were that began at its own place. */
struct vacancy { struct slot *first; uint32_t lives; };

static void note_vacancy(struct vacancy *vacancy, struct slot *slot, bool same_place)
{
	if (atomic_load_explicit(&slot->loaded, memory_order_relaxed) ||
	    !atomic_load_explicit(&slot->start, memory_order_relaxed))
		return;			/* without a start: given up, but it may still be filled */
	if (!vacancy->first)
		vacancy->first = slot;
	vacancy->lives += same_place;
}

/* Is it to be taken rather than a slot that nobody ever had, or than looking on? */
static bool is_due(const struct vacancy *vacancy, uint32_t probes)
{
	return vacancy->first && (vacancy->lives >= LIVES || probes >= PROBES ||
				  atomic_load_explicit(&used_count, memory_order_relaxed) >= SLOTS / 2);
}

/* An object met for the first time, or for the first time in this generation. What else began at
 * its place is gone. */
static struct slot *meet(const struct gm_object *object, uint32_t now)
{
	struct gm_object_identity identity;
	struct vacancy vacancy = { NULL, 0 };
	struct slot *found = NULL;
	uint32_t at = hash_start(object->start);
	uint64_t wanted;

	if (!gm_object_identify(object, &identity))
		return NULL;
	wanted = identity_of(object, &identity);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[(at + i) % SLOTS];
		uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

		if (!found && (state == SLOT_EMPTY || i >= PROBES) && is_due(&vacancy, i)) {
			if (!take_over(vacancy.first))
				return NULL;	/* others are at it: the next time */
			fill(vacancy.first, object, &identity, now);
			return vacancy.first;
		}
		if (!found && state == SLOT_EMPTY &&
		    atomic_compare_exchange_strong_explicit(&slot->state, &state, SLOT_CLAIMED,
							    memory_order_acquire,
							    memory_order_acquire)) {
			note_used((uint32_t)(slot - slots));
			fill(slot, object, &identity, now);
			return slot;
		}
		if (state == SLOT_EMPTY)
			break;		/* the end of the chain */
		if (state == SLOT_CLAIMED && !is_ready(slot) && !give_up(slot))
			return NULL;
		if (atomic_load_explicit(&slot->start, memory_order_acquire) != object->start) {
			note_vacancy(&vacancy, slot, false);
			continue;
		}
		if (!found && slot->identity == wanted) {
			if (!revive(slot, object, wanted, now))
				return NULL;
			found = slot;
		} else {
			retire(slot);
			note_vacancy(&vacancy, slot, true);
		}
	}
	return found;
}

static struct slot *find(uintptr_t pc)
{
	struct cached *way = &cache[(pc >> 2 ^ pc >> 6) % CACHE_WAYS];
	uint32_t now = atomic_load_explicit(&gm_modules_epoch, memory_order_acquire);
	struct gm_object object;
	struct slot *slot = NULL;
	bool busy = cache_busy;

	cache_busy = 1;
	atomic_signal_fence(memory_order_seq_cst);
	if (!busy && way->pc == pc && way->generation == now)
		slot = &slots[way->slot];
	atomic_signal_fence(memory_order_seq_cst);
	cache_busy = busy;
	if (slot)
		return slot;
	if (!atomic_load_explicit(&ready, memory_order_acquire) || !gm_object_find(pc, &object))
		return NULL;
	slot = seen(&object, now);
	if (!slot)
		slot = meet(&object, now);
	if (slot && !busy) {
		cache_busy = 1;
		atomic_signal_fence(memory_order_seq_cst);
		way->pc = pc;
		way->generation = now;
		way->slot = (uint32_t)(slot - slots);
		atomic_signal_fence(memory_order_seq_cst);
		cache_busy = 0;
	}
	return slot;
}

uint16_t gm_modules_lookup(uintptr_t pc, uint64_t *ret_offset)
{
	struct slot *slot = find(pc);

	if (ret_offset)
		*ret_offset = pc - (slot && slot->module ? slot->base : 0);
	return slot ? slot->module : 0;
}

/* The first frame beyond @return_address that does not pass calls on, of @pcs. */
static bool first_asker(const uintptr_t *pcs, int count, uintptr_t return_address,
			struct slot **ret_slot, uintptr_t *ret_pc)
{
	int i = 0;

	while (i < count && pcs[i] != return_address)
		i++;
	if (i == count)			/* the hook's frame was not found: from the innermost on */
		i = -1;
	for (i++; i < count; i++) {
		struct slot *slot = find(pcs[i]);

		if (slot && slot->passes_on)
			continue;
		*ret_slot = slot;
		*ret_pc = pcs[i];
		return true;
	}
	return false;
}

/* Never believed half written, by a handler that interrupts this. */
static void note_last(uintptr_t pc, uint32_t now, uint16_t module)
{
	gm_modules_last.generation = 0;
	atomic_signal_fence(memory_order_seq_cst);
	gm_modules_last.pc = pc;
	gm_modules_last.module = module;
	atomic_signal_fence(memory_order_seq_cst);
	gm_modules_last.generation = now;
}

uint16_t gm_modules_caller(const void *return_address, uintptr_t *ret_pc)
{
	uint32_t now = atomic_load_explicit(&gm_modules_epoch, memory_order_acquire);
	uintptr_t pc = (uintptr_t)return_address;
	struct slot *slot = find(pc);

	if (slot && !slot->passes_on) {
		note_last(pc, now, slot->module);
	} else if (slot) {
		uintptr_t pcs[CALLER_FRAMES];
		struct gm_regs regs;
		unsigned int flags;
		int count;

		gm_regs_capture(&regs);
		count = gm_unwind(&regs, pcs, CALLER_FRAMES / 4, &flags);
		if (!first_asker(pcs, count, pc, &slot, &pc) && (flags & GM_UNWIND_MORE)) {
			count = gm_unwind(&regs, pcs, CALLER_FRAMES, NULL);
			first_asker(pcs, count, pc, &slot, &pc);
		}
	}
	if (ret_pc)
		*ret_pc = pc;
	return slot ? slot->module : 0;
}

uint16_t gm_modules_asker(const uintptr_t *pcs, int count)
{
	for (int i = 0; i < count; i++) {
		struct slot *slot = find(pcs[i]);

		if (!slot || !slot->passes_on)
			return slot ? slot->module : 0;
	}
	return count > 0 ? gm_modules_lookup(pcs[0], NULL) : 0;
}

uint32_t gm_modules_generation(void)
{
	return atomic_load_explicit(&gm_modules_epoch, memory_order_acquire);
}

/* Tell of what is no longer where it was. */
static void sweep(void)
{
	for (uint32_t i = 0, count = slots_used(); i < count; i++) {
		struct slot *slot = &slots[atomic_load_explicit(&used[i], memory_order_acquire)];
		struct gm_object object;
		uintptr_t start;

		if (atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_READY ||
		    !atomic_load_explicit(&slot->loaded, memory_order_relaxed))
			continue;
		start = atomic_load_explicit(&slot->start, memory_order_acquire);
		if (!start || !gm_object_find(start, &object) || object.start != start ||
		    object.end != slot->end ||
		    object.link_map != atomic_load_explicit(&slot->link_map, memory_order_relaxed))
			retire(slot);
	}
}

void gm_modules_generation_bump(void)
{
	atomic_fetch_add_explicit(&gm_modules_epoch, 1, memory_order_acq_rel);
	gm_unwind_flush();
	/* where looking is dear, an object is found gone when another one lies in its place */
	if (gm_object_is_exact())
		sweep();
}

void gm_modules_reset(void)
{
	atomic_store_explicit(&ready, false, memory_order_relaxed);
	sink = (struct gm_module_sink){ 0 };
	for (uint32_t i = 0, count = slots_used(); i < count; i++) {
		struct slot *slot = &slots[atomic_load_explicit(&used[i], memory_order_relaxed)];

		atomic_store_explicit(&slot->start, 0, memory_order_relaxed);
		atomic_store_explicit(&slot->loaded, 0, memory_order_relaxed);
		atomic_store_explicit(&slot->state, SLOT_EMPTY, memory_order_relaxed);
	}
	atomic_store_explicit(&used_count, 0, memory_order_relaxed);
	atomic_store_explicit(&own_numbers, 0, memory_order_relaxed);
	publishing = 0;
	cache_busy = 0;
	atomic_fetch_add_explicit(&gm_modules_epoch, 1, memory_order_acq_rel);
}
