/*
 * test_seen.c - the stacks seen: what was kept is found, in whatever order it is looked for, with
 * the index as small as it begins and grown; what was not kept never is.
 */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "recorder/stacks_seen.h"

#define ROOM 131072u			/* entries */

static uint64_t hash_of(uint64_t n)
{
	n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
	n = (n ^ n >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return n ^ n >> 32;
}

static uint64_t look(uint64_t n)
{
	return gm_seen_find(hash_of(n));
}

/* How many of [@from, @to) are found, in steps of @step; what is found is right. */
static unsigned int count_found(uint64_t from, uint64_t to, uint64_t step)
{
	unsigned int found = 0;

	for (uint64_t i = 0, n = from; i < to - from; i++, n = from + (n - from + step) % (to - from)) {
		uint64_t value = look(n);

		ck_assert(value == 0 || value == n + 1);
		found += value != 0;
	}
	return found;
}

static void keep(uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n < to; n++)
		gm_seen_keep(hash_of(n), n + 1);
}

START_TEST(in_any_order)
{
	static const uint64_t counts[] = { 2500, 8000, 30000, 100000 };

	for (unsigned int i = 0; i < 4; i++) {
		uint64_t from = i ? counts[i - 1] : 0, to = counts[i];

		keep(from, to);
		ck_assert_uint_eq(count_found(to, to + 5000, 1), 0);
		/* what lost its place in the index is found in order only */
		ck_assert_uint_ge(count_found(0, to, 1), to - to / 500);
		ck_assert_uint_ge(count_found(0, to, 7919), to - to / 500);
		ck_assert_uint_ge(count_found(0, to, to - 1), to - to / 500);
		if (i == 0)
			ck_assert_uint_eq(count_found(0, to, 1), to);
	}
}
END_TEST

/* The oldest go. */
START_TEST(more_than_room)
{
	keep(0, 3 * ROOM);
	ck_assert_uint_eq(count_found(0, ROOM, 1), 0);
	ck_assert_uint_ge(count_found(3 * ROOM - 100000, 3 * ROOM, 1), 100000 - 200);
	ck_assert_uint_ge(count_found(3 * ROOM - 100000, 3 * ROOM, 7919), 100000 - 200);
}
END_TEST

/* Each says what it will want; the one before it is told of it, in the order in which they came last. */
START_TEST(what_comes_next)
{
	enum { COUNT = 3000 };

	keep(0, COUNT);
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t n = round ? i * 7 % COUNT : i, next = (round ? n + 7 : n + 1) % COUNT;
			uint32_t hint;

			ck_assert_uint_eq(look(n), n + 1);
			hint = gm_seen_leave((i + round) % 3 ? n + 100 : 0);
			if (round == 2)
				ck_assert_uint_eq(hint, next + 100);
		}
}
END_TEST

/* Threads that come through the same places, each in its own order and with its own hints, one step
 * after the other: none is told what another would want. */
static pthread_barrier_t in_turn;

static void *go_round(void *arg)
{
	enum { COUNT = 600 };
	uint32_t me = (uint32_t)(uintptr_t)arg, wrong = 0;

	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t n = me ? COUNT - 1 - i : i, hint;
			uint32_t next = (me ? n + COUNT - 1 : n + 1) % COUNT;

			pthread_barrier_wait(&in_turn);
			ck_assert_uint_eq(look(n), n + 1);
			hint = gm_seen_leave(n + 1000 * (me + 1));
			wrong += round > 1 && hint != next + 1000 * (me + 1);
		}
	ck_assert_uint_eq(wrong, 0);
	return NULL;
}

START_TEST(each_its_own_way)
{
	pthread_t thread;

	keep(0, 600);
	pthread_barrier_init(&in_turn, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, go_round, (void *)1), 0);
	go_round(NULL);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

static void *keep_and_look(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg << 32, found = 0;

	for (uint64_t n = base; n < base + 60000; n++) {
		uint64_t back = n - base < 500 ? n : n - 500;

		gm_seen_keep(hash_of(n), n + 1);
		found += look(back) == back + 1;
		ck_assert_uint_eq(look(n + 1), 0);
	}
	ck_assert_uint_ge(found, 60000 - 600);
	return NULL;
}

/* Each its own; the ring comes round while they are at it. */
START_TEST(in_threads)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, keep_and_look, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seen");
	TCase *tcase = tcase_create("seen");
	SRunner *runner;
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, in_any_order);
	tcase_add_test(tcase, more_than_room);
	tcase_add_test(tcase, what_comes_next);
	tcase_add_test(tcase, each_its_own_way);
	tcase_add_test(tcase, in_threads);
	runner = srunner_create(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
