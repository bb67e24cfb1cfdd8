/* The stamps: their source, their order between threads, their tie to wall time. */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "recorder/journal/clock.h"
#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

static void *take_stamps(void *arg)
{
	uint64_t *stamps = arg;

	for (unsigned int i = 0; i < 20000; i++)
		stamps[i] = gm_stamp();
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

START_TEST(test_clock)
{
	static const char *const sources[] = { "kvm-clock\n", "tsc-early\n", "arch_sys_counter\n", "" };
	static uint64_t stamps[4 * 20000];
	static char name[300];
	pthread_t threads[4];

	snprintf(name, sizeof(name), "%s/clocksource", aux_directory);
	gm_sys.clocksource = name;
	for (unsigned int i = 0; i < 4; i++) {
		aux_put_file("clocksource", sources[i]);
		gm_clock_init();
		/* Not the TSC: CLOCK_MONOTONIC in ns. */
		ck_assert_uint_lt(gm_stamp() - gm_now_ns() + UINT64_C(60000000000),
				  UINT64_C(120000000000));
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, take_stamps, &stamps[i * 20000]);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int k = 1; k < 20000; k++)
			ck_assert_uint_gt(stamps[i * 20000 + k], stamps[i * 20000 + k - 1]);
	qsort(stamps, 4 * 20000, sizeof(uint64_t), by_value);
	for (unsigned int k = 1; k < 4 * 20000; k++)
		ck_assert_uint_ne(stamps[k], stamps[k - 1]);
	aux_start(100);
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 1);
	aux_forget();
	aux_put_file("clocksource", "tsc\n");
	aux_start(100);
#if defined(__x86_64__)
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 0);
#else
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 1);
#endif
	gm_recorder_tick();
	ck_assert_uint_eq(gm_recorder_header()->clock.sequence % 2, 0);
	ck_assert_uint_gt(gm_recorder_header()->clock.stamp[1],
			  gm_recorder_header()->clock.stamp[0]);
}
END_TEST

/* A stamp taken before a message is below one taken after it: the order of free and alloc. */
struct ball { _Atomic(uint64_t) stamp; char pad[56]; };
static struct ball balls[2];

static void *play(void *arg)
{
	unsigned int me = (unsigned int)(uintptr_t)arg;
	uint64_t wrong = 0, last = 0;

	for (unsigned int i = 0; i < 20000; i++) {
		unsigned int looks = 0;
		uint64_t theirs;

		if (me == 0 || i)
			gm_set_release(&balls[me].stamp, gm_stamp_before());
		/* Long enough for an answer from another core; where that has none for us, a slice each. */
		while ((theirs = gm_get_acquire(&balls[!me].stamp)) == last)
			if (++looks % 1000)
				gm_pause();
			else
				sched_yield();
		if (theirs == UINT64_MAX)
			break;
		wrong += gm_stamp() <= theirs;
		last = theirs;
	}
	gm_set_release(&balls[me].stamp, UINT64_MAX);
	return (void *)(uintptr_t)wrong;
}

START_TEST(test_stamps_follow_messages)
{
	pthread_t threads[2];

	gm_clock_init();
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, play, (void *)i), 0);
	for (unsigned int i = 0; i < 2; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

/* A stamp as wall time: the two pairs of the header give its rate. Seconds off would be wrong. */
START_TEST(test_wall_time)
{
	struct gm_copy copy;
	struct timespec now;
	uint64_t stamp, us, then;

	aux_start(100);
	stamp = gm_stamp();
	clock_gettime(CLOCK_REALTIME, &now);
	then = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	for (unsigned int ticks = 0; ticks < 2; ticks++) {
		aux_copy(&copy);
		us = gm_copy_wall_us(&copy, stamp);
		ck_assert_uint_lt(us - then + 5000000, 10000000);
		ck_assert_uint_lt(gm_copy_wall_us(&copy, gm_stamp()) - us, 60000000);
		gm_copy_free(&copy);
		gm_recorder_tick();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tc = tcase_create("clock");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_clock);
	tcase_add_test(tc, test_wall_time);
	tcase_add_test(tc, test_stamps_follow_messages);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
