/*
 * threads.c - the slots of the threads that write: see threads.h. Operations in flight.
 *
 * gm_rec.tids holds the tids of all slots in one array, because a new thread searches it for a dead thread
 * with its own tid, whose slot it takes over.
 */
#define _GNU_SOURCE
#include "recorder/record/threads.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "recorder/journal/journal.h"
#include "recorder/journal/probe.h"
#include "recorder/record/chunks.h"

#define SWEEP_NS UINT64_C(100000000)
#define RETRY 1024u			/* operations between two attempts to get a slot */
#define SLOT_WAIT_NS UINT64_C(10000000)
#define HOLD_SPINS 200u
#define HOLD_PAUSE_NS 50000
#define HOLD_SLICE_NS UINT64_C(1000000)	/* the most that one pause counts as waited: gm_passed_ns */

__thread struct gm_thread_local gm_tls;
const struct gm_lock gm_tcache_rank = { .rank = GM_RANK_TCACHE };

static bool is_dead(uint32_t tid)
{
	return gm_syscall(SYS_tgkill, getpid(), (long)tid, 0, 0, 0, 0) == -ESRCH;
}

/* Free the slot of a thread that is known to have ended. */
static void release_locked(uint32_t index)
{
	struct gm_thread *thread = &gm_rec.threads[index];
	struct gm_slot *slot = &gm_rec.slots[index];

	gm_chunk_close_locked(slot);
	gm_set_release(&thread->flight_op, 0);
	gm_set_release(&thread->tid, 0);
	gm_rec.tids[index] = 0;
}

unsigned int gm_threads_sweep_locked(void)
{
	uint64_t now = gm_now_ns();
	unsigned int freed = 0;

	if (gm_rec.slots_swept_ns && now - gm_rec.slots_swept_ns < SWEEP_NS)
		return 0;
	gm_rec.slots_swept_ns = now;
	for (uint32_t i = 1; i < gm_rec.slots_used; i++) {
		struct gm_slot *slot = &gm_rec.slots[i];
		uint32_t idle = 0;

		/* Load @tcache_owner after the thread is known to be dead, with acquire, because the thread may have
		 * died in its thread cache. */
		if (!gm_rec.tids[i] || !is_dead(gm_rec.tids[i]) ||
		    gm_get_acquire(&slot->tcache_owner) == GM_TCACHE_OWNER)
			continue;
		/* If the slot is busy, its thread died inside a record, or a raw clone() still uses the slot. Leave
		 * such a slot alone, because freeing it would be a risk. */
		if (!atomic_compare_exchange_strong_explicit(&slot->busy, &idle, 1,
							     memory_order_acquire,
							     memory_order_relaxed))
			continue;
		release_locked(i);
		gm_set_release(&slot->busy, 0);
		freed++;
	}
	return freed;
}

void gm_threads_sweep(void)
{
	if (!gm_lock_within(&gm_rec.journal, SLOT_WAIT_NS))
		return;			/* the next tick sweeps */
	gm_threads_sweep_locked();
	gm_unlock(&gm_rec.journal);
}

/* Find a slot for thread @tid: the slot of a dead thread with this tid, else a free slot, else a new one. 0: none. */
static uint32_t find_locked(struct gm_header *header, uint32_t tid)
{
	struct gm_region *region = &header->regions[GM_REGION_THREADS];
	uint32_t most = (uint32_t)(region->capacity / sizeof(struct gm_thread)), free_slot = 0;
	uint64_t end = (gm_rec.slots_used + 1) * sizeof(struct gm_thread);

	for (uint32_t i = 1; i < gm_rec.slots_used; i++) {
		/* A thread that died inside its thread cache keeps its slot and the cached blocks for ever. */
		if (gm_rec.tids[i] == tid &&
		    gm_get_acquire(&gm_rec.slots[i].tcache_owner) != GM_TCACHE_OWNER)
			return i;
		if (!gm_rec.tids[i] && !free_slot)
			free_slot = i;
	}
	if (free_slot)
		return free_slot;
	if (gm_rec.slots_used < GM_MAX_THREADS && gm_rec.slots_used < most &&
	    gm_region_reserve_locked(header, GM_REGION_THREADS, end) == 0) {
		gm_set_release(&region->used, end);
		return gm_rec.slots_used++;
	}
	return 0;
}

/* Get a slot for this thread; NULL when there is none. */
static struct gm_slot *acquire(struct gm_header *header)
{
	uint32_t tid = (uint32_t)gm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0), index;
	struct gm_thread *thread;
	struct gm_slot *slot;

	/* The wait is short, because a record without a slot is not lost: it goes through slot 0. */
	if (!gm_lock_within(&gm_rec.journal, SLOT_WAIT_NS))
		return NULL;
	index = find_locked(header, tid);
	if (!index && gm_threads_sweep_locked())
		index = find_locked(header, tid);
	if (!index) {
		gm_count(&header->regions[GM_REGION_THREADS].refused, 1);
		gm_unlock(&gm_rec.journal);
		return NULL;
	}
	slot = &gm_rec.slots[index];
	thread = &gm_rec.threads[index];
	/* A copy of the journal is being made, which may not have held this slot (hold_slots): try again later. */
	if (gm_unlikely(atomic_load(&gm_rec.copies)) && gm_get(&slot->tcache_owner) == GM_TCACHE_NOBODY) {
		gm_tls.refused = 0;
		gm_unlock(&gm_rec.journal);
		return NULL;
	}
	if (gm_rec.tids[index])		/* the owner had our tid, so the owner has ended */
		release_locked(index);
	slot->index = index;
	slot->thread = thread;
	if (!gm_get(&thread->operations))
		gm_set(&thread->operations, (uint64_t)index << GM_OP_SLOT_SHIFT);
	slot->chunk = NULL;
	slot->place = GM_CHUNK_FULL;
	slot->chunk_wait = 0;
	/* An exchange, so that everything that the last owner did happens before our use of the slot. */
	atomic_exchange_explicit(&slot->busy, 0, memory_order_acq_rel);
	gm_rec.tids[index] = tid;
	if (gm_syscall(SYS_prctl, PR_GET_NAME, (long)(uintptr_t)thread->name, 0, 0, 0, 0) < 0)
		memset(thread->name, 0, sizeof(thread->name));
	gm_set_release(&thread->tid, tid);
	gm_unlock(&gm_rec.journal);
	return slot;
}

void gm_writer_enter_slow(struct gm_writer *writer)
{
	struct gm_header *header = gm_header_get();

	*writer = (struct gm_writer){ .slot = NULL };
	if (atomic_exchange_explicit(&gm_tls.busy, 1, memory_order_acquire)) {
		writer->nested = true;
		return;
	}
	if (!gm_tls.slot && header && gm_tls.refused++ % RETRY == 0)
		gm_tls.slot = acquire(header);
	if (!gm_tls.slot)
		return;				/* go through slot 0; @busy stays set until gm_writer_leave */
	gm_set_release(&gm_tls.busy, 0);
	writer->nested = !gm_slot_enter(gm_tls.slot);
	writer->slot = writer->nested ? NULL : gm_tls.slot;
}

uint64_t gm_op_begin(enum gm_action action, enum gm_kind kind, uint8_t domain,
		     uint64_t address, uint64_t size)
{
	return gm_op_begin_at(action, kind, domain, address, size, gm_stamp_before());
}

uint64_t gm_op_begin_at(enum gm_action action, enum gm_kind kind, uint8_t domain,
			uint64_t address, uint64_t size, uint64_t tsc)
{
	struct gm_writer writer;
	uint64_t op;

	if (gm_unlikely(!gm_header_get()))
		return 0;
	gm_writer_enter(&writer);
	op = gm_writer_op(&writer);
	if (gm_likely(writer.slot)) {
		struct gm_thread *thread = &gm_rec.threads[writer.slot->index];

		/* An operation inside another (in a callback of the driver) leaves the flight to the outer one. */
		if (gm_likely(!gm_get(&thread->flight_op))) {
			gm_order();
			thread->flight_address = address;
			thread->flight_size = size;
			thread->flight_tsc = tsc;
			thread->flight_action = (uint8_t)action;
			thread->flight_kind = (uint8_t)kind;
			thread->flight_domain = domain;
			gm_set_release(&thread->flight_op, op);
		}
	}
	gm_writer_leave(&writer);
	return op;
}

void gm_op_end(uint64_t op)
{
	uint64_t index = op >> GM_OP_SLOT_SHIFT;
	struct gm_header *header = gm_header_get();
	struct gm_thread *thread;

	if (gm_unlikely(!index || !header ||
			index >= gm_get(&header->regions[GM_REGION_THREADS].used) /
				 sizeof(*thread)))
		return;
	thread = &gm_rec.threads[index];
	if (gm_likely(gm_get(&thread->flight_op) == op))
		gm_set_release(&thread->flight_op, 0);
}

static bool try_hold_slot(struct gm_slot *slot)
{
	uint32_t nobody = GM_TCACHE_NOBODY;

	return gm_get(&slot->tcache_owner) == GM_TCACHE_NOBODY &&
	       atomic_compare_exchange_strong_explicit(&slot->tcache_owner, &nobody, GM_TCACHE_OTHER,
						       memory_order_acquire, memory_order_relaxed);
}

static bool died_within(const struct gm_slot *slot)
{
	uint32_t tid = gm_get(&gm_rec.threads[slot->index].tid);

	return gm_get(&slot->tcache_owner) == GM_TCACHE_OWNER && tid && is_dead(tid);
}

static bool hold_slot_slow(struct gm_slot *slot, uint64_t limit_ns)
{
	uint64_t seen, waited = 0;
	bool held = false;

	for (unsigned int i = 0; i < HOLD_SPINS && !held; i++) {
		gm_pause();
		held = try_hold_slot(slot);
	}
	seen = held || !limit_ns ? 0 : gm_now_ns();
	while (!held && waited < limit_ns && !died_within(slot)) {
		gm_nap(HOLD_PAUSE_NS);
		waited += gm_passed_ns(&seen, HOLD_SLICE_NS);
		held = try_hold_slot(slot);
	}
	return held;
}

bool gm_slot_hold(struct gm_slot *slot, uint64_t limit_ns)
{
	bool stuck = gm_get(&slot->tcache_stuck) != 0, held = try_hold_slot(slot);

	/* If an earlier wait ran out, the thread died there or left by longjmp: do not wait for it again. */
	if (gm_unlikely(!held))
		held = hold_slot_slow(slot, stuck ? 0 : limit_ns);
	if (gm_unlikely(held == stuck))
		gm_set(&slot->tcache_stuck, !held);
	return held;
}
