/*
 * test_capture.c - stream capture: how it begins and ends, what becomes a node, what can be asked
 * of it.
 */
#include "capture.h"

/* ---- beginning and ending ---- */

START_TEST(wrong_ways_to_begin_and_end)
{
	CUgraph g;

	FAILS(cuStreamEndCapture(a, &g), CUDA_ERROR_ILLEGAL_STATE);
	begin(a);
	FAILS(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
	FAILS(cuStreamEndCapture(a, NULL), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamBeginCapture(b, (CUstreamCaptureMode)7), CUDA_ERROR_INVALID_VALUE);
	end(a);
}
END_TEST

static void *end_elsewhere(void *arg)
{
	CUgraph g;

	*(CUresult *)arg = cuStreamEndCapture(a, &g);
	return NULL;
}

START_TEST(the_thread_that_ends)
{
	static const CUstreamCaptureMode modes[] = {
		CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL };
	CUresult r;

	for (int i = 0; i < 2; i++) {
		OK(cuStreamBeginCapture(a, modes[i]));
		run_thread(end_elsewhere, &r);
		FAILS(r, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		ends_with(a, CUDA_ERROR_ILLEGAL_STATE);
	}
	begin(a);
	run_thread(end_elsewhere, &r);
	OK(r);
	ck_assert_int_eq(status(a), CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

START_TEST(nothing_happens_before_the_launch)
{
	CUgraphExec x;
	CUgraph g;

	begin(a);
	fill(a, p, 1, WORDS);
	add(a, p, 2, WORDS);
	g = end(a);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 0);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, b));
	OK(cuStreamSynchronize(b));
	ck_assert_uint_eq(word_at(p), 3);
	OK(cuGraphLaunch(x, b));
	OK(cuStreamSynchronize(b));
	ck_assert_uint_eq(word_at(p), 3);
}
END_TEST

static void host_function(void *arg)
{
	(*(int *)arg)++;
}

START_TEST(types_of_nodes)
{
	static const CUgraphNodeType types[] = {
		CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
		CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
		CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE,
		CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
		CU_GRAPH_NODE_TYPE_GRAPH,
	};
	enum { N = sizeof(types) / sizeof(types[0]) };
	CUgraphNode nodes[N + 1], dep;
	CUgraphExec x;
	CUdeviceptr q;
	CUgraph g;
	CUexternalSemaphore sem = semaphore();
	size_t n = N + 1, one = 1;
	int count = 0;

	begin(b);
	touch(b, p);
	OK(cuGraphInstantiate(&x, end(b), 0));
	begin(a);
	touch(a, p);
	OK(cuMemcpyDtoDAsync(p, p + 4096, 64, a));
	OK(cuMemsetD8Async(p, 0, 64, a));
	OK(cuLaunchHostFunc(a, host_function, &count));
	OK(cuStreamWriteValue32(a, p, 1, 0));
	OK(cuEventRecordWithFlags(event(), a, CU_EVENT_RECORD_EXTERNAL));
	OK(cuStreamWaitEvent(a, event(), CU_EVENT_WAIT_EXTERNAL));
	OK(cuMemAllocAsync(&q, 4096, a));
	OK(cuMemFreeAsync(q, a));
	signal_semaphore(a, sem, 1);
	await_semaphore(a, sem, 1);
	OK(cuGraphLaunch(x, a));
	g = end(a);
	OK(cuGraphGetNodes(g, nodes, &n));
	ck_assert_uint_eq(n, N);
	for (int i = 0; i < N; i++) {
		CUgraphNodeType type;

		OK(cuGraphNodeGetType(nodes[i], &type));
		ck_assert_int_eq(type, types[i]);
		if (!i)
			continue;
		OK(cuGraphNodeGetDependencies(nodes[i], &dep, NULL, &one));
		ck_assert_uint_eq(one, 1);
		ck_assert_ptr_eq(dep, nodes[i - 1]);
	}
	ck_assert_int_eq(count, 0);
}
END_TEST

START_TEST(external_flags_outside_a_capture)
{
	FAILS(cuEventRecordWithFlags(event(), a, CU_EVENT_RECORD_EXTERNAL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWaitEvent(a, event(), CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* ---- asking ---- */

START_TEST(info)
{
	CUstreamCaptureStatus st;
	const CUgraphNode *deps;
	cuuint64_t id, id_2;
	CUgraph g, h;
	size_t n;

	OK(cuStreamGetCaptureInfo(a, &st, &id, NULL, NULL, NULL, NULL));
	ck_assert_int_eq(st, CU_STREAM_CAPTURE_STATUS_NONE);
	begin(a);
	touch(a, p);
	touch(a, p);
	order(a, b);
	OK(cuStreamGetCaptureInfo(a, &st, &id, &g, &deps, NULL, &n));
	ck_assert_int_eq(st, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(nodes_of(g), 2);
	OK(cuStreamGetCaptureInfo(b, &st, &id_2, NULL, NULL, NULL, NULL));
	ck_assert_uint_eq(id, id_2);
	FAILS(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
	h = end(a);
	ck_assert_ptr_eq(g, h);
	begin(a);
	OK(cuStreamGetCaptureInfo(a, &st, &id_2, NULL, NULL, NULL, NULL));
	ck_assert_uint_ne(id, id_2);
	end(a);
	FAILS(cuStreamGetCaptureInfo(a, NULL, NULL, NULL, NULL, NULL, NULL),
	      CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(dependencies_set_and_added)
{
	CUstreamCaptureStatus st;
	CUgraphNode empty[2];
	const CUgraphNode *deps;
	CUgraph g;
	size_t n;

	FAILS(cuStreamUpdateCaptureDependencies(a, NULL, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
	begin(a);
	touch(a, p);
	OK(cuStreamGetCaptureInfo(a, &st, NULL, &g, NULL, NULL, NULL));
	OK(cuGraphAddEmptyNode(&empty[0], g, NULL, 0));
	OK(cuGraphAddEmptyNode(&empty[1], g, NULL, 0));
	OK(cuStreamUpdateCaptureDependencies(a, empty, NULL, 1,
					     CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	OK(cuStreamGetCaptureInfo(a, &st, NULL, NULL, &deps, NULL, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_ptr_eq(deps[1], empty[0]);
	OK(cuStreamUpdateCaptureDependencies(a, &empty[1], NULL, 1,
					     CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuStreamGetCaptureInfo(a, &st, NULL, NULL, &deps, NULL, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_ptr_eq(deps[0], empty[1]);
	OK(cuGraphDestroyNode(empty[1]));
	OK(cuStreamGetCaptureInfo(a, &st, NULL, NULL, &deps, NULL, &n));
	ck_assert_uint_eq(n, 0);
	end(a);
}
END_TEST

START_TEST(into_a_graph)
{
	CUgraphNode root, nodes[2], dep;
	size_t n = 2, one = 1;
	CUgraph g, h;

	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEmptyNode(&root, g, NULL, 0));
	OK(cuStreamBeginCaptureToGraph(a, g, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	touch(a, p);
	h = end(a);
	ck_assert_ptr_eq(g, h);
	OK(cuGraphGetNodes(g, nodes, &n));
	ck_assert_uint_eq(n, 2);
	OK(cuGraphNodeGetDependencies(nodes[1], &dep, NULL, &one));
	ck_assert_ptr_eq(dep, root);
	OK(cuStreamBeginCaptureToGraph(a, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(nodes_of(g), 2);	/* the graph is the program's all the same */
	OK(cuGraphDestroy(g));
}
END_TEST

START_TEST(overlap_is_an_edge_of_its_own)
{
	CUgraphNode from, to;
	CUgraphEdgeData data;
	void *args[] = { &p };
	size_t n = 1;
	CUgraph g;

	begin(a);
	touch(a, p);
	launch_overlapping("touch", a, args);
	g = end(a);
	FAILS(cuGraphGetEdges(g, &from, &to, NULL, &n), CUDA_ERROR_LOSSY_QUERY);
	OK(cuGraphGetEdges(g, &from, &to, &data, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ck_assert_int_eq(data.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_becomes_nodes)
{
	uint64_t used = fakecuda_live_bytes(0, FAKECUDA_POOL);
	CUgraphExec x;
	CUdeviceptr q, r;
	CUgraph g;

	begin(a);
	OK(cuMemAllocAsync(&q, 4096, a));
	ck_assert_uint_ne(q, 0);
	fill(a, q, 5, WORDS);
	copy(a, p, q, WORDS);
	OK(cuMemFreeAsync(q, a));
	FAILS(cuMemFreeAsync(q, a), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemFreeAsync(p, a), CUDA_ERROR_INVALID_VALUE);
	g = end(a);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_POOL), used);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_GRAPH), 0);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, b));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_GRAPH), 32 << 20);
	OK(cuStreamSynchronize(b));
	ck_assert_uint_eq(word_at(p), 5);
	OK(cuMemAllocAsync(&r, 4096, a));
	ck_assert_uint_ne(q, r);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		wrong_ways_to_begin_and_end, the_thread_that_ends,
		nothing_happens_before_the_launch, types_of_nodes, external_flags_outside_a_capture,
		info, dependencies_set_and_added, into_a_graph, overlap_is_an_edge_of_its_own,
		memory_becomes_nodes,
	};
	Suite *suite = suite_create("capture");
	TCase *tc = tcase_create("capture");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
