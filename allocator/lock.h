/*
 * lock.h - the small locks of this library: one futex word, private to the process.
 *
 * Thread context: any. Signal context: gm_lock_try only. Fork: locks live in state that a child
 * resets before use (preload/state.h), so none is ever inherited locked. Not a cancellation point.
 *
 * No wait is without end: gm_lock gives up after GM_LOCK_LIMIT_NS (the holder was killed by
 * asynchronous cancellation, say) and the caller then lets the host's call pass unrecorded.
 *
 * Ranks, lowest taken first: growth (of a device) < capture < domain (in the order of their
 * numbers) < journal < leaf.
 */
#ifndef GM_ALLOCATOR_LOCK_H
#define GM_ALLOCATOR_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#define GM_LOCK_LIMIT_NS UINT64_C(5000000000)

struct gm_lock { _Atomic(uint32_t) word; };	/* 0 free, 1 held, 2 held and waited for */

/* Take @lock, waiting at most GM_LOCK_LIMIT_NS. Returns true when it is held. */
bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns);

static inline bool gm_lock_try(struct gm_lock *lock)
{
	uint32_t free_word = 0;

	return __atomic_compare_exchange_n((uint32_t *)&lock->word, &free_word, 1, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline bool gm_lock_within(struct gm_lock *lock, uint64_t limit_ns)
{
	return gm_lock_try(lock) || gm_lock_slow(lock, limit_ns);
}

static inline bool gm_lock(struct gm_lock *lock)
{
	return gm_lock_within(lock, GM_LOCK_LIMIT_NS);
}

void gm_lock_wake(struct gm_lock *lock);

static inline void gm_unlock(struct gm_lock *lock)
{
	if (__atomic_exchange_n((uint32_t *)&lock->word, 0, __ATOMIC_RELEASE) == 2)
		gm_lock_wake(lock);
}

#endif
