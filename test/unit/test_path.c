/*
 * test_path.c - paths of frames: what is found was kept as it stands, to its end, also when the ring
 * has come round in the middle of others.
 */
#define _GNU_SOURCE
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/unwind_path.h"

#define PATHS 30000u			/* several times what there is room for */

static struct gm_paths *paths;
static uint64_t state = 99;

static uint32_t draw(uint32_t below)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 33) % below;
}

/* Path @n: 1 to GM_PATH_STEPS steps, no frame of which any other path has. */
static uint32_t make(uint32_t n, struct gm_path_frame *frames)
{
	uint32_t count = 1 + n * 2654435761u % GM_PATH_STEPS;

	for (uint32_t i = 0; i <= count; i++) {
		frames[i].pc = (uintptr_t)n << 16 | i;
		frames[i].step = (uint64_t)(i + 1) << 51 | (uint64_t)(n % 7) << GM_STEP_STAMP_SHIFT |
				 (n + i) % 4096;
	}
	return count;
}

static const struct gm_path_frame *find(uint32_t n)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];

	make(n, frames);
	return gm_path_find(paths, frames[0].pc, frames[0].step & GM_STEP_PLACE, 0);
}

/* Is path @n found? Then every step that can be gone is its own. */
static bool is_whole(uint32_t n)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	const struct gm_path_frame *found = find(n);
	uint32_t count = make(n, frames), i = 0;

	if (!found)
		return false;
	for (; gm_step_is_plain(found[i].step); i++) {
		ck_assert_uint_lt(i, count);
		ck_assert_uint_eq(found[i].pc, frames[i].pc);
		ck_assert_uint_eq(found[i].step, frames[i].step);
	}
	ck_assert_uint_eq(i, count);
	ck_assert_uint_eq(found[i].pc, frames[i].pc);
	ck_assert_uint_eq(found[i].step, frames[i].step & GM_STEP_PLACE);
	return true;
}

START_TEST(kept_as_they_were)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];

	for (uint32_t n = 0; n < PATHS; n++) {
		ck_assert_ptr_null(find(n));
		gm_path_keep(paths, frames, make(n, frames), 0);
		ck_assert(is_whole(n));
		for (uint32_t i = 0; i < 8; i++)
			is_whole(draw(n + 1));
	}
	for (uint32_t n = 0; n < PATHS / 10; n++)
		ck_assert(!is_whole(n));
}
END_TEST

/* 254 of them are all there, however they fall. */
START_TEST(few_do_not_crowd)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	uint32_t found = 0;

	for (uint32_t n = 0; n < 254; n++)
		gm_path_keep(paths, frames, make(n, frames), 0);
	for (uint32_t n = 0; n < 254; n++)
		found += is_whole(n);
	ck_assert_uint_eq(found, 254);
}
END_TEST

/* A frame at another place, of another stamp or interrupted is another frame. */
START_TEST(its_place_tells_it)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	uint64_t place;

	gm_path_keep(paths, frames, make(1, frames), 0);
	place = frames[0].step & GM_STEP_PLACE;
	ck_assert_ptr_nonnull(gm_path_find(paths, frames[0].pc, place, 0));
	ck_assert_ptr_null(gm_path_find(paths, frames[0].pc + 1, place, 0));
	ck_assert_ptr_null(gm_path_find(paths, frames[0].pc, place ^ 1, 0));
	ck_assert_ptr_null(gm_path_find(paths, frames[0].pc, place ^ GM_STEP_EXACT, 0));
	ck_assert_ptr_null(gm_path_find(paths, frames[0].pc,
					place ^ UINT64_C(1) << GM_STEP_STAMP_SHIFT, 0));
	gm_paths_clear(paths);
	ck_assert_ptr_null(gm_path_find(paths, frames[0].pc, place, 0));
	ck_assert_ptr_null(gm_path_find(paths, 0, 0, 0));
}
END_TEST

/* With a path that was kept again, the last one counts. */
START_TEST(kept_again)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	uint32_t count = make(5, frames);
	uint64_t place = frames[0].step & GM_STEP_PLACE;

	for (uintptr_t i = 0; i < 5000; i++) {
		frames[1].pc = i;
		gm_path_keep(paths, frames, count, 0);
		ck_assert_uint_eq(gm_path_find(paths, frames[0].pc, place, 0)[1].pc, i);
	}
}
END_TEST

/* Several that begin with one frame. */
START_TEST(kinds)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	uint32_t count = make(6, frames), numbers[20];
	uint64_t place = frames[0].step & GM_STEP_PLACE;

	for (uintptr_t i = 0; i < 20; i++) {
		frames[1].pc = i;
		numbers[i] = gm_path_keep(paths, frames, count, i * UINT64_C(0xff51afd7ed558ccd));
	}
	for (uintptr_t i = 0; i < 20; i++) {
		const struct gm_path_frame *found = gm_path_find(paths, frames[0].pc, place,
								 i * UINT64_C(0xff51afd7ed558ccd));

		ck_assert_ptr_nonnull(found);
		ck_assert_uint_eq(found[1].pc, i);
		ck_assert_uint_eq(gm_path_number(paths, found), numbers[i]);
		ck_assert_ptr_eq(gm_path_at(paths, numbers[i], frames[0].pc, place), found);
		ck_assert_ptr_null(gm_path_at(paths, numbers[i] + 1, frames[0].pc, place));
	}
}
END_TEST

static void set_up(void)
{
	paths = gm_paths_new();
	ck_assert_ptr_nonnull(paths);
}

int main(void)
{
	Suite *suite = suite_create("path");
	TCase *tcase = tcase_create("path");
	SRunner *runner;
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, kept_as_they_were);
	tcase_add_test(tcase, few_do_not_crowd);
	tcase_add_test(tcase, its_place_tells_it);
	tcase_add_test(tcase, kept_again);
	tcase_add_test(tcase, kinds);
	runner = srunner_create(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
