/*
 * test_graph.c - graphs: nodes, edges, copies, launches, user objects. What a graph did is read
 * from memory, not from what it says of itself.
 */
#include "graph.h"

/* ---- what a launch does ---- */

START_TEST(nodes_run_in_order)
{
	CUgraphNode n = kernel_node("fill", p, 3, NULL);

	for (int i = 0; i < 5; i++)
		n = kernel_node("add", p, 2, n);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 13);
}
END_TEST

/* Made in one order, to be run in the other. */
START_TEST(edges_decide)
{
	CUgraphNode last = kernel_node("add", p, 1, NULL), first = kernel_node("fill", p, 7, NULL);

	OK(cuGraphAddDependencies(g, &first, &last, NULL, 1));
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 8);
}
END_TEST

START_TEST(branches_run_side_by_side)
{
	CUgraphNode n = kernel_node("fill", p, 1, NULL);

	for (uint32_t i = 1; i <= 4; i++)
		kernel_node("fill", p + 4096 * i, i, n);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p + 4096 * 4), 4);
	ck_assert_uint_lt(fakecuda_now(), 4 * 10000);	/* each takes 10000 */
}
END_TEST

START_TEST(stream_order_around_a_launch)
{
	CUgraphExec x;

	kernel_node("add", p, 1, NULL);
	x = instantiate(g);
	fill(a, p, 5, 1);
	OK(cuGraphLaunch(x, a));
	copy(a, p + 4, p, 1);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p + 4), 6);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

/* Launches of one executable graph come after each other, in whatever streams. */
START_TEST(launches_of_one_graph)
{
	CUgraphExec x;

	kernel_node("add", p, 1, NULL);
	x = instantiate(g);
	for (int i = 0; i < 10; i++)
		OK(cuGraphLaunch(x, i % 2 ? a : b));
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 10);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(an_empty_graph)
{
	run(instantiate(g));
}
END_TEST

static void count(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
}

START_TEST(copies_fills_host_functions)
{
	CUDA_MEMSET_NODE_PARAMS fill_p = { .dst = p, .value = 9, .elementSize = 4, .width = WORDS,
					   .height = 1 };
	CUDA_MEMCPY3D copy_p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p,
				 .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p + BYTES,
				 .WidthInBytes = BYTES, .Height = 1, .Depth = 1 };
	int calls = 0;
	CUDA_HOST_NODE_PARAMS host_p = { .fn = count, .userData = &calls };
	CUgraphNode n, m;

	OK(cuGraphAddMemsetNode(&n, g, NULL, 0, &fill_p, work_ctx));
	OK(cuGraphAddMemcpyNode(&m, g, &n, 1, &copy_p, work_ctx));
	OK(cuGraphAddHostNode(&n, g, &m, 1, &host_p));
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p + 2 * BYTES - 4), 9);
	ck_assert_int_eq(calls, 1);
	memset(&fill_p, 0, sizeof(fill_p));
	OK(cuGraphHostNodeGetParams(n, &host_p));
	ck_assert_ptr_eq(host_p.userData, &calls);
	OK(cuGraphMemcpyNodeGetParams(m, &copy_p));
	ck_assert_uint_eq(copy_p.dstDevice, p + BYTES);
	FAILS(cuGraphMemsetNodeGetParams(m, &fill_p), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(memory_operations)
{
	CUdeviceptr word = device_word();
	CUstreamBatchMemOpParams ops[2];
	CUDA_BATCH_MEM_OP_NODE_PARAMS bp = { .ctx = work_ctx, .count = 2, .paramArray = ops };
	CUgraphNode n;
	CUgraphExec x;

	memset(ops, 0, sizeof(ops));
	ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[0].waitValue.address = word;
	ops[0].waitValue.value = 1;
	ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[1].writeValue.address = word;
	ops[1].writeValue.value = 2;
	OK(cuGraphAddBatchMemOpNode(&n, g, NULL, 0, &bp));
	x = instantiate(g);
	for (int i = 0; i < 2; i++) {		/* where it stands is a launch's own */
		OK(cuMemsetD32(word, 0, 1));
		OK(cuStreamSynchronize(NULL));
		OK(cuGraphLaunch(x, a));
		fakecuda_advance(1000000);
		FAILS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
		OK(cuStreamWriteValue32(b, word, 1, 0));
		OK(cuStreamSynchronize(a));
		ck_assert_uint_eq(word_at(word), 2);
	}
	memset(&bp, 0, sizeof(bp));
	OK(cuGraphBatchMemOpNodeGetParams(n, &bp));
	ck_assert_uint_eq(bp.count, 2);
	ck_assert_uint_eq(bp.paramArray[1].writeValue.value, 2);
}
END_TEST

START_TEST(semaphore_nodes)
{
	CUexternalSemaphore sem = semaphore();
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS w1 = { .params = { .fence = { 1 } } };
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS s2 = { .params = { .fence = { 2 } } };
	CUDA_EXT_SEM_WAIT_NODE_PARAMS wp = { &sem, &w1, 1 };
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS sp = { &sem, &s2, 1 };
	CUgraphNode wait, signal;
	CUgraphExec x;

	OK(cuGraphAddExternalSemaphoresWaitNode(&wait, g, NULL, 0, &wp));
	OK(cuGraphAddExternalSemaphoresSignalNode(&signal, g, &wait, 1, &sp));
	x = instantiate(g);
	s2.params.fence.value = 4;		/* of this instance alone */
	OK(cuGraphExecExternalSemaphoresSignalNodeSetParams(x, signal, &sp));
	OK(cuGraphExternalSemaphoresSignalNodeGetParams(signal, &sp));
	ck_assert_uint_eq(sp.paramsArray[0].params.fence.value, 2);
	w1.params.fence.value = 9;
	OK(cuGraphExternalSemaphoresWaitNodeGetParams(wait, &wp));
	ck_assert_uint_eq(wp.paramsArray[0].params.fence.value, 1);
	OK(cuGraphLaunch(x, a));
	FAILS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	await_semaphore(NULL, sem, 4);
	signal_semaphore(b, sem, 1);
	OK(cuStreamSynchronize(NULL));
	OK(cuStreamSynchronize(a));
}
END_TEST

static void read_text(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "r");

	ck_assert_ptr_nonnull(f);
	text[fread(text, 1, size - 1, f)] = '\0';
	fclose(f);
}

START_TEST(dot)
{
	char path[] = "/tmp/test_graph.XXXXXX", text[4096];
	CUgraphNode n = kernel_node("fill", p, 1, NULL);
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	kernel_node("add", p, 1, n);
	OK(cuGraphDebugDotPrint(g, path, 0));
	read_text(path, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "digraph"));
	ck_assert_ptr_nonnull(strstr(text, "fill"));
	ck_assert_ptr_nonnull(strstr(text, "->"));
	unlink(path);
	FAILS(cuGraphDebugDotPrint(g, "/no/such/place", 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(embedded_graphs)
{
	CUgraph child, inside;
	CUgraphNode n, first, last;

	OK(cuGraphCreate(&child, 0));
	first = kernel_node("fill", p, 1, NULL);
	{
		CUgraph outer = g;

		g = child;
		kernel_node("add", p, 10, NULL);
		g = outer;
	}
	OK(cuGraphAddChildGraphNode(&n, g, &first, 1, child));
	last = kernel_node("add", p, 100, n);
	ck_assert_ptr_nonnull(last);
	OK(cuGraphChildGraphNodeGetGraph(n, &inside));
	ck_assert_ptr_ne(inside, child);
	FAILS(cuGraphDestroy(inside), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphDestroy(child));
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 111);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(events)
{
	CUevent e = event(), e_out;
	CUgraphNode n = kernel_node("fill", p, 4, NULL), m;
	CUgraph waits;
	CUgraphExec x, y;

	OK(cuGraphAddEventRecordNode(&m, g, &n, 1, e));
	OK(cuGraphEventRecordNodeGetEvent(m, &e_out));
	ck_assert_ptr_eq(e, e_out);
	x = instantiate(g);
	OK(cuGraphCreate(&waits, 0));
	OK(cuGraphAddEventWaitNode(&m, waits, NULL, 0, e));
	g = waits;
	kernel_node("add", p, 5, m);
	y = instantiate(g);
	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(y, b));
	OK(cuEventSynchronize(e));
	ck_assert_uint_eq(word_at(p), 4);
	OK(cuStreamSynchronize(b));
	ck_assert_uint_eq(word_at(p), 9);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(overlapping_edge)
{
	CUgraphEdgeData data = { .from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
				 .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };
	CUgraphNode first = kernel_node("spin", p, 0, NULL), last = kernel_node("fill", p, 1, NULL);

	OK(cuGraphAddDependencies(g, &first, &last, &data, 1));
	OK(cuGraphLaunch(instantiate(g), a));
	fakecuda_advance(1000000);
	ck_assert_uint_eq(word_at(p), 1);
	FAILS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
}
END_TEST

START_TEST(one_entry_for_all_types)
{
	uint32_t value = 3, n_words = 1;
	void *args[] = { &p, &value, &n_words };
	CUgraphNodeParams np = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUgraphNode n, m;

	np.kernel.func = kernel("fill");
	np.kernel.gridDimX = np.kernel.gridDimY = np.kernel.gridDimZ = 1;
	np.kernel.blockDimX = np.kernel.blockDimY = np.kernel.blockDimZ = 1;
	np.kernel.kernelParams = args;
	OK(cuGraphAddNode(&n, g, NULL, NULL, 0, &np));
	np = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_MEMSET };
	np.memset.dst = p + 4;
	np.memset.value = 6;
	np.memset.elementSize = 4;
	np.memset.width = np.memset.height = 1;
	OK(cuGraphAddNode(&m, g, &n, NULL, 1, &np));
	np = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	FAILS(cuGraphAddNode(&n, g, NULL, NULL, 0, &np), CUDA_ERROR_NOT_SUPPORTED);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 3);
	ck_assert_uint_eq(word_at(p + 4), 6);
}
END_TEST

/* ---- edges ---- */

START_TEST(edges)
{
	CUgraphNode n[3], from[3], to[3], one;
	size_t count;

	for (int i = 0; i < 3; i++)
		OK(cuGraphAddEmptyNode(&n[i], g, NULL, 0));
	OK(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1));
	FAILS(cuGraphAddDependencies(g, &n[0], &n[1], NULL, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddDependencies(g, &n[0], &n[0], NULL, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphAddDependencies(g, &n[1], &n[2], NULL, 1));
	count = 3;
	OK(cuGraphGetEdges(g, from, to, NULL, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_ptr_eq(from[1], n[1]);
	ck_assert_ptr_eq(to[1], n[2]);
	ck_assert_ptr_null(from[2]);
	count = 1;
	OK(cuGraphGetRootNodes(g, &one, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(one, n[0]);
	OK(cuGraphRemoveDependencies(g, &n[0], &n[1], NULL, 1));
	FAILS(cuGraphRemoveDependencies(g, &n[0], &n[1], NULL, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphGetRootNodes(g, NULL, &count));
	ck_assert_uint_eq(count, 2);
	OK(cuGraphDestroyNode(n[1]));
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &count));
	ck_assert_uint_eq(count, 0);
	FAILS(cuGraphDestroyNode(n[1]), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(bad_dependencies)
{
	CUgraph other;
	CUgraphNode n, m, twice[2];

	OK(cuGraphCreate(&other, 0));
	OK(cuGraphAddEmptyNode(&n, other, NULL, 0));
	FAILS(cuGraphAddEmptyNode(&m, g, &n, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddEmptyNode(&m, g, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddEmptyNode(NULL, g, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	twice[0] = twice[1] = n;
	FAILS(cuGraphAddEmptyNode(&m, other, twice, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphDestroy(other));
	FAILS(cuGraphAddEmptyNode(&m, other, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(cycles_cannot_be_instantiated)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS ip = { 0 };
	CUgraphNode n[2];
	CUgraphExec x;

	OK(cuGraphAddEmptyNode(&n[0], g, NULL, 0));
	OK(cuGraphAddEmptyNode(&n[1], g, &n[0], 1));
	OK(cuGraphAddDependencies(g, &n[1], &n[0], NULL, 1));
	FAILS(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphInstantiateWithParams(&x, g, &ip), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(ip.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
}
END_TEST

/* ---- copies ---- */

START_TEST(clones)
{
	CUgraphNode n = kernel_node("fill", p, 1, NULL), m = kernel_node("add", p, 1, n), c;
	uint32_t value = 50, words = 1;
	void *args[] = { &p, &value, &words };
	CUDA_KERNEL_NODE_PARAMS kp = params("fill", args);
	CUgraph clone;

	ck_assert_ptr_nonnull(m);
	OK(cuGraphClone(&clone, g));
	OK(cuGraphNodeFindInClone(&c, n, clone));
	ck_assert_ptr_ne(c, n);
	OK(cuGraphKernelNodeSetParams(c, &kp));
	FAILS(cuGraphNodeFindInClone(&c, c, g), CUDA_ERROR_INVALID_VALUE);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 2);
	OK(cuGraphDestroy(g));
	run(instantiate(clone));
	ck_assert_uint_eq(word_at(p), 51);
}
END_TEST

START_TEST(changes_after_instantiation_do_not_count)
{
	CUgraphNode n = kernel_node("fill", p, 1, NULL);
	CUgraphExec x = instantiate(g);

	kernel_node("add", p, 1, n);
	run(x);
	ck_assert_uint_eq(word_at(p), 1);
	OK(cuGraphDestroy(g));
	run(x);
	OK(cuGraphExecDestroy(x));
	FAILS(cuGraphLaunch(x, a), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(destroyed_while_it_runs)
{
	CUgraphNode n = kernel_node("spin", p, 0, NULL);
	CUgraphExec x;

	kernel_node("fill", p, 8, n);
	x = instantiate(g);
	OK(cuGraphLaunch(x, a));
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p), 8);
}
END_TEST

/* ---- user objects ---- */

static void wait_for(const int *calls, int wanted)
{
	for (int i = 0; i < 10000 && __atomic_load_n(calls, __ATOMIC_RELAXED) != wanted; i++)
		sleep_ms(1);
	ck_assert_int_eq(__atomic_load_n(calls, __ATOMIC_RELAXED), wanted);
}

START_TEST(user_objects)
{
	static int calls;
	CUuserObject o;
	CUgraphExec x;

	calls = 0;
	OK(cuUserObjectCreate(&o, &calls, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	FAILS(cuUserObjectCreate(&o, &calls, count, 1, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectRetain(o, 2));
	OK(cuUserObjectRelease(o, 2));
	OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	kernel_node("spin", p, 0, NULL);
	x = instantiate(g);
	OK(cuGraphDestroy(g));
	OK(cuGraphLaunch(x, a));
	OK(cuGraphExecDestroy(x));
	fakecuda_advance(1000);			/* host functions that were due have returned */
	ck_assert_int_eq(__atomic_load_n(&calls, __ATOMIC_RELAXED), 0);
	OK(cuStreamSynchronize(a));
	wait_for(&calls, 1);
	FAILS(cuUserObjectRelease(o, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(user_object_released_by_a_graph)
{
	static int calls;
	CUuserObject o;

	calls = 0;
	OK(cuUserObjectCreate(&o, &calls, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(g, o, 2, 0));
	FAILS(cuGraphReleaseUserObject(g, o, 3), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphReleaseUserObject(g, o, 2));
	FAILS(cuGraphReleaseUserObject(g, o, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(__atomic_load_n(&calls, __ATOMIC_RELAXED), 0);
	OK(cuUserObjectRelease(o, 1));
	wait_for(&calls, 1);
}
END_TEST

/* ---- errors ---- */

START_TEST(a_context_that_is_gone)
{
	CUcontext second;
	CUgraphExec x;
	CUstream c;

	OK(cuCtxCreate(&second, NULL, 0, 0));
	OK(cuModuleLoadData(&work_module, work_ptx));
	kernel_node("touch", p, 0, NULL);
	x = instantiate(g);
	OK(cuCtxDestroy(second));
	OK(cuCtxSetCurrent(work_ctx));
	OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
	FAILS(cuGraphLaunch(x, c), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}
END_TEST

START_TEST(a_poisoned_context)
{
	CUgraphExec x;

	kernel_node("add", p, 1, NULL);
	x = instantiate(g);
	touch(a, p);
	{
		void *args[] = { &p };

		launch("fault", a, args);
	}
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuGraphLaunch(x, b), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		nodes_run_in_order, edges_decide, branches_run_side_by_side,
		stream_order_around_a_launch, launches_of_one_graph, an_empty_graph,
		copies_fills_host_functions, memory_operations, semaphore_nodes, dot,
		embedded_graphs, events, overlapping_edge, one_entry_for_all_types, edges,
		bad_dependencies, cycles_cannot_be_instantiated, clones,
		changes_after_instantiation_do_not_count, destroyed_while_it_runs, user_objects,
		user_object_released_by_a_graph, a_poisoned_context, a_context_that_is_gone,
	};
	Suite *suite = suite_create("graph");
	TCase *tc = tcase_create("graph");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_set_timeout(tc, 30);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
