/*
 * test_capture_join.c - captures that fork into other streams and are joined again, or not.
 */
#include "capture.h"

/* ---- forks and joins ---- */

START_TEST(fork_and_join)
{
	CUgraphNode nodes[4];
	size_t n = 4, count;
	CUgraph g;

	begin(a);
	touch(a, p);
	order(a, b);
	ck_assert_int_eq(status(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	touch(a, p + 64);
	touch(b, p + 128);
	order(b, a);
	touch(a, p + 192);
	g = end(a);
	ck_assert_int_eq(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuGraphGetNodes(g, nodes, &n));
	ck_assert_uint_eq(n, 4);
	OK(cuGraphNodeGetDependentNodes(nodes[0], NULL, NULL, &count));
	ck_assert_uint_eq(count, 2);
	OK(cuGraphNodeGetDependencies(nodes[3], NULL, NULL, &count));
	ck_assert_uint_eq(count, 2);
}
END_TEST

START_TEST(fork_never_joined)
{
	begin(a);
	touch(a, p);
	order(a, b);
	touch(b, p);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ck_assert_int_eq(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	touch(b, p);
}
END_TEST

START_TEST(fork_without_work_needs_no_join)
{
	begin(a);
	touch(a, p);
	order(a, b);
	end(a);
}
END_TEST

START_TEST(work_after_the_join)
{
	begin(a);
	touch(a, p);
	order(a, b);
	touch(b, p);
	order(b, a);
	touch(b, p);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}
END_TEST

START_TEST(only_the_first_stream_ends)
{
	CUgraph g;

	begin(a);
	order(a, b);
	FAILS(cuStreamEndCapture(b, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_int_eq(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

START_TEST(event_from_outside)
{
	CUevent e = event();

	OK(cuEventRecord(e, b));
	begin(a);
	FAILS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(two_captures_meet)
{
	CUevent e = event();

	begin(a);
	begin(b);
	OK(cuEventRecord(e, b));
	FAILS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ends_with(b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(captured_events)
{
	CUevent e = event();

	begin(a);
	OK(cuEventRecord(e, a));
	FAILS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(a);
	OK(cuEventRecord(e, a));
	FAILS(cuStreamWaitEvent(NULL, e, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(a);
	OK(cuEventRecord(e, a));
	end(a);
	FAILS(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
	FAILS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuEventRecord(e, b));		/* recorded anew, it is an event again */
	OK(cuEventSynchronize(e));
	OK(cuStreamWaitEvent(b, e, 0));
}
END_TEST

START_TEST(events_destroyed_in_a_capture)
{
	begin(a);
	for (int i = 0; i < 10; i++) {
		touch(a, p);
		order(a, b);			/* destroys its event */
		touch(b, p);
		order(b, a);
	}
	ck_assert_uint_eq(nodes_of(end(a)), 20);
}
END_TEST

/* ---- streams destroyed ---- */

START_TEST(first_stream_destroyed)
{
	begin(a);
	order(a, b);
	touch(b, p);
	OK(cuStreamDestroy(a));
	ck_assert_int_eq(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuCtxSynchronize());			/* nothing captures any more */
	OK(cuMemFree(p));
}
END_TEST

START_TEST(joined_stream_destroyed)
{
	begin(a);
	order(a, b);
	touch(b, p);
	order(b, a);
	OK(cuStreamDestroy(b));
	ck_assert_uint_eq(nodes_of(end(a)), 1);
}
END_TEST

START_TEST(forked_stream_destroyed)
{
	begin(a);
	order(a, b);
	touch(b, p);
	OK(cuStreamDestroy(b));
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	OK(cuCtxSynchronize());
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		fork_and_join, fork_never_joined, fork_without_work_needs_no_join,
		work_after_the_join, only_the_first_stream_ends, event_from_outside,
		two_captures_meet, captured_events, events_destroyed_in_a_capture,
		first_stream_destroyed, joined_stream_destroyed, forked_stream_destroyed,
	};
	Suite *suite = suite_create("capture, joins");
	TCase *tc = tcase_create("capture,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
