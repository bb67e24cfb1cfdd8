/*
 * lock.h - the small locks of this library: one futex word, private to the process.
 *
 * Thread context: any. Signal context: only gm_lock_try. Fork: a child may inherit a held lock, so the child of a
 * process where the library runs takes no lock (preload/process/state.h). Not a cancellation point. Keeps errno.
 *
 * A lock knows its holder by the kernel's id of the thread. A thread that is cancelled while it holds a lock never
 * releases it, so a waiter asks the kernel whether the holder still exists. A living holder may have left the
 * library by longjmp, so the wait for it has a limit, too. The limit counts the time that the waiter itself has
 * waited, in slices: a stop of the process (SIGSTOP, a debugger, a frozen cgroup) counts as at most one slice,
 * however long it lasts. If the holder is gone, or the limit has run out, the lock is given up: its word says so,
 * and nobody waits for the lock until the holder releases it after all. No lock is ever taken from its holder,
 * because the data under it may be half changed. A thread that does not get a lock goes on without it: the host's
 * call passes unrecorded, and a free is queued.
 *
 * Ranks: locks of lower rank are taken first; a lock of rank GM_RANK_NONE has no order. Only locks of the ranks up
 * to GM_RANK_DRIVER are held over a call of the driver. Debug and sanitizer builds count violations of both rules
 * (gm_lock_violations) and report them, but go on.
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

#define GM_LOCK_LIMIT_NS UINT64_C(5000000000)	/* counted by the waiter */

/* Bits of a lock's word beside the holder's id. */
#define GM_LOCK_WAITED_FOR UINT32_C(0x80000000)	/* a thread may sleep until the lock is free */
#define GM_LOCK_GIVEN_UP UINT32_C(0x40000000)	/* nobody waits: the holder is gone, or holds it too long */

enum gm_lock_rank {
	GM_RANK_NONE,
	GM_RANK_GROWTH,			/* of a device: adding segments, deciding "out of memory" */
	GM_RANK_CAPTURE,		/* keeps events of whole contexts and captures apart */
	GM_RANK_GRAPHS,			/* keeps the driver's answers about graphs in their order */
	GM_RANK_DRIVER = GM_RANK_GRAPHS,	/* the highest rank that is held over a driver call */
	GM_RANK_POOL,			/* pieces of a pool of the program (preload/pools/) */
	GM_RANK_DOMAIN,			/* + number of the domain: the tables of a device, host, pool */
	GM_RANK_TCACHE = 140,		/* a thread's caches (recorder/journal/state.h) */
	GM_RANK_SHARED_CHUNK = 150,	/* the chunk of threads without a chunk of their own */
	GM_RANK_INTERN,			/* strings, stacks, frames, modules */
	GM_RANK_JOURNAL,		/* growth of the journal, thread slots, chunk pool */
	GM_RANK_LEAF			/* no lock is taken under it: the shards of a map */
};

/* @word: 0: free; else the holder's id and the two bits above. A zeroed lock is free and has no rank. */
struct gm_lock { _Atomic(uint32_t) word; uint32_t rank; };

/* Take @lock, waiting at most @limit_ns. @for_all: give the lock up when the wait runs out. Returns true when the
 * lock is held. */
bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns, bool for_all);
void gm_lock_wake(struct gm_lock *lock);

/* The kernel's id of this thread; 0: not known yet. */
extern __thread uint32_t gm_lock_thread __attribute__((visibility("hidden")));
uint32_t gm_lock_find_thread(void);

/* Forget the id of this thread. Called in the child of a fork, whose only thread has another id than in the
 * parent. */
void gm_lock_forked(void);

/* Return how often this process has taken a lock against the ranks, or called the driver under a lock. Always 0
 * in builds without these checks. */
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

/* Sleep for @ns nanoseconds, which must be less than a second. A signal ends the sleep early. */
void gm_nap(long ns);

/* Return CLOCK_MONOTONIC in ns, for intervals. The clock goes on while the process is stopped; for limits of waits
 * use gm_passed_ns. */
uint64_t gm_now_ns(void);

/* Return the time since *@seen_ns (gm_now_ns), at most @most_ns, and set *@seen_ns to now. A thread that waits in
 * slices of @most_ns adds these times up. A stop of the process then counts as one slice, so the threads that are
 * waited for get their turn before the limit is over. */
static inline uint64_t gm_passed_ns(uint64_t *seen_ns, uint64_t most_ns)
{
	uint64_t now = gm_now_ns(), passed = now - *seen_ns;

	*seen_ns = now;
	return passed < most_ns ? passed : most_ns;
}

/* Pause for some 50 ns between two loads of a word that another thread will change. (On most aarch64 processors
 * YIELD does nothing; ISB takes about as long as PAUSE.) */
static inline void gm_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" : : : "memory");
#endif
}

/* Let stores before this call reach memory before stores after it. For the journal of a killed process the order of
 * the compiler suffices, because a processor stops between two instructions and earlier stores still reach memory.
 * A reader of a living process, on another processor, also needs the order of the processor, which x86-64 keeps for
 * all stores. */
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

/* Take @lock if nobody holds it. Async-signal-safe. This cannot deadlock, so ranks do not matter. */
static inline bool gm_lock_try(struct gm_lock *lock)
{
	if (!gm_lock_grab(lock))
		return false;
	gm_lock_rank_taken(lock, false);
	return true;
}

/* Take @lock, waiting at most @limit_ns. The limit is the caller's own: when it runs out, the lock is not given up. */
static inline bool gm_lock_within(struct gm_lock *lock, uint64_t limit_ns)
{
	if (!gm_lock_grab(lock) && !gm_lock_slow(lock, limit_ns, false))
		return false;
	gm_lock_rank_taken(lock, limit_ns > 0);
	return true;
}

/* Take @lock, waiting at most @limit_ns, which must be longer than any thread should hold it: when the limit runs
 * out, the lock is given up. */
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
