/*
 * suite.h - libcheck for all unit tests, with cheap assertions: run the suite of a program and print its results as TAP;
 * leave tests without threads out of the TSan variant. One thread.
 */
#ifndef GM_TEST_SUITE_H
#define GM_TEST_SUITE_H

#include <check.h>

/*
 * Without this, each assertion that holds writes its place into a file, which libcheck reads for the report of a crash.
 * In loops that takes most of a test's time, above all under ASan, which copies the file byte by byte.
 */
#define _mark_point(file, line) ((void)0)

/* Add a test that makes no thread. The TSan variant leaves the test out, because a single thread has no race. */
#ifdef __SANITIZE_THREAD__
#define tcase_add_single_test(tcase, test) ((void)(tcase), (void)(test))
#define tcase_add_single_loop_test(tcase, test, from, to) ((void)(tcase), (void)(test), (void)(from), (void)(to))
#else
#define tcase_add_single_test(tcase, test) tcase_add_test(tcase, test)
#define tcase_add_single_loop_test(tcase, test, from, to) tcase_add_loop_test(tcase, test, from, to)
#endif

/* Returns what main returns: 1 where a test has failed. */
static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

#endif
