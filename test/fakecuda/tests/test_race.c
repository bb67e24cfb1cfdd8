/*
 * test_race.c - the race detector: each order that it must know, and each conflict that it must
 * report however the clock ran.
 */
#include "race.h"

#include <sys/wait.h>

/* ---- two operations ---- */

START_TEST(unordered_is_reported)
{
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
	races("unordered: fill");
	ck_assert_uint_eq(fakecuda_races(), 1);
	ck_assert_ptr_null(fakecuda_race_text(1));
	fakecuda_race_clear();
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(lucky_time_changes_nothing)
{
	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(reads_do_not_conflict)
{
	CUdeviceptr q = alloc(1 << 20);

	copy(a, q, p, WORDS);
	copy(b, q + BYTES, p, WORDS);
	no_races();
	fill(b, p + BYTES - 4, 1, 1);		/* the last word that stream a still reads */
	races("unordered");
}
END_TEST

START_TEST(neighbours_do_not_conflict)
{
	fill(a, p, 1, WORDS);
	fill(b, p + BYTES, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(copies_and_fills_count)
{
	CUdeviceptr q = alloc(1 << 20);

	OK(cuMemcpyDtoDAsync(q, p, BYTES, a));
	OK(cuMemsetD32Async(p + 8, 0, 1, b));
	races("unordered");
}
END_TEST

START_TEST(a_pair_is_reported_once)
{
	CUdeviceptr q = alloc(1 << 20);

	copy(a, q, p, WORDS);
	copy(b, p, q, WORDS);			/* two conflicts, one mistake */
	races("unordered");
	ck_assert_uint_eq(fakecuda_races(), 1);
}
END_TEST

/* What is forgotten must be known by something that stands for all of it. */
START_TEST(a_part_does_not_stand_for_the_whole)
{
	fill(a, p, 1, 2 * WORDS);
	fill(a, p, 2, 1);
	fill(b, p + BYTES, 3, 1);
	races("unordered");
}
END_TEST

START_TEST(same_stream_orders)
{
	fill(a, p, 1, WORDS);
	fill(a, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(event_orders)
{
	fill(a, p, 1, WORDS);
	order(a, b);
	fill(b, p, 2, WORDS);
	no_races();
	fill(a, p, 3, WORDS);			/* not after stream b's */
	races("unordered");
}
END_TEST

START_TEST(event_recorded_before_does_not)
{
	CUevent e = event();

	OK(cuEventRecord(e, a));
	fill(a, p, 1, WORDS);
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(event_order_is_transitive)
{
	CUstream c = stream();

	fill(a, p, 1, WORDS);
	order(a, b);
	order(b, c);
	fill(c, p, 2, WORDS);
	no_races();
}
END_TEST

/* The wait stands for the record at the time of the wait, and only for the waiting stream. */
START_TEST(event_recorded_again_later)
{
	CUevent e = event();

	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(host_syncs_order)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	fill(b, p, 2, WORDS);
	OK(cuCtxSynchronize());
	fill(a, p, 3, WORDS);
	OK(cuEventRecord(e, a));
	OK(cuEventSynchronize(e));
	fill(b, p, 4, WORDS);
	no_races();
}
END_TEST

START_TEST(other_streams_sync_does_not)
{
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(b));
	fakecuda_advance(1000000000);
	OK(cuStreamSynchronize(b));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(successful_queries_order)
{
	CUevent e = event();

	fakecuda_set_step_ns(1);
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	FAILS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	fakecuda_advance(1000000000);
	OK(cuEventQuery(e));
	fill(b, p, 2, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamQuery(b));
	fill(a, p, 3, WORDS);
	no_races();
}
END_TEST

START_TEST(failed_query_does_not)
{
	CUevent e = event();

	fakecuda_set_step_ns(0);
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	FAILS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	fakecuda_advance(1000000000);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(ctx_event_orders_who_waits)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuCtxRecordEvent(work_ctx, e));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(ctx_event_orders_nobody_else)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuCtxRecordEvent(work_ctx, e));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(synchronous_copy_orders)
{
	uint32_t host[WORDS];

	fill(NULL, p, 1, WORDS);
	OK(cuMemcpyDtoH(host, p, sizeof(host)));
	fill(a, p, 2, WORDS);
	no_races();
}
END_TEST

/* ---- the legacy stream ---- */

START_TEST(legacy_orders_blocking_streams)
{
	CUstream c = blocking_stream(), d = blocking_stream();

	fill(c, p, 1, WORDS);
	fill(NULL, p, 2, WORDS);
	fill(d, p, 3, WORDS);
	no_races();
}
END_TEST

START_TEST(legacy_leaves_non_blocking_streams)
{
	fill(a, p, 1, WORDS);
	fill(NULL, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(legacy_orders_destroyed_streams)
{
	CUstream c = blocking_stream();

	fill(c, p, 1, WORDS);
	fakecuda_advance(1000000000);		/* complete, which the host has not seen */
	OK(cuStreamDestroy(c));
	fill(NULL, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(ctx_event_covers_destroyed_streams)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamDestroy(a));
	OK(cuCtxRecordEvent(work_ctx, e));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(reused_stream_slot_is_another_stream)
{
	CUstream c = stream(), d;

	fill(c, p, 1, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamDestroy(c));
	d = stream();
	ck_assert_ptr_eq(c, d);
	fill(d, p, 2, WORDS);
	races("unordered");
}
END_TEST

/* Whatever lanes streams come to share, later epochs stay later. */
START_TEST(many_streams_one_after_another)
{
	static char text[65536];
	unsigned int lanes;

	for (int i = 0; i < 200; i++) {
		CUstream c = stream();

		fill(c, p, 1, WORDS);
		if (i % 2)
			OK(cuStreamSynchronize(c));
		else
			order(c, a);
		fill(a, p, 2, WORDS);
		OK(cuStreamSynchronize(a));
		OK(cuStreamDestroy(c));
	}
	no_races();
	dump(text, sizeof(text));		/* and are not more for all those streams */
	ck_assert_ptr_nonnull(strstr(text, ", lanes "));
	ck_assert_int_eq(sscanf(strstr(text, ", lanes "), ", lanes %u", &lanes), 1);
	ck_assert_uint_lt(lanes, 10);
	fill(a, p, 3, WORDS);
	fill(b, p, 4, WORDS);
	races("unordered");
}
END_TEST

/* ---- kernels that nobody knows ---- */

START_TEST(unknown_kernels_may_share)
{
	touch(a, p);
	touch(b, p);
	touch(b, p + 4096);
	no_races();
	OK(cuMemsetD8Async(p + 8192, 0, 4096, a));	/* no pointer names any of that */
	no_races();
	OK(cuMemsetD8Async(p + 4096, 0, 16, a));
	races("unordered: touch");
}
END_TEST

/* ---- graphs ---- */

static CUgraphNode fill_node(CUgraph g, CUgraphNode *after, uint32_t value)
{
	uint32_t n = WORDS;
	void *args[] = { &p, &value, &n };
	CUDA_KERNEL_NODE_PARAMS params = { .func = kernel("fill"), .gridDimX = 1, .gridDimY = 1,
					   .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					   .blockDimZ = 1, .kernelParams = args };
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, after, after ? 1 : 0, &params));
	return node;
}

static CUgraphExec executable(bool ordered)
{
	CUgraphExec x;
	CUgraphNode first;
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	first = fill_node(g, NULL, 1);
	fill_node(g, ordered ? &first : NULL, 2);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphDestroy(g));
	return x;
}

START_TEST(graph_branches)
{
	OK(cuGraphLaunch(executable(false), a));
	races("unordered");
}
END_TEST

/* One branch does not know the other by sharing anything with it. */
START_TEST(graph_branches_know_nothing_of_each_other)
{
	CUgraphNode node;
	CUdeviceptr q = p;
	CUgraph g;
	CUgraphExec x;

	OK(cuGraphCreate(&g, 0));
	fill_node(g, NULL, 1);
	p += 8192;
	node = fill_node(g, NULL, 2);
	p = q;
	fill_node(g, &node, 3);			/* after the second, not after the first */
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, a));
	races("unordered");
}
END_TEST

START_TEST(graph_edges_order)
{
	CUgraphExec x = executable(true);

	OK(cuGraphLaunch(x, a));
	fill(a, p, 3, WORDS);
	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(x, b));		/* comes after its own earlier launch */
	no_races();
}
END_TEST

START_TEST(graphs_in_two_streams)
{
	CUgraphExec x = executable(true), y = executable(true);

	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(y, b));
	races("unordered");
}
END_TEST

/* ---- switches, and what leaves the process ---- */

START_TEST(off_and_on)
{
	fakecuda_race_enable(0);
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
	no_races();
	fakecuda_race_enable(1);
	fill(a, p, 3, WORDS);
	fill(b, p, 4, WORDS);
	races("unordered");
}
END_TEST

/* Runs in a child, before anything has called the library. Returns its exit status. */
static int in_child(const char *setting, void (*body)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("FAKECUDA_RACE", setting, 1);
		freopen("/dev/null", "w", stderr);
		setup();
		body();
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void racy(void)
{
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
}

static void sound(void)
{
	fill(a, p, 1, WORDS);
	fill(a, p, 2, WORDS);
}

START_TEST(environment_exit)
{
	ck_assert_int_eq(in_child("exit", racy), 66);
	ck_assert_int_eq(in_child("exit", sound), 0);
	ck_assert_int_eq(in_child("", racy), 0);
	ck_assert_int_eq(in_child("exit,off", racy), 0);
}
END_TEST

START_TEST(environment_file)
{
	char path[] = "/tmp/test_race.XXXXXX", setting[64], line[1024];
	int fd = mkstemp(path);
	FILE *f;

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(setting, sizeof(setting), "file=%s", path);
	ck_assert_int_eq(in_child(setting, racy), 0);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_ptr_nonnull(strstr(line, "race: unordered: fill"));
	ck_assert_ptr_null(fgets(line, sizeof(line), f));
	fclose(f);
	unlink(path);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		unordered_is_reported, lucky_time_changes_nothing, reads_do_not_conflict,
		neighbours_do_not_conflict, copies_and_fills_count, a_pair_is_reported_once,
		a_part_does_not_stand_for_the_whole, same_stream_orders, event_orders,
		event_recorded_before_does_not, event_order_is_transitive,
		event_recorded_again_later, host_syncs_order, other_streams_sync_does_not,
		successful_queries_order, failed_query_does_not, ctx_event_orders_who_waits,
		ctx_event_orders_nobody_else, synchronous_copy_orders,
		legacy_orders_blocking_streams, legacy_leaves_non_blocking_streams,
		legacy_orders_destroyed_streams, ctx_event_covers_destroyed_streams,
		reused_stream_slot_is_another_stream, many_streams_one_after_another,
		unknown_kernels_may_share, graph_branches,
		graph_branches_know_nothing_of_each_other, graph_edges_order, graphs_in_two_streams,
		off_and_on,
	};
	const TTest *const bare[] = {
		environment_exit, environment_file,
	};
	Suite *suite = suite_create("race");
	TCase *tc = tcase_create("race");
	TCase *alone = tcase_create("alone");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++)
		tcase_add_test(alone, bare[i]);
	tcase_set_timeout(alone, 60);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, alone);
	return run_suite(suite);
}
