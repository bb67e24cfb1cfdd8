/*
 * test_graph_exec.c - executable graphs: the ways to instantiate them, and how they are changed.
 */
#include "graph.h"

#include <dlfcn.h>

/* ---- instantiating ---- */

START_TEST(instantiate_variants)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS ip = { .flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
					     .hUploadStream = a };
	CUresult (*old)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
	static const char *const names[] = { "cuGraphInstantiate", "cuGraphInstantiate_v2" };
	CUgraphNode bad;
	CUgraphExec x;
	cuuint64_t flags;
	char log[16] = "x";

	kernel_node("add", p, 1, NULL);
	for (int i = 0; i < 2; i++) {
		*(void **)&old = dlsym(RTLD_DEFAULT, names[i]);
		OK(old(&x, g, &bad, log, sizeof(log)));
		ck_assert_str_eq(log, "");
		run(x);
	}
	OK(cuGraphInstantiateWithParams(&x, g, &ip));
	ck_assert_int_eq(ip.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
	run(x);
	OK(cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	OK(cuGraphExecGetFlags(x, &flags));
	ck_assert_uint_eq(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
	OK(cuGraphUpload(x, a));
	run(x);
	ck_assert_uint_eq(word_at(p), 4);
	FAILS(cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuGraphInstantiate(&x, g, 1 << 20), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(per_thread_names)
{
	CUresult (*launch_ptsz)(CUgraphExec, CUstream);
	CUgraphExec x;

	kernel_node("add", p, 1, NULL);
	x = instantiate(g);
	*(void **)&launch_ptsz = dlsym(RTLD_DEFAULT, "cuGraphLaunch_ptsz");
	OK(launch_ptsz(x, NULL));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

/* ---- changing executable graphs ---- */

START_TEST(exec_params)
{
	uint32_t value = 20, words = 1;
	void *args[] = { &p, &value, &words };
	CUDA_KERNEL_NODE_PARAMS kp = params("fill", args);
	CUgraphNode n = kernel_node("fill", p, 1, NULL);
	CUgraphExec x = instantiate(g);
	CUDA_KERNEL_NODE_PARAMS got;

	OK(cuGraphExecKernelNodeSetParams(x, n, &kp));
	value = 0;				/* the values were copied */
	run(x);
	ck_assert_uint_eq(word_at(p), 20);
	OK(cuGraphKernelNodeGetParams(n, &got));
	ck_assert_uint_eq(*(uint32_t *)got.kernelParams[1], 1);
	run(instantiate(g));
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

START_TEST(disabled_nodes)
{
	CUgraphNode n = kernel_node("fill", p, 1, NULL), m = kernel_node("add", p, 5, n);
	CUgraphExec x = instantiate(g);
	unsigned int on;

	OK(cuGraphNodeSetEnabled(x, m, 0));
	OK(cuGraphNodeGetEnabled(x, m, &on));
	ck_assert_uint_eq(on, 0);
	run(x);
	ck_assert_uint_eq(word_at(p), 1);
	OK(cuGraphNodeSetEnabled(x, m, 1));
	run(x);
	ck_assert_uint_eq(word_at(p), 6);
}
END_TEST

START_TEST(exec_update)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode n = kernel_node("fill", p, 1, NULL), m = kernel_node("add", p, 1, n);
	CUgraphExec x = instantiate(g);
	CUgraph other;

	ck_assert_ptr_nonnull(m);
	OK(cuGraphCreate(&other, 0));
	g = other;
	n = kernel_node("fill", p, 30, NULL);
	FAILS(cuGraphExecUpdate(x, g, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	m = kernel_node("add", p, 3, NULL);
	FAILS(cuGraphExecUpdate(x, g, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ck_assert_ptr_eq(info.errorNode, m);
	run(x);
	ck_assert_uint_eq(word_at(p), 2);	/* as it was */
	OK(cuGraphAddDependencies(g, &n, &m, NULL, 1));
	OK(cuGraphExecUpdate(x, g, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run(x);
	ck_assert_uint_eq(word_at(p), 33);
	OK(cuGraphDestroyNode(m));
	OK(cuGraphAddEmptyNode(&m, g, &n, 1));
	FAILS(cuGraphExecUpdate(x, g, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
}
END_TEST

/* As many nodes of the same types with as many edges, but not the same ones. */
START_TEST(exec_update_of_another_shape)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode n[3];
	CUgraphExec x;

	for (int same = 0; same < 2; same++) {
		OK(cuGraphAddEmptyNode(&n[0], g, NULL, 0));
		OK(cuGraphAddEmptyNode(&n[1], g, &n[0], 1));
		OK(cuGraphAddEmptyNode(&n[2], g, &n[same], 1));
		if (!same) {
			x = instantiate(g);
			OK(cuGraphCreate(&g, 0));
		}
	}
	FAILS(cuGraphExecUpdate(x, g, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ck_assert_ptr_eq(info.errorNode, n[2]);
}
END_TEST

START_TEST(kernel_attributes)
{
	CUgraphNode n = kernel_node("fill", p, 1, NULL), m = kernel_node("fill", p, 2, NULL);
	CUkernelNodeAttrValue value = { .priority = -3 }, got;

	OK(cuGraphKernelNodeSetAttribute(n, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	OK(cuGraphKernelNodeCopyAttributes(m, n));
	OK(cuGraphKernelNodeGetAttribute(m, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
	ck_assert_int_eq(got.priority, -3);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		instantiate_variants, per_thread_names, exec_params, disabled_nodes, exec_update,
		exec_update_of_another_shape, kernel_attributes,
	};
	Suite *suite = suite_create("graph, executable");
	TCase *tc = tcase_create("graph,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
