/*
 * test_unwind_rules.c - the cache of unwind rules: it may forget, it may never be wrong. Rules
 * here are made from their address, so that every answer can be checked.
 */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "recorder/unwind/unwind_rules.h"
#include "test/suite.h"
#include "test/unit/unwind/helper.h"
#include "test/seed.h"

/* Of all kinds, a few of them too odd for an entry. */
static uint64_t rule_of(uintptr_t address)
{
	uint64_t mix = address * UINT64_C(0xd6e8feb86659fd93) >> 20;

	switch (mix % 16) {
	case 0:
		return gm_rule_make(GM_RULE_DRAP, (int32_t)(mix % 64) * -8,
				    (int32_t)(mix >> 8) % 8);
	case 1:
	case 5:
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	case 2:
		return gm_rule_make(GM_RULE_SP, 65536 + 8 * (int32_t)(mix % 8), 2);
	case 3:
		return gm_rule_make(GM_RULE_FP, 16, 64 + (int32_t)(mix % 8));
	case 4:
		return gm_rule_make(GM_RULE_END, 0, 0);
	case 6:
		return gm_rule_make(GM_RULE_SP, 12, 0);		/* no multiple of 8 */
	default:
		return gm_rule_make(mix & 16 ? GM_RULE_SP : GM_RULE_FP,
				    8 + 8 * (int32_t)((mix >> 8) % 8191),
				    (int32_t)((mix >> 24) % 64));
	}
}

static uint64_t look(uintptr_t address, uint32_t generation)
{
	return gm_entry_rule(gm_rule_find(address, gm_rule_wanted(0, generation)));
}

static uintptr_t address_at(uint64_t base, unsigned int i)
{
	return (base + (uint64_t)i * 61) & ((UINT64_C(1) << 47) - 1);
}

START_TEST(every_rule_comes_back)
{
	uint32_t now = gm_rule_generation();
	unsigned int found = 0;

	for (unsigned int i = 0; i < 4000; i++) {
		uintptr_t address = address_at(UINT64_C(0x7f0000001000), i);

		ck_assert_uint_eq(look(address, now), 0);
		gm_rule_add(address, now, rule_of(address));
		ck_assert_uint_eq(look(address, now), rule_of(address));
		gm_rule_add(address, now, rule_of(address));	/* twice, as two threads might */
	}
	for (unsigned int i = 0; i < 4000; i++) {
		uintptr_t address = address_at(UINT64_C(0x7f0000001000), i);
		uint64_t rule = look(address, now);

		ck_assert(rule == 0 || rule == rule_of(address));
		found += rule != 0;
	}
	printf("# %u of 4000 kept\n", found);
	ck_assert_uint_gt(found, 3900);
}
END_TEST

START_TEST(more_than_it_holds)
{
	const unsigned int many = 200000;
	uint64_t seed = test_seed(), base = helper_random(&seed);
	uint32_t now = gm_rule_generation();
	unsigned int found = 0;

	for (unsigned int i = 0; i < many; i++) {
		uintptr_t address = address_at(base, i);

		gm_rule_add(address, now, rule_of(address));
	}
	for (unsigned int i = 0; i < many; i++) {
		uint64_t rule = look(address_at(base, i), now);

		ck_assert(rule == 0 || rule == rule_of(address_at(base, i)));
		found += rule != 0;
	}
	ck_assert_uint_gt(found, 20000);
	for (unsigned int i = 0; i < many; i++)
		ck_assert_uint_eq(look(address_at(base + 7, i), now), 0);	/* never added */
}
END_TEST

START_TEST(high_addresses)
{
	uint32_t now = gm_rule_generation();
	uintptr_t low = UINT64_C(0x555555554321);

	gm_rule_add(low, now, rule_of(low));
	for (unsigned int bit = 47; bit < 64; bit++) {
		uintptr_t high = low | UINT64_C(1) << bit;

		ck_assert_uint_eq(look(high, now), 0);
		gm_rule_add(high, now, gm_rule_make(GM_RULE_END, 0, 0));
		ck_assert_uint_eq(look(high, now), 0);
		ck_assert_uint_eq(look(low, now), rule_of(low));
	}
}
END_TEST

START_TEST(generations)
{
	const uintptr_t address = UINT64_C(0x7f1234567890);

	for (unsigned int i = 0; i < 1000; i++) {
		uint32_t before = gm_rule_generation();

		gm_rule_add(address, before, rule_of(address));
		ck_assert_uint_eq(look(address, before), rule_of(address));
		gm_rule_flush();
		ck_assert_uint_eq(look(address, gm_rule_generation()), 0);
		gm_rule_add(address + i, before, rule_of(address));	/* found before it */
	}
	for (unsigned int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(look(address, gm_rule_generation()), 0);
		ck_assert_uint_eq(look(address + i, gm_rule_generation()), 0);
		gm_rule_flush();
	}
}
END_TEST

static atomic_bool stop;
static atomic_long wrong, right;

static void *add_and_look(void *arg)
{
	uint64_t seed = (uintptr_t)arg;

	while (!stop) {
		uint32_t now = gm_rule_generation();
		uintptr_t address = address_at(UINT64_C(0x7f0000000000),
					       (unsigned int)(helper_random(&seed) % 60000));
		uint64_t rule = look(address, now);

		if (rule == 0)
			gm_rule_add(address, now, rule_of(address));
		else if (rule == rule_of(address))
			right++;
		else
			wrong++;
	}
	return NULL;
}

/* With generations that pass, and without: then answers are found, and all must be right. */
START_TEST(threads)
{
	pthread_t thread[4];
	uint64_t end = helper_now_ns() + 1000000000u;

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, add_and_look,
						(void *)(i * 77777 + 1)), 0);
	while (helper_now_ns() < end && (_i == 0 || right < 100000))
		if (_i == 0)
			gm_rule_flush();
	stop = true;
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	printf("# %ld found\n", (long)right);
	ck_assert_int_eq(wrong, 0);
	if (_i == 1)
		ck_assert_int_gt(right, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unwind_rules");
	TCase *tcase = tcase_create("rules");

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_single_test(tcase, every_rule_comes_back);
	tcase_add_single_test(tcase, more_than_it_holds);
	tcase_add_single_test(tcase, high_addresses);
	tcase_add_single_test(tcase, generations);
	tcase_add_loop_test(tcase, threads, 0, 2);
	return run_suite(suite);
}
