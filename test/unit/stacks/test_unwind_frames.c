/*
 * test_unwind_frames.c - the chain of frame records (recorder/unwind/unwind.c), which option
 * unwinder:frames chooses: code that keeps its frame pointers has the stack that its tables give, and
 * no stack, whatever lies on it, does any harm.
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "recorder/unwind/unwind.h"
#include "test/suite.h"
#include "test/unit/unwind/helper.h"
#include "test/seed.h"

#define MOST 64
#define DEPTH 6

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static int framed(int depth)
{
	uintptr_t own[MOST], chain[MOST], ends[MOST], own_ends[MOST];
	volatile int local = depth;
	struct gm_regs regs;
	unsigned int flags;
	int count;

	if (depth)
		return framed(depth - 1) + local;
	gm_regs_capture(&regs);
	gm_unwind_choose(GM_UNWINDER_FRAMES);
	ck_assert(!gm_unwind_is_own());
	count = gm_unwind(&regs, chain, MOST, &flags);
	ck_assert_int_eq(gm_unwind_ends(&regs, chain, ends, MOST, &flags), count);
	gm_unwind_choose(GM_UNWINDER_AUTO);
	ck_assert(gm_unwind_is_own());
	ck_assert_int_ge(gm_unwind_ends(&regs, own, own_ends, MOST, NULL), DEPTH);
	ck_assert_int_ge(count, DEPTH);
	for (int i = 0; i < DEPTH; i++)
		ck_assert_uint_eq(chain[i], own[i]);
	return 0;
}

START_TEST(frame_records)
{
	framed(DEPTH);
}
END_TEST

START_TEST(no_stack_hurts)
{
	uint64_t seed = test_seed();
	const size_t words = 4096;
	uintptr_t *area = mmap(NULL, 3 * words * sizeof(*area), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t code[] = { (uintptr_t)qsort, (uintptr_t)printf, (uintptr_t)framed,
			     (uintptr_t)mmap, (uintptr_t)dlopen };

	ck_assert(area != MAP_FAILED);
	gm_unwind_choose(GM_UNWINDER_FRAMES);
	munmap(area + 2 * words, words * sizeof(*area));
	for (int i = 0; i < 3000; i++) {
		struct gm_regs regs = { .has_all = true };
		uintptr_t pcs[MOST], ends[MOST];
		int count;

		for (size_t w = 0; w < 2 * words && i % 16 == 0; w++)
			switch (helper_random(&seed) % 4) {
			case 0:
				area[w] = helper_random(&seed);
				break;
			case 1:
				area[w] = (uintptr_t)(area + helper_random(&seed) % (3 * words));
				break;
			default:
				area[w] = code[helper_random(&seed) % 5] + helper_random(&seed) % 512;
			}
		for (unsigned int r = 0; r < GM_REG_COUNT; r++)
			regs.r[r] = (uintptr_t)(area + helper_random(&seed) % (2 * words));
		if (i % 7 == 0)
			regs.r[GM_REG_SP] += helper_random(&seed) % 8;
		regs.r[GM_REG_PC] = code[i % 5] + helper_random(&seed) % 512;
		count = gm_unwind_ends(&regs, pcs, ends, MOST, NULL);
		ck_assert_int_ge(count, 1);
		ck_assert_int_le(count, MOST);
	}
	gm_unwind_choose(GM_UNWINDER_AUTO);
	munmap(area, 2 * words * sizeof(*area));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unwind_frames");
	TCase *tcase = tcase_create("unwind_frames");

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, frame_records);
	tcase_add_test(tcase, no_stack_hurts);
	return run_suite(suite);
}
