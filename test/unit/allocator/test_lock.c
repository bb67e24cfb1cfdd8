/* The locks: exclusion, sleeping and waking, limits, holders that are gone or stopped, ranks, errno. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "test/suite.h"
#include "test/unit/leaps.h"

static struct gm_lock lock;
static unsigned long counter;		/* lock: lock */

/* Another thread that holds @lock until it is told to let go, or for ever. */
static struct holder { pthread_t thread; _Atomic(int) holds, let_go; } holder;

static void *hold(void *arg)
{
	(void)arg;
	if (!gm_lock(&lock))
		abort();
	holder.holds = 1;
	while (!holder.let_go)
		usleep(100);
	gm_unlock(&lock);
	return NULL;
}

static void *hold_and_end(void *arg)
{
	(void)arg;
	if (!gm_lock(&lock))
		abort();
	return NULL;
}

static void begin_holder(void)
{
	ck_assert_int_eq(pthread_create(&holder.thread, NULL, hold, NULL), 0);
	while (!holder.holds)
		usleep(100);
}

static void end_holder(void)
{
	holder.let_go = 1;
	pthread_join(holder.thread, NULL);
}

START_TEST(test_try)
{
	ck_assert(gm_lock_try(&lock));
	ck_assert(!gm_lock_try(&lock));
	ck_assert(!gm_lock_within(&lock, 0));
	gm_unlock(&lock);
	ck_assert(gm_lock(&lock));
	gm_unlock(&lock);
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

START_TEST(test_gives_up)
{
	begin_holder();
	errno = 1234;
	ck_assert(!gm_lock_within(&lock, 2000000));
	ck_assert_int_eq(errno, 1234);
	ck_assert(!(lock.word & GM_LOCK_GIVEN_UP));	/* the limit was the call's own */
	/* A waiter that gave up has left its bit behind: unlock and lock still work. */
	end_holder();
	errno = 1234;
	ck_assert(gm_lock_within(&lock, 2000000));
	gm_unlock(&lock);
	ck_assert_int_eq(errno, 1234);
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

/* A handler that interrupted the holder, or a holder that jumped out, does not wait for itself. */
START_TEST(test_own)
{
	unsigned long before;

	ck_assert(gm_lock(&lock));
	before = readings;
	ck_assert(!gm_lock(&lock));
	ck_assert_uint_le(readings, before + 1);
	ck_assert(!(lock.word & GM_LOCK_GIVEN_UP));
	gm_unlock(&lock);
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

static _Atomic(int) over;

static void *lock_once(void *arg)
{
	bool held = gm_lock(arg);

	over = 1;
	if (!held)
		return NULL;
	gm_unlock(arg);
	return arg;
}

/* The process stands still for hours again and again while one thread waits for another. */
START_TEST(test_stopped)
{
	pthread_t waiter;
	void *got;

	begin_holder();
	leap = 3600;
	ck_assert_int_eq(pthread_create(&waiter, NULL, lock_once, &lock), 0);
	await_readings(10, &over);
	end_holder();
	pthread_join(waiter, &got);
	end_leaps();
	ck_assert_ptr_nonnull(got);
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

/* The holder has ended: nobody waits as long as for a living one, and the next does not wait at all. */
START_TEST(test_gone)
{
	pthread_t thread;
	unsigned long before;

	ck_assert_int_eq(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert(!gm_lock_within(&lock, UINT64_C(3600000000000)));
	ck_assert(lock.word & GM_LOCK_GIVEN_UP);
	before = readings;
	for (int i = 0; i < 3; i++)
		ck_assert(!gm_lock(&lock));
	ck_assert_uint_eq(readings, before);
}
END_TEST

/* What was given up is taken up again: its holder was alive, and lets go after all. */
START_TEST(test_taken_up)
{
	unsigned long before;

	begin_holder();
	leap = 3600;
	before = readings;
	ck_assert(!gm_lock_once(&lock, 50000000));
	end_leaps();
	ck_assert_uint_ge(readings - before, 5);	/* looks at it, each of which counts 10 ms at most */
	ck_assert(lock.word & GM_LOCK_GIVEN_UP);
	before = readings;
	ck_assert(!gm_lock(&lock));
	ck_assert_uint_eq(readings, before);
	end_holder();
	for (int i = 0; i < 3; i++) {
		ck_assert(gm_lock(&lock));
		gm_unlock(&lock);
	}
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

static void end_child(int pid)
{
	int status = -1;

	ck_assert_int_ge(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

/* In the child of a fork nobody waits for a thread that is the parent's alone. */
START_TEST(test_forked)
{
	int pid;

	begin_holder();
	pid = fork();
	if (!pid) {
		gm_lock_forked();
		if (gm_lock_within(&lock, UINT64_C(3600000000000)) || !(lock.word & GM_LOCK_GIVEN_UP))
			_exit(1);
		_exit(0);
	}
	end_child(pid);
	end_holder();
}
END_TEST

static void *hold_for_child(void *arg)
{
	return gm_lock_within(arg, 50000000) ? arg : NULL;
}

/* Where nobody told of the fork its first thread still goes by the parent's number, and is not taken for
 * gone. */
START_TEST(test_forked_silently)
{
	int pid;

	ck_assert(gm_lock(&lock));
	gm_unlock(&lock);
	pid = fork();
	if (!pid) {
		pthread_t thread;
		void *got;

		if (!gm_lock(&lock) || pthread_create(&thread, NULL, hold_for_child, &lock) ||
		    pthread_join(thread, &got) || got || lock.word & GM_LOCK_GIVEN_UP)
			_exit(1);
		gm_unlock(&lock);
		_exit(0);
	}
	end_child(pid);
}
END_TEST

static void *count(void *arg)
{
	unsigned long times = *(const unsigned long *)arg;

	for (unsigned long i = 0; i < times; i++) {
		if (!gm_lock(&lock))
			abort();
		counter++;		/* a data race, were it not for the lock */
		gm_unlock(&lock);
	}
	return NULL;
}

START_TEST(test_exclusion)
{
	unsigned long times = 20000;
	pthread_t threads[16];

	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count, &times), 0);
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(counter, 16 * times);
	ck_assert_uint_eq(lock.word, 0);
}
END_TEST

/* Each sleeper must be woken: 16 of them wait, and every unlock lets one go on. */
static void *sleep_for_it(void *arg)
{
	(void)arg;
	if (!gm_lock_within(&lock, UINT64_C(60000000000)))
		return (void *)1;
	counter++;
	gm_unlock(&lock);
	return NULL;
}

START_TEST(test_sleepers)
{
	pthread_t threads[16];

	ck_assert(gm_lock(&lock));
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, sleep_for_it, NULL), 0);
	usleep(50000);			/* most of them sleep by now; correct either way */
	ck_assert_uint_eq(counter, 0);
	gm_unlock(&lock);
	for (int i = 0; i < 16; i++) {
		void *result;

		pthread_join(threads[i], &result);
		ck_assert_ptr_null(result);
	}
	ck_assert_uint_eq(counter, 16);
}
END_TEST

START_TEST(test_ranks)
{
	struct gm_lock low = { .rank = GM_RANK_DOMAIN + 3 }, high = { .rank = GM_RANK_JOURNAL };
	struct gm_lock same = { .rank = GM_RANK_DOMAIN + 3 }, none = { 0 };

	ck_assert(gm_lock(&low) && gm_lock(&high) && gm_lock(&none));
	ck_assert_uint_eq(gm_lock_violations(), 0);
	gm_unlock(&low);		/* in any order */
	gm_unlock(&high);
	gm_unlock(&none);
	ck_assert(gm_lock(&high));
	ck_assert(gm_lock_try(&low));	/* cannot deadlock */
	ck_assert_uint_eq(gm_lock_violations(), 0);
	gm_unlock(&low);
	ck_assert(gm_lock(&low));
	ck_assert_uint_eq(gm_lock_violations(), GM_LOCK_RANKS);
	ck_assert(gm_lock(&same));
	ck_assert_uint_eq(gm_lock_violations(), 2 * GM_LOCK_RANKS);
	gm_unlock(&same);
	gm_unlock(&low);
	gm_unlock(&high);
	ck_assert(gm_lock(&low));
	ck_assert_uint_eq(gm_lock_violations(), 2 * GM_LOCK_RANKS);
	gm_unlock(&low);
}
END_TEST

/* Over a call of the driver nothing is held but what is there for that. */
START_TEST(test_driver)
{
	struct gm_lock growth = { .rank = GM_RANK_GROWTH }, order = { .rank = GM_RANK_CAPTURE };
	struct gm_lock leaf = { .rank = GM_RANK_LEAF }, none = { 0 };

	ck_assert(gm_lock(&growth) && gm_lock(&order));
	gm_lock_rank_driver();
	ck_assert_uint_eq(gm_lock_violations(), 0);
	ck_assert(gm_lock(&none));
	gm_lock_rank_driver();
	ck_assert_uint_eq(gm_lock_violations(), GM_LOCK_RANKS);
	gm_unlock(&none);
	ck_assert(gm_lock_try(&leaf));
	gm_lock_rank_driver();
	ck_assert_uint_eq(gm_lock_violations(), 2 * GM_LOCK_RANKS);
	gm_unlock(&leaf);
	gm_lock_rank_driver();
	ck_assert_uint_eq(gm_lock_violations(), 2 * GM_LOCK_RANKS);
	gm_unlock(&order);
	gm_unlock(&growth);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lock");
	TCase *tc = tcase_create("lock");

	tcase_set_timeout(tc, 60);
	tcase_add_single_test(tc, test_try);
	tcase_add_test(tc, test_gives_up);
	tcase_add_single_test(tc, test_own);
	tcase_add_test(tc, test_stopped);
	tcase_add_test(tc, test_gone);
	tcase_add_test(tc, test_taken_up);
	tcase_add_test(tc, test_forked);
	tcase_add_test(tc, test_forked_silently);
	tcase_add_test(tc, test_exclusion);
	tcase_add_test(tc, test_sleepers);
	tcase_add_single_test(tc, test_ranks);
	tcase_add_single_test(tc, test_driver);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
