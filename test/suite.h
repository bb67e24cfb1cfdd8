/*
 * suite.h - how a program of unit tests ends: its suite is run, and its results are printed as TAP. One thread.
 */
#ifndef GM_TEST_SUITE_H
#define GM_TEST_SUITE_H

#include <check.h>

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
