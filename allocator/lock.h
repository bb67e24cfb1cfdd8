/*
 * lock.h - the small locks of this library: one futex word, private to the process.
 *
 * Thread context: any. Signal context: gm_lock_try only. Fork: a lock may be inherited held, so
 * that the child of a process where the library runs takes none (preload/process/state.h). Not a
 * cancellation point. errno is kept.
 *
 * A lock knows its holder by the kernel's number of the thread. A thread that was cancelled while it held a
 * lock never comes back: who waits asks the kernel whether the holder still exists. A living holder may
 * also have left by longjmp, so that a wait for it has a limit, too. The limit counts the time that the
 * waiter itself waited, in slices: a stop of the process (SIGSTOP, a debugger, a frozen cgroup) is one slice
 * at most, however long it lasts. A lock whose holder is gone, or was waited for in vain, is given up: its
 * word says so, and nobody waits for it until the holder lets go of it after all. No lock is ever taken from
 * its holder: what it protects may be half changed. Who does not get a lock goes on without: the host's call
 * passes unrecorded, a free is kept until it can be done.
 *
 * Ranks: the lowest is taken first; a lock of rank GM_RANK_NONE has no order. Only locks of the
 * ranks up to GM_RANK_DRIVER are held over a driver call. Debug and sanitizer builds count what
 * breaks either rule (gm_lock_violations) and report it, but go on.
 */
#ifndef GM_ALLOCATOR_LOCK_H
#define GM_ALLOCATOR_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#if defined(GM_DEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GM_LOCK_RANKS 1
#else
#define GM_LOCK_RANKS 0
#endif

#define GM_LOCK_LIMIT_NS UINT64_C(5000000000)	/* as the waiter counts it */

/* Of a lock's word, beside the holder's number. */
#define GM_LOCK_WAITED_FOR UINT32_C(0x80000000)	/* somebody may sleep until the lock is free */
#define GM_LOCK_GIVEN_UP UINT32_C(0x40000000)	/* nobody waits: the holder is gone, or holds it too long */

enum gm_lock_rank {
	GM_RANK_NONE,
	GM_RANK_GROWTH,			/* of a device: segments come and go, and "out of memory" is decided */
	GM_RANK_CAPTURE,		/* no context-wide event is recorded while a stream captures */
	GM_RANK_GRAPHS,			/* what graphs hold: the driver's answers are recorded in their order */
	GM_RANK_DRIVER = GM_RANK_GRAPHS,	/* the last that may be held over a driver call */
	GM_RANK_POOL,			/* what a pool of the program's holds (preload/pools/) */
	GM_RANK_DOMAIN,			/* + number of the domain: the tables of a device, host, pool */
	GM_RANK_TCACHE = 140,		/* a thread's cache (recorder/journal/state.h) */
	GM_RANK_SHARED_CHUNK = 150,	/* the chunk of threads that have none of their own */
	GM_RANK_INTERN,			/* strings, stacks, frames, modules */
	GM_RANK_JOURNAL,		/* growth of the journal, thread slots, chunk pool */
	GM_RANK_LEAF			/* nothing is taken under it: the shards of a map */
};

/* @word: 0 free, else the holder's number and the two bits above. A zeroed lock is a free one without a rank. */
struct gm_lock { _Atomic(uint32_t) word; uint32_t rank; };

/* Take @lock, waiting at most @limit_ns. @for_all: after a wait in vain the lock is given up. Returns true when
 * the lock is held. */
bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns, bool for_all);
void gm_lock_wake(struct gm_lock *lock);

/* The kernel's number of this thread; 0: not asked for yet. */
extern __thread uint32_t gm_lock_thread __attribute__((visibility("hidden")));
uint32_t gm_lock_find_thread(void);

/* In the child of a fork: its one thread has another number than in the parent. */
void gm_lock_forked(void);

/* How often this process took a lock against the ranks, or called the driver under one; always 0 where
 * that is not checked. */
uint64_t gm_lock_violations(void);

#if GM_LOCK_RANKS
void gm_lock_rank_taken(const struct gm_lock *lock, bool waited);
void gm_lock_rank_released(const struct gm_lock *lock);
void gm_lock_rank_driver(void);		/* the driver is about to be called */
#else
static inline void gm_lock_rank_taken(const struct gm_lock *lock, bool waited)
{
	(void)lock;
	(void)waited;
}
static inline void gm_lock_rank_released(const struct gm_lock *lock)
{
	(void)lock;
}
static inline void gm_lock_rank_driver(void)
{
}
#endif

/* Sleep for @ns nanoseconds, less than a second; a signal ends it early. */
void gm_nap(long ns);

/* CLOCK_MONOTONIC in ns, for intervals. It goes on while the process is stopped: for limits of waits see
 * gm_passed_ns. */
uint64_t gm_now_ns(void);

/* The time since *@seen_ns (gm_now_ns), but @most_ns at most; *@seen_ns becomes now. Who waits in slices of @most_ns
 * adds this up: then a stop of the process counts as one slice, and those who are waited for get their turn
 * before the limit is over. */
static inline uint64_t gm_passed_ns(uint64_t *seen_ns, uint64_t most_ns)
{
	uint64_t now = gm_now_ns(), passed = now - *seen_ns;

	*seen_ns = now;
	return passed < most_ns ? passed : most_ns;
}

/* A pause of some 50 ns between two loads of a word that another thread will change. (YIELD does
 * nothing on most aarch64 processors; ISB takes about as long as PAUSE.) */
static inline void gm_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" : : : "memory");
#endif
}

/* Stores before this call reach memory before stores after it. For the journal of a killed process
 * it is enough that the compiler keeps the order: the processor stops between two instructions, and
 * earlier stores still get to memory. A reader of a living process, on another processor, needs the
 * processor's order as well, which x86-64 keeps for all stores. */
static inline void gm_order(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb ishst" : : : "memory");
#else
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline bool gm_lock_grab(struct gm_lock *lock)
{
	uint32_t free_word = 0, self = gm_lock_thread;

	if (__builtin_expect(!self, 0))
		self = gm_lock_find_thread();
	return __atomic_compare_exchange_n((uint32_t *)&lock->word, &free_word, self, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Take @lock if nobody holds it. Async-signal-safe. It cannot deadlock, and so is in no order of
 * ranks. */
static inline bool gm_lock_try(struct gm_lock *lock)
{
	if (!gm_lock_grab(lock))
		return false;
	gm_lock_rank_taken(lock, false);
	return true;
}

/* Take @lock, waiting at most @limit_ns: this call's own limit, which says nothing about the lock. */
static inline bool gm_lock_within(struct gm_lock *lock, uint64_t limit_ns)
{
	if (!gm_lock_grab(lock) && !gm_lock_slow(lock, limit_ns, false))
		return false;
	gm_lock_rank_taken(lock, limit_ns > 0);
	return true;
}

/* Take @lock, waiting @limit_ns, which is longer than anybody should hold it. */
static inline bool gm_lock_once(struct gm_lock *lock, uint64_t limit_ns)
{
	if (!gm_lock_grab(lock) && !gm_lock_slow(lock, limit_ns, true))
		return false;
	gm_lock_rank_taken(lock, true);
	return true;
}

static inline bool gm_lock(struct gm_lock *lock)
{
	return gm_lock_once(lock, GM_LOCK_LIMIT_NS);
}

static inline void gm_unlock(struct gm_lock *lock)
{
	gm_lock_rank_released(lock);
	if (__atomic_exchange_n((uint32_t *)&lock->word, 0, __ATOMIC_RELEASE) & GM_LOCK_WAITED_FOR)
		gm_lock_wake(lock);
}

#endif
