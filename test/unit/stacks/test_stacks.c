/*
 * test_stacks.c - stacks that come again and again: each is interned once, however many there are.
 */
#define _GNU_SOURCE
#include <check.h>
#include <stdlib.h>

#include "recorder/journal/recorder.h"
#include "recorder/stacks/stacks.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

#define BITS 13				/* 8192 ways down: more than a training step has */
#define WAYS (1u << BITS)

static uint32_t ids[WAYS];
static bool again;

static __attribute__((noinline)) void arrive(unsigned int way)
{
	struct gm_regs regs;
	uint16_t module;
	uint32_t id;

	gm_regs_capture(&regs);
	id = gm_stacks_capture(&regs, &module);
	ck_assert_uint_ne(id, GM_NONE);
	if (again)
		ck_assert_uint_eq(ids[way], id);
	ids[way] = id;
}

static void down(unsigned int way, unsigned int bit);

/* Two functions, so that the two calls are not made one. */
static __attribute__((noinline)) void left(unsigned int way, unsigned int bit)
{
	down(way, bit);
	__asm__ volatile ("# left" : : : "memory");	/* no tail call */
}

static __attribute__((noinline)) void right(unsigned int way, unsigned int bit)
{
	down(way, bit);
	__asm__ volatile ("# right" : : : "memory");
}

/* Each bit of @way is one of two calls. */
static void down(unsigned int way, unsigned int bit)
{
	if (bit == BITS)
		arrive(way);
	else if (way >> bit & 1)
		right(way, bit + 1);
	else
		left(way, bit + 1);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void start(void)
{
	aux_start(64);
	gm_stacks_init(0, 0);
	gm_stacks_configure(true, false, 64);
}

START_TEST(many_are_met_once)
{
	uint64_t before = 0;

	start();
	for (volatile int round = 0; round < 2; round++) {	/* one line, one address */
		again = round > 0;
		before = gm_stacks_met;
		for (unsigned int way = 0; way < WAYS; way++)
			down(way, 0);
		if (!again)
			ck_assert_uint_eq(gm_stacks_met - before, WAYS);
	}
	ck_assert_uint_le(gm_stacks_met - before, WAYS / 500);	/* a full bucket or two */
	qsort(ids, WAYS, sizeof(ids[0]), by_number);
	for (unsigned int way = 1; way < WAYS; way++)
		ck_assert_uint_ne(ids[way], ids[way - 1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stacks");
	TCase *tcase = tcase_create("stacks");

	tcase_add_test(tcase, many_are_met_once);
	tcase_set_timeout(tcase, 60);
	tcase_add_unchecked_fixture(tcase, aux_directory_make, aux_directory_remove);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
