/*
 * test_graph_memory.c - memory nodes: addresses that stay, memory that comes and goes behind them,
 * and who may free it.
 */
#include "graph.h"

#define SEGMENT ((uint64_t)32 << 20)	/* what graphs' memory comes in */

static CUdeviceptr alloc_node(CUgraph graph, size_t size, CUgraphNode after, CUgraphNode *ret)
{
	CUDA_MEM_ALLOC_NODE_PARAMS ap = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
		.bytesize = size };

	OK(cuGraphAddMemAllocNode(ret, graph, &after, after ? 1 : 0, &ap));
	ck_assert_uint_ne(ap.dptr, 0);
	return ap.dptr;
}

static uint64_t attribute(CUgraphMem_attribute attr)
{
	cuuint64_t v;

	OK(cuDeviceGetGraphMemAttribute(0, attr, &v));
	return v;
}

static void memory_is(uint64_t reserved)
{
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), reserved);
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), reserved);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_GRAPH), reserved);
}

/* g: allocate, fill with @value, copy to p, and free if @freed. */
static CUdeviceptr memory_graph(uint32_t value, bool freed)
{
	uint32_t n_words = 1;
	CUgraphNode n, m;
	CUdeviceptr q = alloc_node(g, 3 << 20, NULL, &n);
	void *args[] = { &p, &q, &n_words };
	CUDA_KERNEL_NODE_PARAMS kp = params("copy", args);

	n = kernel_node("fill", q, value, n);
	OK(cuGraphAddKernelNode(&m, g, &n, 1, &kp));
	if (freed)
		OK(cuGraphAddMemFreeNode(&n, g, &m, 1, q));
	return q;
}

START_TEST(memory_lives_in_the_graph)
{
	uint64_t charged = fakecuda_charged_bytes(0);
	CUdeviceptr q = memory_graph(7, true);
	CUmemorytype type;
	CUgraphExec x = instantiate(g);

	memory_is(0);
	ck_assert_int_ne(fakecuda_write(q, "x", 1), 0);	/* an address without memory */
	FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, q),
	      CUDA_ERROR_INVALID_VALUE);
	run(x);
	ck_assert_uint_eq(word_at(p), 7);
	memory_is(SEGMENT);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), charged + SEGMENT);
	for (int i = 0; i < 5; i++)
		run(x);
	memory_is(SEGMENT);
	FAILS(cuMemFreeAsync(q, a), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphExecDestroy(x));
	memory_is(SEGMENT);
	OK(cuDeviceGraphMemTrim(0));
	memory_is(0);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), charged);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(memory_is_reused_by_the_next_graph)
{
	CUgraphExec x;

	memory_graph(1, true);
	x = instantiate(g);
	run(x);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
	OK(cuGraphCreate(&g, 0));
	memory_graph(2, true);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 2);
	memory_is(SEGMENT);
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), SEGMENT);
}
END_TEST

START_TEST(trim_spares_what_runs)
{
	CUgraphNode n, m;
	CUdeviceptr q = alloc_node(g, 2 << 20, NULL, &n);
	CUgraphExec x;

	n = kernel_node("spin", q, 0, n);
	OK(cuGraphAddMemFreeNode(&m, g, &n, 1, q));
	x = instantiate(g);
	OK(cuGraphLaunch(x, a));
	OK(cuDeviceGraphMemTrim(0));
	memory_is(SEGMENT);
	OK(cuStreamSynchronize(a));
	OK(cuDeviceGraphMemTrim(0));
	memory_is(0);
	run(x);					/* and comes back when needed */
	memory_is(SEGMENT);
}
END_TEST

START_TEST(upload_brings_memory)
{
	CUgraphExec x;

	memory_graph(1, true);
	x = instantiate(g);
	OK(cuGraphUpload(x, a));
	memory_is(SEGMENT);
}
END_TEST

START_TEST(high_marks)
{
	cuuint64_t zero = 0, one = 1;
	CUgraphExec x;

	memory_graph(1, true);
	x = instantiate(g);
	run(x);
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), SEGMENT);
	FAILS(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
	ck_assert_uint_eq(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
}
END_TEST

START_TEST(memory_that_outlives_its_launch)
{
	CUdeviceptr q = memory_graph(7, false);
	CUgraphExec x = instantiate(g);

	FAILS(cuMemFreeAsync(q, a), CUDA_ERROR_INVALID_VALUE);	/* not allocated yet */
	OK(cuGraphLaunch(x, a));
	copy(a, p + 64, q, 1);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p + 64), 7);
	FAILS(cuGraphLaunch(x, a), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(q, a));
	FAILS(cuMemFreeAsync(q, a), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	OK(cuMemFree(q));
	OK(cuGraphExecDestroy(x));
	OK(cuDeviceGraphMemTrim(0));
	memory_is(0);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(memory_that_outlives_its_graph)
{
	CUdeviceptr q = memory_graph(7, false);
	CUgraphExec x = instantiate(g);

	run(x);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
	OK(cuDeviceGraphMemTrim(0));
	ck_assert_uint_eq(word_at(q), 7);
	memory_is(SEGMENT);
	OK(cuMemFreeAsync(q, a));
	OK(cuStreamSynchronize(a));
	memory_is(SEGMENT);
}
END_TEST

/* Submitted, freed, trimmed at once: nothing is pulled away from under work. */
START_TEST(freed_by_the_host_under_work)
{
	CUdeviceptr q = memory_graph(7, false);
	CUgraphExec x = instantiate(g);

	run(x);
	OK(cuGraphExecDestroy(x));
	spin(a, q);
	fill(a, q, 1, 1);
	OK(cuMemFree(q));
	OK(cuGraphDestroy(g));
	OK(cuDeviceGraphMemTrim(0));
	memory_is(SEGMENT);
	OK(cuStreamSynchronize(a));
	OK(cuDeviceGraphMemTrim(0));
	memory_is(0);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(freed_by_the_host_when_a_stream_is_gone)
{
	CUdeviceptr q = memory_graph(7, false);

	run(instantiate(g));
	fill(b, q, 1, 1);
	fakecuda_advance(1000000);		/* complete, which the host has not seen */
	OK(cuStreamDestroy(b));
	OK(cuMemFree(q));
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

/* Two allocations share a segment; a large one has its own. */
START_TEST(segments)
{
	CUgraphNode n;

	alloc_node(g, 1 << 20, NULL, &n);
	alloc_node(g, 4 << 20, NULL, &n);
	run(instantiate(g));
	memory_is(SEGMENT);
	OK(cuGraphCreate(&g, 0));
	alloc_node(g, 40 << 20, NULL, &n);
	run(instantiate(g));
	memory_is(3 * SEGMENT);
}
END_TEST

START_TEST(freed_at_the_next_launch)
{
	CUgraphExec x;
	CUdeviceptr q = memory_graph(7, false);
	CUgraphNode n;

	OK(cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	memory_is(SEGMENT);
	OK(cuMemFree(q));
	ck_assert_uint_eq(fakecuda_races(), 0);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));			/* now nobody has the address any more */
	OK(cuGraphCreate(&g, 0));
	FAILS(cuGraphAddMemFreeNode(&n, g, NULL, 0, q), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(freed_by_another_graph)
{
	CUdeviceptr q = memory_graph(7, false);
	CUgraphNode n;
	CUgraph frees;
	CUgraphExec x = instantiate(g), y;

	OK(cuGraphCreate(&frees, 0));
	OK(cuGraphAddMemFreeNode(&n, frees, NULL, 0, q));
	FAILS(cuGraphAddMemFreeNode(&n, g, NULL, 0, q), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddMemFreeNode(&n, frees, NULL, 0, q), CUDA_ERROR_INVALID_VALUE);
	y = instantiate(frees);
	FAILS(cuGraphLaunch(y, a), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(y, a));
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(what_memory_nodes_forbid)
{
	CUdeviceptr q = memory_graph(7, true);
	CUgraphNode nodes[4], n;
	CUgraph other;
	CUgraphExec x = instantiate(g), y;
	size_t count = 4;

	OK(cuGraphCreate(&other, 0));
	OK(cuGraphGetNodes(g, nodes, &count));
	FAILS(cuGraphClone(&other, g), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuGraphDestroyNode(nodes[1]), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuGraphRemoveDependencies(g, &nodes[0], &nodes[1], NULL, 1),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuGraphAddChildGraphNode(&n, other, NULL, 0, g), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuGraphAddMemFreeNode(&n, g, NULL, 0, q), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddMemFreeNode(&n, other, NULL, 0, q), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddMemFreeNode(&n, g, NULL, 0, p), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphAddMemFreeNode(&n, g, NULL, 0, q + 16), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphInstantiate(&y, g, 0), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphInstantiate(&y, g, 0));
}
END_TEST

START_TEST(embedded_for_good)
{
	CUgraphNodeParams np = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraph child = g;
	CUgraphNode n;
	CUgraphExec x;

	memory_graph(12, true);
	OK(cuGraphCreate(&g, 0));
	np.graph.graph = child;
	np.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	OK(cuGraphAddNode(&n, g, NULL, NULL, 0, &np));
	FAILS(cuGraphInstantiate(&x, child, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 12);
	OK(cuGraphDestroy(g));
	FAILS(cuGraphAddEmptyNode(&n, child, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(no_memory_for_the_launch)
{
	CUgraphNode n;
	CUgraphExec x;

	alloc_node(g, (size_t)64 << 30, NULL, &n);	/* an address costs nothing */
	kernel_node("fill", p, 1, n);
	x = instantiate(g);
	FAILS(cuGraphLaunch(x, a), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p), 0);	/* none of it has happened */
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
}
END_TEST

START_TEST(memory_parameters)
{
	CUDA_MEM_ALLOC_NODE_PARAMS ap = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 } },
		.bytesize = 5000 };
	CUDA_MEM_ALLOC_NODE_PARAMS got;
	CUdeviceptr q;
	CUgraphNode n, m;

	OK(cuGraphAddMemAllocNode(&n, g, NULL, 0, &ap));
	OK(cuGraphMemAllocNodeGetParams(n, &got));
	ck_assert_uint_eq(got.bytesize, 5000);
	ck_assert_uint_eq(got.dptr, ap.dptr);
	OK(cuGraphAddMemFreeNode(&m, g, &n, 1, ap.dptr));
	OK(cuGraphMemFreeNodeGetParams(m, &q));
	ck_assert_uint_eq(q, ap.dptr);
	ap.bytesize = 0;
	FAILS(cuGraphAddMemAllocNode(&n, g, NULL, 0, &ap), CUDA_ERROR_INVALID_VALUE);
	ap.bytesize = 1;
	ap.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	FAILS(cuGraphAddMemAllocNode(&n, g, NULL, 0, &ap), CUDA_ERROR_INVALID_VALUE);
	run(instantiate(g));
	ck_assert_uint_eq(fakecuda_live_bytes(1, FAKECUDA_GRAPH), SEGMENT);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_GRAPH), 0);
}
END_TEST

/* Use of the memory after the graph freed it, unordered: the detector knows graph memory too. */
START_TEST(memory_used_after_its_free)
{
	CUgraphNode n, m;
	CUdeviceptr q = alloc_node(g, 4096, NULL, &n);

	OK(cuGraphAddMemFreeNode(&m, g, &n, 1, q));
	kernel_node("fill", q, 1, n);		/* beside the free, not before it */
	OK(cuGraphLaunch(instantiate(g), a));
	ck_assert_uint_ge(fakecuda_races(), 1);
	ck_assert_ptr_nonnull(strstr(fakecuda_race_text(0), "freed"));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		memory_lives_in_the_graph, memory_is_reused_by_the_next_graph,
		trim_spares_what_runs, upload_brings_memory, high_marks,
		memory_that_outlives_its_launch, memory_that_outlives_its_graph,
		freed_by_the_host_under_work, freed_by_the_host_when_a_stream_is_gone, segments,
		freed_at_the_next_launch, freed_by_another_graph, what_memory_nodes_forbid,
		embedded_for_good, no_memory_for_the_launch, memory_parameters,
		memory_used_after_its_free,
	};
	Suite *suite = suite_create("graph, memory");
	TCase *tc = tcase_create("graph,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
