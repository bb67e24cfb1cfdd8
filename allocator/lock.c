/*
 * lock.c - the slow side of the locks, and the check of their ranks.
 *
 * Thread, signal and fork context: see lock.h. The held ranks of a thread are its own (TLS).
 */
#include "allocator/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Some 25 us in all: long enough for a queue of holders that are running (a transaction takes 50 ns,
 * a sleep and its wake some 10 us of both), short enough not to matter when one was preempted. The
 * pauses grow, so that those who wait do not keep the word from who holds it. */
#define SPINS 48
#define PAUSES 16

uint64_t gm_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void futex(struct gm_lock *lock, int op, uint32_t value, const struct timespec *timeout)
{
	syscall(SYS_futex, (uint32_t *)&lock->word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* Not nanosleep(3): a thread cancelled there would hold for good what it holds. */
void gm_nap(long ns)
{
	const struct timespec pause = { 0, ns };
	int saved_errno = errno;

	syscall(SYS_nanosleep, &pause, NULL);
	errno = saved_errno;
}

bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns)
{
	int saved_errno = errno;
	unsigned int pauses = 1;
	uint64_t now, deadline;
	bool held = false;

	for (int i = 0; i < SPINS; i++) {
		if (__atomic_load_n((uint32_t *)&lock->word, __ATOMIC_RELAXED) == 0 &&
		    gm_lock_grab(lock))
			return true;
		for (unsigned int n = 0; n < pauses; n++)
			gm_pause();
		if (pauses < PAUSES)
			pauses *= 2;
	}
	if (!limit_ns)
		return false;
	now = gm_now_ns();
	deadline = now + limit_ns;
	/* 2 tells the holder that somebody may sleep. Whoever takes the lock this way leaves 2
	 * behind, which costs at most one needless wake. */
	while (!(held = __atomic_exchange_n((uint32_t *)&lock->word, 2, __ATOMIC_ACQUIRE) == 0)) {
		struct timespec timeout;

		if (now >= deadline)
			break;
		timeout.tv_sec = (time_t)((deadline - now) / UINT64_C(1000000000));
		timeout.tv_nsec = (long)((deadline - now) % UINT64_C(1000000000));
		futex(lock, FUTEX_WAIT, 2, &timeout);
		now = gm_now_ns();
	}
	errno = saved_errno;
	return held;
}

void gm_lock_wake(struct gm_lock *lock)
{
	int saved_errno = errno;

	futex(lock, FUTEX_WAKE, 1, NULL);
	errno = saved_errno;
}

static uint64_t violations;

uint64_t gm_lock_violations(void)
{
	return __atomic_load_n(&violations, __ATOMIC_RELAXED);
}

#if GM_LOCK_RANKS
#define HELD_MAX 160

static __thread struct { uint32_t count, rank[HELD_MAX]; } held;

/* Said to whoever runs the tests; who reads the count alone may well have wanted it. */
static void violation(const char *what)
{
	static const char begin[] = "gm_lock: ";

	__atomic_fetch_add(&violations, 1, __ATOMIC_RELAXED);
	if (write(STDERR_FILENO, begin, sizeof(begin) - 1) < 0 ||
	    write(STDERR_FILENO, what, strlen(what)) < 0)
		return;
}

void gm_lock_rank_taken(const struct gm_lock *lock, bool waited)
{
	for (uint32_t i = 0; waited && lock->rank != GM_RANK_NONE && i < held.count; i++) {
		if (held.rank[i] >= lock->rank) {
			violation("taken against the ranks\n");
			break;
		}
	}
	if (held.count < HELD_MAX)
		held.rank[held.count++] = lock->rank;
}

void gm_lock_rank_released(const struct gm_lock *lock)
{
	for (uint32_t i = held.count; i-- > 0;) {
		if (held.rank[i] == lock->rank) {
			held.rank[i] = held.rank[--held.count];
			return;
		}
	}
}

void gm_lock_rank_driver(void)
{
	for (uint32_t i = 0; i < held.count; i++) {
		if (held.rank[i] == GM_RANK_NONE || held.rank[i] > GM_RANK_DRIVER) {
			violation("held over a driver call\n");
			break;
		}
	}
}
#endif
