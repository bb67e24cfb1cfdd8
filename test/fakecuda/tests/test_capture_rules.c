/*
 * test_capture_rules.c - what a capture refuses, by its mode and by thread; the legacy stream
 * meanwhile.
 */
#include "capture.h"

#include <dlfcn.h>

/* ---- what is refused: the table of facts seen on an H200 ---- */

static CUstream other;
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
	other = stream();
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

START_TEST(synchronous_copy_in_a_capturing_stream)
{
	CUresult (*copy_ptds)(void *, CUdeviceptr, size_t);
	uint32_t host;

	*(void **)&copy_ptds = dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2_ptds");
	begin(CU_STREAM_PER_THREAD);
	FAILS(copy_ptds(&host, p, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ends_with(CU_STREAM_PER_THREAD, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(copy_ptds(&host, p, 4));
}
END_TEST

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

int main(void)
{
	const TTest *const tests[] = {
		refused_calls_work_afterwards, the_capturing_stream_itself,
		another_context_synchronises,
		synchronous_copy_in_a_capturing_stream, work_no_graph_can_hold,
		invalidated_stream_takes_nothing, legacy_stream_meets_a_blocking_capture,
		legacy_stream_beside_a_non_blocking_capture, per_thread_stream_captures,
	};
	Suite *suite = suite_create("capture, rules");
	TCase *tc = tcase_create("capture,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_add_loop_test(tc, refusals, 0, sizeof(calls) / sizeof(calls[0]));
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return work_main(suite);
}
