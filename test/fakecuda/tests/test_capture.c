/*
 * test_capture.c - stream capture: what it refuses to whom, what becomes a node, forks and joins,
 * and every way in which it ends.
 */
#include "work.h"

static CUstream a, b, other;
static CUdeviceptr p;

static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	other = stream();
	p = alloc(1 << 20);
}

static void begin(CUstream s)
{
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUgraph end(CUstream s)
{
	CUgraph g;

	OK(cuStreamEndCapture(s, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

static void ends_with(CUstream s, CUresult error)
{
	CUgraph g = (CUgraph)&g;

	FAILS(cuStreamEndCapture(s, &g), error);
	ck_assert_ptr_null(g);
}

static CUstreamCaptureStatus status(CUstream s)
{
	CUstreamCaptureStatus st;

	OK(cuStreamIsCapturing(s, &st));
	return st;
}

static size_t nodes_of(CUgraph g)
{
	size_t n;

	OK(cuGraphGetNodes(g, NULL, &n));
	return n;
}

/* ---- what is refused: the table of facts seen on an H200 ---- */

static CUdeviceptr device_memory, pool_memory;
static CUevent some_event, other_event;
static void *pinned;

static CUresult call_mem_alloc(void)
{
	CUdeviceptr q;

	return cuMemAlloc(&q, 4096);
}

static CUresult call_mem_free(void)
{
	return cuMemFree(device_memory);
}

static CUresult call_host_alloc(void)
{
	return cuMemHostAlloc(&pinned, 4096, 0);
}

static CUresult call_alloc_async(void)
{
	CUdeviceptr q;

	return cuMemAllocAsync(&q, 4096, other);
}

static CUresult call_free_async(void)
{
	return cuMemFreeAsync(pool_memory, other);
}

static CUresult call_event_query(void)
{
	return cuEventQuery(some_event);
}

static CUresult call_stream_synchronize(void)
{
	return cuStreamSynchronize(other);
}

static CUresult call_ctx_synchronize(void)
{
	return cuCtxSynchronize();
}

static CUresult call_ctx_record(void)
{
	return cuCtxRecordEvent(work_ctx, some_event);
}

static CUresult call_vmm(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc access = { .location = prop.location,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	CUresult r = cuMemCreate(&h, 2 << 20, &prop, 0);

	r = r ? r : cuMemAddressReserve(&va, 2 << 20, 0, 0, 0);
	r = r ? r : cuMemMap(va, 2 << 20, 0, h, 0);
	r = r ? r : cuMemSetAccess(va, 2 << 20, &access, 1);
	r = r ? r : cuMemUnmap(va, 2 << 20);
	return r ? r : cuMemRelease(h);
}

static CUresult call_event_record(void)
{
	return cuEventRecord(some_event, other);
}

static CUresult call_stream_wait(void)
{
	return cuStreamWaitEvent(other, other_event, 0);
}

static CUresult call_event_create(void)
{
	CUevent e;

	return cuEventCreate(&e, 0);
}

static CUresult call_mem_info(void)
{
	size_t free_bytes, total;

	return cuMemGetInfo(&free_bytes, &total);
}

enum severity { MODE, ALWAYS, NEVER };

static const struct call {
	const char *name;
	CUresult (*fn)(void);
	enum severity severity;
} calls[] = {
	{ "cuMemAlloc", call_mem_alloc, MODE },
	{ "cuMemFree", call_mem_free, MODE },
	{ "cuMemHostAlloc", call_host_alloc, MODE },
	{ "cuMemAllocAsync", call_alloc_async, MODE },
	{ "cuMemFreeAsync", call_free_async, MODE },
	{ "cuEventQuery", call_event_query, MODE },
	{ "cuStreamSynchronize", call_stream_synchronize, MODE },
	{ "cuCtxSynchronize", call_ctx_synchronize, ALWAYS },
	{ "cuCtxRecordEvent", call_ctx_record, ALWAYS },
	{ "cuMemCreate to cuMemRelease", call_vmm, NEVER },
	{ "cuEventRecord", call_event_record, NEVER },
	{ "cuStreamWaitEvent", call_stream_wait, NEVER },
	{ "cuEventCreate", call_event_create, NEVER },
	{ "cuMemGetInfo", call_mem_info, NEVER },
};

struct attempt {
	const struct call *call;
	CUstreamCaptureMode exchange;	/* of the calling thread */
	CUresult result;
};

static void *attempt(void *arg)
{
	struct attempt *at = arg;
	CUstreamCaptureMode mode = at->exchange;

	OK(cuCtxSetCurrent(work_ctx));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	at->result = at->call->fn();
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, at->exchange);
	return NULL;
}

/* Each call in a capture of its own: by the capturing thread or by another, in its own mode. */
static void try_call(const struct call *call, CUstreamCaptureMode mode, bool own_thread,
		     CUstreamCaptureMode exchange)
{
	struct attempt at = { .call = call, .exchange = exchange };
	bool refused = call->severity == ALWAYS;

	if (call->severity == MODE && mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    exchange != CU_STREAM_CAPTURE_MODE_RELAXED)
		refused = own_thread || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
					 exchange == CU_STREAM_CAPTURE_MODE_GLOBAL);
	device_memory = alloc(4096);
	OK(cuMemAllocAsync(&pool_memory, 4096, other));
	OK(cuStreamSynchronize(other));
	some_event = event();
	other_event = event();
	OK(cuEventRecord(other_event, b));
	OK(cuStreamBeginCapture(a, mode));
	if (own_thread)
		attempt(&at);
	else
		run_thread(attempt, &at);
	ck_assert_msg(at.result == (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS),
		      "%s, capture mode %d, %s thread in mode %d: %d", call->name, (int)mode,
		      own_thread ? "own" : "other", (int)exchange, (int)at.result);
	ck_assert_int_eq(status(a), refused ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
					      CU_STREAM_CAPTURE_STATUS_ACTIVE);
	if (refused)
		ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	else
		ck_assert_uint_eq(nodes_of(end(a)), 0);
	ck_assert_int_eq(status(a), CU_STREAM_CAPTURE_STATUS_NONE);
}

START_TEST(refusals)
{
	const struct call *call = &calls[_i];

	for (int mode = 0; mode < 3; mode++)
		for (int exchange = 0; exchange < 3; exchange++) {
			try_call(call, (CUstreamCaptureMode)mode, true,
				 (CUstreamCaptureMode)exchange);
			try_call(call, (CUstreamCaptureMode)mode, false,
				 (CUstreamCaptureMode)exchange);
		}
}
END_TEST

START_TEST(refused_calls_work_afterwards)
{
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	FAILS(cuMemFree(p), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuMemFree(p));
	OK(cuCtxSynchronize());
}
END_TEST

START_TEST(the_capturing_stream_itself)
{
	begin(a);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(a);
	FAILS(cuStreamQuery(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(another_context_synchronises)
{
	CUcontext second;

	begin(a);
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(work_ctx));
	end(a);
}
END_TEST

static void callback(CUstream s, CUresult r, void *arg)
{
	(void)s;
	(void)r;
	(void)arg;
}

START_TEST(work_no_graph_can_hold)
{
	begin(a);
	FAILS(cuStreamAddCallback(a, callback, NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(invalidated_stream_takes_nothing)
{
	CUevent e = event();
	CUdeviceptr q;
	void *args[] = { &p };

	begin(a);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	FAILS(cuLaunchKernel(kernel("touch"), 1, 1, 1, 1, 1, 1, 0, a, args, NULL),
	      CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	FAILS(cuMemsetD8Async(p, 0, 1, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	FAILS(cuMemAllocAsync(&q, 1, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	FAILS(cuEventRecord(e, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

/* ---- the legacy stream ---- */

START_TEST(legacy_stream_meets_a_blocking_capture)
{
	CUstream c = blocking_stream();
	CUstreamCaptureStatus st;
	void *args[] = { &p };
	uint32_t host;

	begin(c);
	FAILS(cuStreamIsCapturing(NULL, &st), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ck_assert_int_eq(status(c), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	FAILS(cuLaunchKernel(kernel("touch"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL),
	      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ends_with(c, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(c);
	FAILS(cuMemcpyDtoH(&host, p, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ends_with(c, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	touch(NULL, p);
}
END_TEST

START_TEST(legacy_stream_beside_a_non_blocking_capture)
{
	begin(a);
	touch(NULL, p);
	ck_assert_uint_eq(nodes_of(end(a)), 0);
	FAILS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
	      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
END_TEST

START_TEST(per_thread_stream_captures)
{
	begin(CU_STREAM_PER_THREAD);
	touch(CU_STREAM_PER_THREAD, p);
	ck_assert_uint_eq(nodes_of(end(CU_STREAM_PER_THREAD)), 1);
}
END_TEST

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
		refused_calls_work_afterwards, the_capturing_stream_itself,
		another_context_synchronises, work_no_graph_can_hold,
		invalidated_stream_takes_nothing, legacy_stream_meets_a_blocking_capture,
		legacy_stream_beside_a_non_blocking_capture, per_thread_stream_captures,
		wrong_ways_to_begin_and_end, the_thread_that_ends,
		nothing_happens_before_the_launch, types_of_nodes,
		external_flags_outside_a_capture, fork_and_join, fork_never_joined,
		fork_without_work_needs_no_join, work_after_the_join, only_the_first_stream_ends,
		event_from_outside, two_captures_meet, captured_events,
		events_destroyed_in_a_capture, first_stream_destroyed, joined_stream_destroyed,
		forked_stream_destroyed, info, dependencies_set_and_added, into_a_graph,
		overlap_is_an_edge_of_its_own, memory_becomes_nodes,
	};
	Suite *suite = suite_create("capture");
	TCase *tc = tcase_create("capture");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_add_loop_test(tc, refusals, 0, sizeof(calls) / sizeof(calls[0]));
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
