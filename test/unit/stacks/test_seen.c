/*
 * test_seen.c - the stacks seen: what was kept is found, but for the few that find no place among many
 * others; what was not kept never is.
 */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "recorder/stacks/stacks.h"
#include "test/suite.h"

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

START_TEST(kept_and_found)
{
	static const uint64_t counts[] = { 2500, 8000, 30000, 50000 };

	for (unsigned int i = 0; i < 4; i++) {
		uint64_t from = i ? counts[i - 1] : 0, to = counts[i], lost = i < 2 ? 0 : to / 300;

		keep(from, to);
		ck_assert_uint_eq(count_found(to, to + 5000, 1), 0);
		ck_assert_uint_ge(count_found(0, to, 1), to - lost);
		ck_assert_uint_ge(count_found(0, to, 7919), to - lost);
	}
}
END_TEST

/* The newest stay, most of them; of the oldest few are left. */
START_TEST(more_than_room)
{
	keep(0, 5 * ROOM);
	ck_assert_uint_le(count_found(0, ROOM, 1), ROOM / 20);
	ck_assert_uint_ge(count_found(5 * ROOM - 20000, 5 * ROOM, 1), 20000 - 4000);
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
	ck_assert_uint_ge(found, 60000 - 1200);
	return NULL;
}

/* Each its own; all of them are more than there is room for. */
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

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_single_test(tcase, kept_and_found);
	tcase_add_single_test(tcase, more_than_room);
	tcase_add_test(tcase, in_threads);
	return run_suite(suite);
}
