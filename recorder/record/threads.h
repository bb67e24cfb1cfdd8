/*
 * threads.h - the threads that write: a slot for each, found through TLS.
 *
 * A slot is entered for the length of one record and left again; @busy keeps out any other code
 * with the same TLS: a signal handler that interrupted this thread, or a raw clone() that shares
 * its thread pointer. These, and threads that found no slot, write through slot 0: their operations
 * are numbered there and their events go into the shared chunk. @tcache_owner does the same for a
 * thread in its thread caches (thread_cache.c), where @busy is not needed.
 *
 * Thread context: any. Signal context: a handler may enter (it finds the slot busy and never
 * waits). No TLS destructor and no pthread key: the slots of dead threads are found by
 * tgkill(pid, tid, 0).
 */
#ifndef GM_RECORDER_THREADS_H
#define GM_RECORDER_THREADS_H

#include <sys/syscall.h>

#include "recorder/journal/probe.h"
#include "recorder/journal/state.h"

struct gm_thread_local {
	struct gm_slot *slot;		/* NULL: none */
	uint32_t refused;		/* times that no slot was to be had */
	_Atomic(uint32_t) busy;		/* as in a slot, while this thread has none */
};
extern __thread struct gm_thread_local gm_tls __attribute__((visibility("hidden")));

/* For the check of ranks alone. */
extern const struct gm_lock gm_tcache_rank __attribute__((visibility("hidden")));

/* One record under way. */
struct gm_writer {
	struct gm_slot *slot;		/* NULL: goes through slot 0 */
	bool nested;			/* this thread may hold our locks already: never wait for one */
};

/* The thread of @slot is about to record through it. False: it is doing so already, or is in a
 * thread cache (thread_cache.c). Each of these two stores its own word and then loads the other's,
 * both seq_cst, so that of a thread and a raw clone() of it one is kept out. */
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

/* Enter without a slot, or after getting one. */
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

/* Enter as the one who may change what belongs to this thread alone: its thread caches, and lines in the tables of
 * pools. Returns the thread's slot; NULL: it has none, or somebody is in it (a signal handler interrupted this
 * thread, a raw clone() shares its slot, a reader copies the journal). Never waits. */
static inline struct gm_slot *gm_slot_enter_own(void)
{
	struct gm_slot *slot = gm_tls.slot;
	uint32_t nobody = GM_TCACHE_NOBODY;

	if (gm_unlikely(!slot))
		return NULL;
	/* Both seq_cst: gm_slot_enter. */
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

/* The next operation number of the writer. */
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

/* The kernel's number of this thread. */
static inline uint32_t gm_writer_tid(const struct gm_writer *writer)
{
	if (gm_likely(writer->slot))
		return gm_get(&writer->slot->thread->tid);
	return (uint32_t)gm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* Give back the slots and close the chunks of threads that have ended. Bounded; takes the journal
 * lock. */
void gm_threads_sweep(void);
/* The same with the journal lock held, at most once in 100 ms. Returns how many were freed. */
unsigned int gm_threads_sweep_locked(void);

/* Keep the thread of @slot out of its thread caches, waiting at most @limit_ns. The domain locks
 * are taken before. False: it could not be kept out. True: the caller sets @tcache_owner to
 * GM_TCACHE_NOBODY in the end. */
bool gm_slot_hold(struct gm_slot *slot, uint64_t limit_ns);

#endif
