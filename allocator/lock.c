/*
 * lock.c - waiting for a lock, and the check of ranks.
 *
 * Thread, signal and fork context: see lock.h. The ranks that a thread holds are in its thread-local storage.
 */
#include "allocator/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Spin for some 25 us in all. This is long enough for a queue of running holders (a transaction takes 50 ns; a
 * sleep and its wake cost both threads some 10 us), and short enough not to matter when a holder was preempted. The
 * pauses grow, so that waiting threads do not keep the lock's cache line from the holder. */
#define SPINS 48
#define PAUSES 16

#define SLICE_NS UINT64_C(10000000)	/* of a wait, between looks at the holder */
#define HOLDER (~(GM_LOCK_WAITED_FOR | GM_LOCK_GIVEN_UP))

__thread uint32_t gm_lock_thread;
static _Atomic(uint32_t) process;	/* pid for which the ids of threads are valid; 0: none is known yet */

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

/* Does not use nanosleep(3), which is a cancellation point: a cancelled thread would hold its locks for ever. */
void gm_nap(long ns)
{
	const struct timespec pause = { 0, ns };
	int saved_errno = errno;

	syscall(SYS_nanosleep, &pause, NULL);
	errno = saved_errno;
}

uint32_t gm_lock_find_thread(void)
{
	uint32_t none = 0;

	atomic_compare_exchange_strong(&process, &none, (uint32_t)getpid());
	gm_lock_thread = (uint32_t)syscall(SYS_gettid);
	return gm_lock_thread;
}

void gm_lock_forked(void)
{
	gm_lock_thread = 0;
	atomic_store(&process, (uint32_t)getpid());
}

/* Has the thread @holder ended? Not known in a child that did not call gm_lock_forked, because its first thread
 * still uses the id that it had in the parent. */
static bool is_gone(uint32_t holder)
{
	pid_t pid = getpid();

	return atomic_load(&process) == (uint32_t)pid && syscall(SYS_tgkill, pid, holder, 0) < 0 &&
	       errno == ESRCH;
}

/* Set @bit (GM_LOCK_WAITED_FOR or GM_LOCK_GIVEN_UP) in the lock's word. Returns false when the word is no longer
 * *@word. */
static bool mark(struct gm_lock *lock, uint32_t *word, uint32_t bit)
{
	if (*word & bit)
		return true;
	if (!__atomic_compare_exchange_n((uint32_t *)&lock->word, word, *word | bit, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return false;
	*word |= bit;
	return true;
}

/* Wait for the lock and take it. A thread that takes it here also sets GM_LOCK_WAITED_FOR, because other threads may be
 * waiting; this costs at most one needless wake. */
static bool wait_for(struct gm_lock *lock, uint64_t limit_ns, bool for_all)
{
	const struct timespec slice = { 0, (long)(limit_ns < SLICE_NS ? limit_ns : SLICE_NS) };
	uint32_t self = (uint32_t)syscall(SYS_gettid), holder = 0, word;
	uint64_t seen = gm_now_ns(), waited = 0;

	for (;;) {
		word = __atomic_load_n((uint32_t *)&lock->word, __ATOMIC_RELAXED);
		if (!word) {
			if (__atomic_compare_exchange_n((uint32_t *)&lock->word, &word,
							gm_lock_thread | GM_LOCK_WAITED_FOR, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return true;
			continue;
		}
		/* If this thread holds the lock itself, a signal handler has interrupted the holder, or the holder once
		 * left one of our functions by longjmp. */
		if (word & GM_LOCK_GIVEN_UP || (word & HOLDER) == self)
			return false;
		if ((word & HOLDER) != holder) {	/* another thread has it now: the lock moves */
			holder = word & HOLDER;
			waited = 0;
		} else if (is_gone(holder) || (waited >= limit_ns && for_all)) {
			if (mark(lock, &word, GM_LOCK_GIVEN_UP))
				return false;
			continue;
		} else if (waited >= limit_ns) {
			return false;
		}
		if (!mark(lock, &word, GM_LOCK_WAITED_FOR))
			continue;
		futex(lock, FUTEX_WAIT, word, &slice);
		waited += gm_passed_ns(&seen, SLICE_NS);
	}
}

bool gm_lock_slow(struct gm_lock *lock, uint64_t limit_ns, bool for_all)
{
	int saved_errno = errno;
	unsigned int pauses = 1;
	uint32_t word;
	bool held;

	for (int i = 0; i < SPINS; i++) {
		word = __atomic_load_n((uint32_t *)&lock->word, __ATOMIC_RELAXED);
		if (word == 0 && gm_lock_grab(lock))
			return true;
		if (word & GM_LOCK_GIVEN_UP)
			return false;
		for (unsigned int n = 0; n < pauses; n++)
			gm_pause();
		if (pauses < PAUSES)
			pauses *= 2;
	}
	if (!limit_ns)
		return false;
	held = wait_for(lock, limit_ns, for_all);
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

/* Print a violation for the person who runs the tests. */
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
