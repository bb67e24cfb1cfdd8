/*
 * test_graph.c - graphs: nodes, edges, copies, executable graphs, launches, memory nodes, user
 * objects. What a graph did is read from memory, not from what it says of itself.
 */
#include "work.h"

#include <dlfcn.h>

#define SEGMENT ((uint64_t)32 << 20)	/* what graphs' memory comes in */

static CUstream a, b;
static CUdeviceptr p;
static CUgraph g;

static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
	OK(cuGraphCreate(&g, 0));
}

static CUDA_KERNEL_NODE_PARAMS params(const char *name, void **args)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = kernel(name), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = args };
}

static CUgraphNode kernel_node(const char *name, CUdeviceptr q, uint32_t value, CUgraphNode after)
{
	uint32_t n = 1;
	void *args[] = { &q, &value, &n };
	CUDA_KERNEL_NODE_PARAMS kp = params(name, args);
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, &after, after ? 1 : 0, &kp));
	return node;
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec x;

	OK(cuGraphInstantiate(&x, graph, 0));
	return x;
}

static void run(CUgraphExec x)
{
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
}

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

/* ---- memory nodes ---- */

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
		copies_fills_host_functions, memory_operations, semaphore_nodes, dot, embedded_graphs, events,
		overlapping_edge, one_entry_for_all_types, edges, bad_dependencies,
		cycles_cannot_be_instantiated, clones, changes_after_instantiation_do_not_count,
		destroyed_while_it_runs, instantiate_variants, per_thread_names, exec_params,
		disabled_nodes, exec_update, exec_update_of_another_shape, kernel_attributes, memory_lives_in_the_graph,
		memory_is_reused_by_the_next_graph, trim_spares_what_runs, upload_brings_memory,
		high_marks, memory_that_outlives_its_launch, memory_that_outlives_its_graph,
		freed_by_the_host_under_work, segments, freed_at_the_next_launch, freed_by_another_graph, what_memory_nodes_forbid,
		embedded_for_good, no_memory_for_the_launch, memory_parameters,
		memory_used_after_its_free, user_objects, user_object_released_by_a_graph,
		a_poisoned_context,
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
