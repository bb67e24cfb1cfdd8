/* The locks: exclusion, sleeping and waking, limits, ranks, errno. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "test/suite.h"

static struct gm_lock lock;
static unsigned long counter;		/* lock: lock */

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
	ck_assert(gm_lock(&lock));
	errno = 1234;
	ck_assert(!gm_lock_within(&lock, 2000000));
	ck_assert_int_eq(errno, 1234);
	/* A waiter that gave up may have left word 2 behind: unlock and lock still work. */
	gm_unlock(&lock);
	ck_assert_int_eq(errno, 1234);
	ck_assert(gm_lock_within(&lock, 2000000));
	gm_unlock(&lock);
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
	tcase_add_test(tc, test_try);
	tcase_add_test(tc, test_gives_up);
	tcase_add_test(tc, test_exclusion);
	tcase_add_test(tc, test_sleepers);
	tcase_add_test(tc, test_ranks);
	tcase_add_test(tc, test_driver);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
