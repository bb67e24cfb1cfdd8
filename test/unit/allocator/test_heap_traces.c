/*
 * test_heap_traces.c - recorded programs (test/traces/) replayed on both classes of heaps: every structural rule of
 * the heap holds on the way and at the end.
 */
#include <glob.h>

#include "allocator/pages_heap.h"
#include "allocator/segments_heap.h"
#include "test/rules/check.h"
#include "test/suite.h"
#include "tools/read/input.h"
#include "tools/replay/replay.h"

#define TRACES 8

static unsigned int looks;

static int check(struct gm_heap *heap, uint32_t first_segment)
{
	looks++;
	return gm_heap_check(heap, first_segment);
}

static void replay(const struct gm_trace *trace, const struct gm_heap_class *class, uint64_t lag)
{
	const struct gm_simulate_how how = { .capacity = GM_HEAP_UNLIMITED, .lag = lag, .check = check };
	struct gm_heap_config config;
	struct gm_simulation run;

	gm_heap_config_default(&config);
	config.class = class;
	ck_assert_int_eq(gm_simulate(trace, &config, &how, &run), 0);
	ck_assert_uint_gt(run.allocations, 1000);
	ck_assert_int_eq(run.violations, 0);
}

START_TEST(recorded_programs)
{
	struct gm_trace trace;
	glob_t found;

	ck_assert_int_eq(glob("test/traces/*.trace.gz", 0, NULL, &found), 0);
	ck_assert_uint_eq(found.gl_pathc, TRACES);
	gm_limit_lift();		/* a sanitizer needs more than the command may have */
	ck_assert_int_eq(gm_trace_read(&trace, found.gl_pathv[_i]), 0);
	looks = 0;
	replay(&trace, &gm_segments_class, 0);
	replay(&trace, &gm_pages_class, 0);
	replay(&trace, &gm_pages_class, 100);
	ck_assert_uint_ge(looks, 3 * (trace.count / 4096));
	ck_assert_uint_ge(looks, 6);
	gm_trace_free(&trace);
	globfree(&found);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap_traces");
	TCase *tests = tcase_create("heap_traces");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, recorded_programs, 0, TRACES);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
