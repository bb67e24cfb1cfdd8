/*
 * lock.h - the small locks of this library: one futex word, private to the process.
 *
 * Thread context: any. Signal context: gm_lock_try only. Fork: a lock may be inherited held, so
 * that the child of a process where the library runs takes none (preload/process/state.h). Not a
 * cancellation point. errno is kept.
 *
 * No wait is without end: gm_lock gives up after GM_LOCK_LIMIT_NS (the holder was killed by
 * asynchronous cancellation, say) and the caller then lets the host's call pass unrecorded.
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

#define GM_LOCK_LIMIT_NS UINT64_C(5000000000)

enum gm_lock_rank {
	GM_RANK_NONE,
	GM_RANK_GROWTH,			/* of a device: segments come and go, and "out of memory" is decided */
	GM_RANK_MOMENTS,		/* the events that tell which pages may move (preload/cache/cache_moments.c) */
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

/* @word: 0 free, 1 held, 2 held and waited for. A zeroed lock is a free one without a rank. */
struct gm_lock { _Atomic(uint32_t) word; uint32_t rank; };

/* Take @lock, waiting at most @limit_ns. Returns true when it is held. */
bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns);
void gm_lock_wake(struct gm_lock *lock);

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

/* CLOCK_MONOTONIC in ns, for limits and intervals. */
uint64_t gm_now_ns(void);

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
	uint32_t free_word = 0;

	return __atomic_compare_exchange_n((uint32_t *)&lock->word, &free_word, 1, false,
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

/* gm_lock_slow, which waits, where the lock is not free at once. */
static inline bool gm_lock_within(struct gm_lock *lock, uint64_t limit_ns)
{
	if (!gm_lock_grab(lock) && !gm_lock_slow(lock, limit_ns))
		return false;
	gm_lock_rank_taken(lock, limit_ns > 0);
	return true;
}

/* The same, waiting at most GM_LOCK_LIMIT_NS. */
static inline bool gm_lock(struct gm_lock *lock)
{
	return gm_lock_within(lock, GM_LOCK_LIMIT_NS);
}

static inline void gm_unlock(struct gm_lock *lock)
{
	gm_lock_rank_released(lock);
	if (__atomic_exchange_n((uint32_t *)&lock->word, 0, __ATOMIC_RELEASE) == 2)
		gm_lock_wake(lock);
}

#endif
