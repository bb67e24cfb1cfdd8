/*
 * threads.h - the threads that write: a slot for each thread, found through TLS.
 *
 * A thread enters its slot for each record and leaves it afterwards. @busy keeps out other code with the
 * same TLS: a signal handler that interrupted this thread, or a raw clone() that shares its thread pointer.
 * Such code, and threads without a slot, write through slot 0: their operations are numbered there, and
 * their events go into the shared chunk. Inside its thread caches (thread_cache.c) a thread uses
 * @tcache_owner in the same way, instead of @busy.
 *
 * Thread context: any. Signal context: a handler may enter: it finds the slot busy and never waits. There
 * is no TLS destructor and no pthread key, because tgkill(pid, tid, 0) finds the slots of dead threads.
 */
#ifndef GM_RECORDER_THREADS_H
#define GM_RECORDER_THREADS_H

#include <sys/syscall.h>

#include "recorder/journal/probe.h"
#include "recorder/journal/state.h"

struct gm_thread_local {
	struct gm_slot *slot;		/* NULL: none */
	uint32_t refused;		/* records begun without a slot: now and then the thread asks for one again */
	_Atomic(uint32_t) busy;		/* as @busy of a slot, while this thread has no slot */
};
extern __thread struct gm_thread_local gm_tls __attribute__((visibility("hidden")));

/* Stands for @tcache_owner in the check of lock ranks, and has no other use. */
extern const struct gm_lock gm_tcache_rank __attribute__((visibility("hidden")));

/* One record under way. */
struct gm_writer {
	struct gm_slot *slot;		/* NULL: the record goes through slot 0 */
	bool nested;			/* this thread may already hold our locks, so it waits for none */
};

/* Enter @slot for one record. Returns false when its thread is already in a record, or in its thread caches. A thread
 * and a raw clone() of it may run this function and gm_slot_enter_own at once. Each stores its own word and then loads
 * the other's, both seq_cst, so at most one of them gets in. */
static inline bool gm_slot_enter(struct gm_slot *slot)
{
	if (atomic_exchange_explicit(&slot->busy, 1, memory_order_seq_cst))
		return false;
	if (gm_likely(atomic_load_explicit(&slot->tcache_owner, memory_order_seq_cst) !=
		      GM_TCACHE_OWNER))
		return true;
	gm_set_release(&slot->busy, 0);
	return false;
}

/* Enter for a thread that has no slot yet: get one, or go through slot 0. */
void gm_writer_enter_slow(struct gm_writer *writer);

static inline void gm_writer_enter(struct gm_writer *writer)
{
	struct gm_slot *slot = gm_tls.slot;

	if (gm_unlikely(!slot)) {
		gm_writer_enter_slow(writer);
		return;
	}
	writer->nested = !gm_slot_enter(slot);
	writer->slot = gm_likely(!writer->nested) ? slot : NULL;
}

static inline void gm_writer_leave(const struct gm_writer *writer)
{
	if (gm_likely(writer->slot))
		gm_set_release(&writer->slot->busy, 0);
	else if (!writer->nested)
		gm_set_release(&gm_tls.busy, 0);
}

/* Enter this thread's slot for a change without the domain's lock: of its thread caches, or of lines in the tables of
 * pools. Returns the slot; NULL when the thread has no slot, or other code is in it (a signal handler interrupted this
 * thread, a raw clone() shares the slot, a reader copies the journal). Never waits. */
static inline struct gm_slot *gm_slot_enter_own(void)
{
	struct gm_slot *slot = gm_tls.slot;
	uint32_t nobody = GM_TCACHE_NOBODY;

	if (gm_unlikely(!slot))
		return NULL;
	/* Both seq_cst: see gm_slot_enter. */
	if (gm_unlikely(!atomic_compare_exchange_strong_explicit(&slot->tcache_owner, &nobody, GM_TCACHE_OWNER,
								 memory_order_seq_cst, memory_order_relaxed)))
		return NULL;
	if (gm_unlikely(atomic_load_explicit(&slot->busy, memory_order_seq_cst))) {
		gm_set_release(&slot->tcache_owner, GM_TCACHE_NOBODY);
		return NULL;
	}
	gm_lock_rank_taken(&gm_tcache_rank, false);
	return slot;
}

static inline void gm_slot_leave_own(struct gm_slot *slot)
{
	gm_lock_rank_released(&gm_tcache_rank);
	gm_set_release(&slot->tcache_owner, GM_TCACHE_NOBODY);
}

/* Take the writer's next operation number. */
static inline uint64_t gm_writer_op(const struct gm_writer *writer)
{
	if (gm_likely(writer->slot)) {
		struct gm_thread *thread = writer->slot->thread;
		uint64_t op = gm_get(&thread->operations) + 1;

		gm_set(&thread->operations, op);
		return op;
	}
	return atomic_fetch_add_explicit(&gm_rec.threads[0].operations, 1,
					 memory_order_relaxed) + 1;
}

/* Return the tid of this thread. */
static inline uint32_t gm_writer_tid(const struct gm_writer *writer)
{
	if (gm_likely(writer->slot))
		return gm_get(&writer->slot->thread->tid);
	return (uint32_t)gm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* Free the slots and close the chunks of threads that have ended. Takes the journal lock, with a short limit. */
void gm_threads_sweep(void);
/* As gm_threads_sweep, for the holder of the journal lock; at most once in 100 ms. Returns how many slots were
 * freed. */
unsigned int gm_threads_sweep_locked(void);

/* Keep the thread of @slot out of its thread caches, waiting at most @limit_ns. Take domain locks before, never after.
 * Returns false when the thread could not be kept out. After true the caller must store GM_TCACHE_NOBODY in
 * @tcache_owner to let the thread in again. */
bool gm_slot_hold(struct gm_slot *slot, uint64_t limit_ns);

#endif
