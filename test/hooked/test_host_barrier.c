/*
 * Which pending work the host could see the result of, so that a cudaFree has to wait for it, and what
 * ends that; and how a thread knows that it is in a host function. On the fake driver, through the hooks.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "test/hooked/hooked.h"

static CUcontext context;
static CUdeviceptr device;
static void *pinned, *pageable;

#define BYTES 4096u

static CUdeviceptr at(void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
			  ".visible .entry touch(.param .u64 p){ret;}\n";

static void setup(void)
{
	context = begin();
	OK(cuMemAlloc_v2(&device, BYTES));
	pageable = calloc(1, BYTES);
	ck_assert(!gm_host_sees_pending());
}

/* From here on launches count, too. */
static void pin(void)
{
	OK(cuMemHostAlloc(&pinned, BYTES, 0));
}

static CUstream stream_new(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static CUevent event_new(unsigned int flags)
{
	CUevent event;

	OK(cuEventCreate(&event, flags));
	return event;
}

static void copy_out(CUstream stream)
{
	OK(cuMemcpyDtoHAsync_v2(pageable, device, BYTES, stream));
}

static void launch(CUstream stream)
{
	static CUmodule module;
	void *args[] = { &device };
	CUfunction f;

	if (!module)
		OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&f, module, "touch"));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* ---- which work ---- */

START_TEST(test_copies)
{
	CUstream s = stream_new();

	OK(cuMemcpyHtoD_v2(device, pageable, BYTES));
	OK(cuMemcpyDtoH_v2(pageable, device, BYTES));
	OK(cuMemcpyDtoDAsync_v2(device, device + 2048, 1024, s));
	OK(cuMemsetD8Async(device, 1, BYTES, s));
	OK(cuMemsetD8_v2(device, 1, BYTES));
	OK(cuMemcpyAsync(device, device, 64, s));	/* the same address: within device memory */
	launch(s);
	ck_assert(!gm_host_sees_pending());
	switch (_i) {
	case 0: copy_out(s); break;
	case 1: OK(cuMemcpyHtoDAsync_v2(device, pageable, BYTES, s)); break;
	case 2: OK(cuMemcpyAsync(at(pageable), device, BYTES, s)); break;
	case 3: OK(cuMemcpyAsync(device, at(pageable), BYTES, s)); break;
	case 4: OK(cuMemcpyDtoHAsync_v2_ptsz(pageable, device, BYTES, NULL)); break;
	case 5: copy_out(NULL); break;
	default: break;
	}
	ck_assert(gm_host_sees_pending());
	ck_assert(gm_host_sees_pending());		/* asking changes nothing */
	OK(cuCtxSynchronize());
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_shapes)
{
	CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = device,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = device + 2048,
			    .srcPitch = 64, .dstPitch = 64, .WidthInBytes = 64, .Height = 2 };
	CUstream s = stream_new();

	OK(cuMemcpy2DAsync_v2(&c, s));
	ck_assert(!gm_host_sees_pending());
	c.dstMemoryType = _i ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
	c.dstDevice = _i ? at(pageable) : 0;
	c.dstHost = _i ? NULL : pageable;
	OK(cuMemcpy2D_v2(&c));
	ck_assert(!gm_host_sees_pending());
	OK(cuMemcpy2DAsync_v2(&c, s));
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_visible_memory)
{
	CUdeviceptr managed;
	CUstream s = stream_new();

	launch(s);
	ck_assert(!gm_host_sees_pending());
	switch (_i) {
	case 0: OK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL)); break;
	case 1: pin(); break;
	case 2: OK(cuMemHostRegister_v2(pageable, BYTES, 0)); break;
	case 3: OK(cuMemAllocHost_v2(&pinned, BYTES)); break;
	default: break;
	}
	ck_assert(!gm_host_sees_pending());
	launch(s);
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert(!gm_host_sees_pending());
	OK(cuMemsetD8Async(device, 1, BYTES, s));	/* the device's alone, known by its address */
	ck_assert(!gm_host_sees_pending());
	OK(cuMemsetD8Async(_i ? at(_i == 2 ? pageable : pinned) : managed, 1, BYTES, s));
	ck_assert(gm_host_sees_pending());
}
END_TEST

/* What the driver did not take is not pending. */
START_TEST(test_refused)
{
	CUstream s = stream_new();

	fakecuda_fail("cuMemcpyDtoHAsync_v2", 0, 1, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuMemcpyDtoHAsync_v2(pageable, device, BYTES, s),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_captured)
{
	CUstream s = stream_new();
	CUgraphExec exec;
	CUgraph graph;

	pin();
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemcpyDtoHAsync_v2(pinned, device, BYTES, s));
	launch(s);
	OK(cuStreamEndCapture(s, &graph));
	ck_assert(!gm_host_sees_pending());
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_assert(!gm_host_sees_pending());
	OK(cuGraphLaunch(exec, s));
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

/* ---- what ends it ---- */

START_TEST(test_streams)
{
	CUstream a = stream_new(), b = stream_new();

	copy_out(a);
	OK(cuStreamSynchronize(b));
	ck_assert(gm_host_sees_pending());
	copy_out(b);
	OK(cuStreamSynchronize(a));
	ck_assert(gm_host_sees_pending());
	if (_i)
		while (cuStreamQuery(b))
			ck_assert(gm_host_sees_pending());
	else
		OK(cuStreamSynchronize(b));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

/* A synchronous copy to the host has waited for what came before it on its stream. */
/* One submission after the other, and a wait that begins between two of them. */
START_TEST(test_one_after_the_other)
{
	CUstream s = stream_new();
	uint64_t key = gm_stream_key(s, false), given, before, between;
	CUevent event = event_new(CU_EVENT_DISABLE_TIMING);

	pin();
	before = gm_host_now();
	launch(s);
	given = gm_host_last;
	for (int i = 0; i < 5; i++)
		launch(s);
	ck_assert_uint_eq(gm_host_last, given);	/* the same number */
	gm_host_stream_done(key, before);
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert(!gm_host_sees_pending());
	launch(s);
	between = gm_host_now();
	launch(s);
	gm_host_stream_done(key, between);
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert(!gm_host_sees_pending());
	launch(s);
	OK(cuEventRecord(event, s));
	launch(s);
	OK(cuEventSynchronize(event));
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSynchronize());
	ck_assert(!gm_host_sees_pending());
	launch(s);
	ck_assert(gm_host_sees_pending());
}
END_TEST

START_TEST(test_copy_waits)
{
	copy_out(NULL);
	OK(cuMemcpyHtoD_v2(device, pageable, 16));
	ck_assert(gm_host_sees_pending());
	OK(cuMemcpyDtoH_v2(pageable, device, 16));
	ck_assert(!gm_host_sees_pending());
	copy_out(stream_new());
	OK(cuMemcpyDtoH_v2(pageable, device, 16));
	ck_assert(gm_host_sees_pending());
}
END_TEST

START_TEST(test_events)
{
	CUstream s = stream_new(), other = stream_new();
	CUevent before = event_new(0), after = event_new(0);

	OK(cuEventRecord(before, s));
	copy_out(s);
	OK(cuEventSynchronize(before));
	ck_assert(gm_host_sees_pending());
	OK(cuEventRecord(after, s));
	copy_out(s);
	OK(cuEventSynchronize(after));
	ck_assert(gm_host_sees_pending());		/* the second one */
	OK(cuEventRecord(after, s));
	if (_i)
		while (cuEventQuery(after))
			ck_assert(gm_host_sees_pending());
	else
		OK(cuEventSynchronize(after));
	ck_assert(!gm_host_sees_pending());
	/* Recorded anew elsewhere, it does not stand for the first stream any more. */
	copy_out(s);
	OK(cuEventRecord(after, s));
	OK(cuEventRecord(after, other));
	OK(cuEventSynchronize(after));
	ck_assert(gm_host_sees_pending());
}
END_TEST

/* What an event stood for dies with it, or with whoever may record it unseen. */
START_TEST(test_events_forgotten)
{
	CUstream s = stream_new();
	CUevent event = event_new(0), again;
	CUstream other = stream_new();
	CUgraphExec exec;
	CUgraph graph;

	if (_i == 2)
		event = event_new(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
	copy_out(s);
	OK(cuEventRecord(event, s));
	switch (_i) {
	case 0:		/* destroyed: a new event of that handle says "done" */
		OK(cuEventDestroy_v2(event));
		for (int i = 0; i < 4; i++) {
			again = event_new(0);
			OK(cuEventQuery(again));
		}
		break;
	case 1:		/* a graph may have recorded it */
		OK(cuGraphCreate(&graph, 0));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, other));
		break;
	default:
		break;
	}
	if (_i)
		OK(cuEventSynchronize(event));
	OK(cuStreamSynchronize(other));
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSynchronize());
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_context_event)
{
	CUstream a = stream_new(), b = stream_new();
	CUevent event = event_new(0);

	copy_out(a);
	copy_out(b);
	OK(cuCtxRecordEvent(context, event));
	OK(cuEventSynchronize(event));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_contexts)
{
	CUcontext second;
	CUdeviceptr there;
	CUstream s;

	copy_out(stream_new());
	OK(cuCtxCreate_v2(&second, 0, 1));
	OK(cuMemAlloc_v2(&there, BYTES));
	s = stream_new();
	OK(cuMemcpyDtoHAsync_v2(pageable, there, BYTES, s));
	OK(cuCtxSynchronize());				/* of the second */
	ck_assert(gm_host_sees_pending());
	OK(cuMemcpyDtoHAsync_v2(pageable, there, BYTES, s));
	OK(cuCtxSetCurrent(context));
	OK(cuCtxSynchronize());
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSynchronize_v2(second));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

/* More streams than there is room for: pending until all was waited for, then as before. */
START_TEST(test_many_streams)
{
	enum { MANY = 1000 };
	static CUstream streams[MANY];

	for (int i = 0; i < MANY; i++) {
		streams[i] = stream_new();
		copy_out(streams[i]);
	}
	for (int i = 0; i < MANY; i++) {
		ck_assert(gm_host_sees_pending());
		OK(cuStreamSynchronize(streams[i]));
	}
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSynchronize());
	ck_assert(!gm_host_sees_pending());
	copy_out(streams[7]);
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(streams[7]));
	ck_assert(!gm_host_sees_pending());
}
END_TEST

/* Streams that come and go, one pending at a time, find room for ever. */
START_TEST(test_stream_turnover)
{
	for (int i = 0; i < 3000; i++) {
		CUstream s = stream_new();

		copy_out(s);
		ck_assert(gm_host_sees_pending());
		OK(cuStreamSynchronize(s));
		OK(cuStreamDestroy_v2(s));
		ck_assert(!gm_host_sees_pending());
	}
}
END_TEST

/* A stream destroyed while it works: its work goes on. */
START_TEST(test_stream_destroyed)
{
	CUstream s = stream_new(), again;

	copy_out(s);
	OK(cuStreamDestroy_v2(s));
	again = stream_new();
	OK(cuStreamSynchronize(again));
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSynchronize());
	ck_assert(!gm_host_sees_pending());
}
END_TEST

static CUresult wait_here(void)
{
	bool all;

	return gm_order_wait_context(0, &all);
}

/* The library's own wait, and the end of a context: both end what was pending. */
START_TEST(test_our_wait)
{
	CUcontext own;
	CUdeviceptr there;

	copy_out(stream_new());
	OK(wait_here());
	ck_assert(!gm_host_sees_pending());
	OK(cuCtxCreate_v2(&own, 0, 1));
	OK(cuMemAlloc_v2(&there, BYTES));
	OK(cuMemcpyDtoHAsync_v2(pageable, there, BYTES, stream_new()));
	ck_assert(gm_host_sees_pending());
	if (_i) {
		OK(cuCtxDestroy_v2(own));
		ck_assert(!gm_host_sees_pending());
		return;
	}
	OK(cuCtxSetCurrent(context));
	OK(wait_here());			/* of another context */
	ck_assert(gm_host_sees_pending());
	OK(cuCtxSetCurrent(own));
	OK(wait_here());
	ck_assert(!gm_host_sees_pending());
}
END_TEST

START_TEST(test_module_variable)
{
	static const char with[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
				   ".global .align 4 .u32 counter = 7;\n"
				   ".visible .entry touch(.param .u64 p){ret;}\n";
	CUdeviceptr address;
	CUmodule module;
	size_t bytes;

	OK(cuModuleLoadData(&module, with));
	OK(cuModuleGetGlobal_v2(&address, &bytes, module, "counter"));
	ck_assert(!gm_host_shares_memory);			/* a device's variable */
}
END_TEST

#define THREADS 4

/* Each of a thread's copies is pending until the thread has waited for it. */
static void *copy_and_wait(void *arg)
{
	CUstream s;
	CUevent event;

	(void)arg;
	if (cuCtxSetCurrent(context) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) ||
	    cuEventCreate(&event, 0))
		return "no stream";
	for (int i = 0; i < 300; i++) {
		if (cuMemcpyDtoHAsync_v2(pageable, device, 64, s) || cuEventRecord(event, s))
			return "no copy";
		if (!gm_host_sees_pending())
			return "forgotten";
		if (i % 3 ? cuStreamSynchronize(s) : cuEventSynchronize(event))
			return "no wait";
		if (i % 50 == 49 && (cuStreamDestroy_v2(s) ||
				     cuStreamCreate(&s, CU_STREAM_NON_BLOCKING)))
			return "no other stream";
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	void *wrong;

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_and_wait, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_msg(!wrong, "%s", (const char *)wrong);
	}
	ck_assert(!gm_host_sees_pending());
}
END_TEST

/* ---- host functions ---- */

static int seen_inside;
static CUdeviceptr inside_address;

static void look(void *arg)
{
	(void)arg;
	seen_inside = gm_in_host_function() ? 1 : -1;
	if (cuMemAlloc_v2(&inside_address, 64) != CUDA_ERROR_NOT_PERMITTED ||
	    cuMemFree_v2(device) != CUDA_ERROR_NOT_PERMITTED)
		seen_inside = -2;
}

static void look_back(CUstream stream, CUresult status, void *arg)
{
	(void)stream;
	(void)status;
	look(arg);
}

START_TEST(test_host_functions)
{
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_HOST };
	CUDA_HOST_NODE_PARAMS params = { .fn = look }, got;
	CUstream s = stream_new();
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	ck_assert(!gm_in_host_function());
	switch (_i) {
	case 0: OK(cuLaunchHostFunc(s, look, NULL)); break;
	case 1: OK(cuLaunchHostFunc_ptsz(s, look, NULL)); break;
	case 2: OK(cuStreamAddCallback(s, look_back, NULL, 0)); break;
	case 3:
	case 4:
		any.host.fn = look;
		OK(cuGraphCreate(&graph, 0));
		if (_i == 3)
			OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
		else
			OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any));
		OK(cuGraphHostNodeGetParams(node, &got));
		ck_assert(got.fn == look);
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, s));
		break;
	default:
		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuLaunchHostFunc(s, look, NULL));
		OK(cuStreamEndCapture(s, &graph));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, s));
		break;
	}
	ck_assert(gm_host_sees_pending());
	OK(cuStreamSynchronize(s));
	ck_assert_int_eq(seen_inside, 1);
	ck_assert(!gm_in_host_function());
	ck_assert(!gm_host_sees_pending());
	OK(cuMemFree_v2(device));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host barrier");
	TCase *tc = tcase_create("host barrier");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, test_copies, 0, 6);
	tcase_add_loop_test(tc, test_shapes, 0, 2);
	tcase_add_loop_test(tc, test_visible_memory, 0, 4);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_captured);
	tcase_add_loop_test(tc, test_streams, 0, 2);
	tcase_add_test(tc, test_one_after_the_other);
	tcase_add_test(tc, test_copy_waits);
	tcase_add_loop_test(tc, test_events, 0, 2);
	tcase_add_loop_test(tc, test_events_forgotten, 0, 3);
	tcase_add_test(tc, test_context_event);
	tcase_add_test(tc, test_contexts);
	tcase_add_test(tc, test_many_streams);
	tcase_add_test(tc, test_stream_turnover);
	tcase_add_test(tc, test_stream_destroyed);
	tcase_add_loop_test(tc, test_our_wait, 0, 2);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_module_variable);
	tcase_add_loop_test(tc, test_host_functions, 0, 6);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
