/*
 * test_clock.c - virtual time, stream order, events, host functions.
 */
#include "common.h"

#include <pthread.h>

#define SPIN_NS 5000000000ULL

static CUstream stream(unsigned int flags)
{
	CUstream s;

	ok(cuStreamCreate(&s, flags));
	return s;
}

static CUevent event(void)
{
	CUevent e;

	ok(cuEventCreate(&e, 0));
	return e;
}

START_TEST(time_stands_still_by_itself)
{
	CUfunction spin;
	CUstream s;

	start(0);
	spin = function("spin");
	s = stream(0);
	ok(launch(spin, s, NULL));
	ck_assert_uint_eq(fakecuda_now(), 0);
	ck_assert_uint_eq(fakecuda_pending(0), 1);
	ck_assert_uint_eq(fakecuda_pending(1), 0);
	for (int i = 0; i < 100; i++)
		fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	ck_assert_uint_gt(fakecuda_now(), 0);
	ck_assert_uint_lt(fakecuda_now(), SPIN_NS);
	fakecuda_advance(SPIN_NS);
	ok(cuStreamQuery(s));
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
}
END_TEST

START_TEST(synchronise_jumps)
{
	CUfunction spin;
	CUstream s, other;

	start(0);
	spin = function("spin");
	s = stream(CU_STREAM_NON_BLOCKING);
	other = stream(CU_STREAM_NON_BLOCKING);
	ok(launch(spin, s, NULL));
	ok(launch(spin, s, NULL));
	ok(launch(spin, other, NULL));
	ok(cuStreamSynchronize(other));
	ck_assert_uint_eq(fakecuda_now(), SPIN_NS);
	fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_now(), 2 * SPIN_NS);
}
END_TEST

START_TEST(durations_by_name)
{
	CUfunction nop;

	start(0);
	nop = function("nop");
	fakecuda_set_kernel_ns(NULL, 77);
	ok(launch(nop, NULL, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_now(), 77);
	fakecuda_set_kernel_ns("no", 1000);
	ok(launch(nop, NULL, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_now(), 1077);
}
END_TEST

START_TEST(effects_come_at_the_end)
{
	uint32_t value = 5, *seen;
	uint64_t n = 1;
	CUdeviceptr p;
	void *args[] = { &p, &value, &n };
	CUfunction fill;
	CUstream s;

	start(0);
	fill = function("fill");
	s = stream(0);
	ok(cuMemAlloc(&p, 4));
	ok(cuMemHostAlloc((void **)&seen, 4, 0));
	*seen = 0;
	ok(launch(fill, s, args));
	value = 9;	/* copied at the launch */
	ok(cuMemcpyDtoHAsync(seen, p, 4, s));
	ck_assert_uint_eq(*seen, 0);
	ck_assert_uint_eq(*(uint32_t *)fakecuda_ptr(p, 4), 0);
	ok(cuStreamSynchronize(s));
	ck_assert_uint_eq(*seen, 5);
}
END_TEST

START_TEST(legacy_stream_rule)
{
	CUfunction spin, nop;
	CUstream blocking, apart;

	start(0);
	spin = function("spin");
	nop = function("nop");
	blocking = stream(0);
	apart = stream(CU_STREAM_NON_BLOCKING);
	ok(launch(spin, blocking, NULL));
	ok(launch(nop, NULL, NULL));		/* waits for blocking */
	ok(launch(nop, apart, NULL));		/* does not */
	ok(cuStreamSynchronize(apart));
	ck_assert_uint_lt(fakecuda_now(), SPIN_NS);
	fails(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	ok(cuStreamSynchronize(NULL));
	ck_assert_uint_gt(fakecuda_now(), SPIN_NS);

	ok(launch(spin, NULL, NULL));
	ok(launch(nop, blocking, NULL));	/* waits for the legacy stream */
	ok(launch(nop, apart, NULL));
	ok(cuStreamSynchronize(apart));
	ck_assert_uint_lt(fakecuda_now(), 2 * SPIN_NS);
	ok(cuStreamSynchronize(blocking));
	ck_assert_uint_gt(fakecuda_now(), 2 * SPIN_NS);
}
END_TEST

static void *in_thread(void *arg)
{
	CUcontext ctx = arg;

	ok(cuCtxSetCurrent(ctx));
	ok(launch(function("spin"), CU_STREAM_PER_THREAD, NULL));
	return NULL;
}

START_TEST(per_thread_streams_are_one_a_thread)
{
	CUcontext ctx = start(0);
	unsigned long long mine, legacy;
	pthread_t t;

	ok(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
	ok(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
	ck_assert_uint_ne(mine, legacy);
	pthread_create(&t, NULL, in_thread, ctx);
	pthread_join(t, NULL);
	ok(cuStreamQuery(CU_STREAM_PER_THREAD));		/* the other thread's is busy */
	fails(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);	/* and blocking */
	ok(cuCtxSynchronize());
	ck_assert_uint_ge(fakecuda_now(), SPIN_NS);
}
END_TEST

START_TEST(events_order_and_measure)
{
	CUfunction spin, nop;
	CUstream a, b;
	CUevent before, after;
	float ms;

	start(0);
	spin = function("spin");
	nop = function("nop");
	a = stream(CU_STREAM_NON_BLOCKING);
	b = stream(CU_STREAM_NON_BLOCKING);
	before = event();
	after = event();
	ok(cuEventQuery(after));		/* never recorded */
	ok(cuEventRecord(before, a));
	ok(launch(spin, a, NULL));
	ok(cuEventRecord(after, a));
	fails(cuEventQuery(after), CUDA_ERROR_NOT_READY);
	fails(cuEventElapsedTime(&ms, before, after), CUDA_ERROR_NOT_READY);
	ok(cuStreamWaitEvent(b, after, 0));
	ok(launch(nop, b, NULL));
	ok(cuStreamSynchronize(b));
	ck_assert_uint_gt(fakecuda_now(), SPIN_NS);
	ok(cuEventElapsedTime(&ms, before, after));
	ck_assert(ms == 5000.0f);
}
END_TEST

START_TEST(event_handles_come_again)
{
	CUevent e, f;
	CUstream s, t;

	start(0);
	e = event();
	s = stream(0);
	ok(launch(function("spin"), s, NULL));
	ok(cuEventRecord(e, s));
	ok(cuEventDestroy(e));
	f = event();
	ck_assert_ptr_eq(e, f);
	ok(cuEventQuery(f));			/* a new event, not the old one */
	ok(cuStreamDestroy(s));
	t = stream(0);
	ck_assert_ptr_eq(s, t);
	ok(cuStreamQuery(t));
	ck_assert_uint_eq(fakecuda_pending(0), 2);	/* the old stream's work goes on */
	ok(cuCtxSynchronize());
	ck_assert_uint_ge(fakecuda_now(), SPIN_NS);
	ok(cuEventDestroy(f));
	fails(cuEventQuery(f), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(context_event_covers_all_streams)
{
	CUcontext ctx = start(0);
	CUfunction spin = function("spin"), nop = function("nop");
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	CUevent e = event();

	ok(launch(spin, a, NULL));
	ok(cuCtxRecordEvent(ctx, e));
	fails(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	ok(launch(nop, b, NULL));		/* is not ordered by it */
	ok(cuStreamSynchronize(b));
	ck_assert_uint_lt(fakecuda_now(), SPIN_NS);
	ok(cuCtxWaitEvent(ctx, e));
	ok(launch(nop, b, NULL));		/* now it is */
	ok(cuStreamSynchronize(b));
	ck_assert_uint_gt(fakecuda_now(), SPIN_NS);
	ok(cuEventQuery(e));
}
END_TEST

START_TEST(event_of_another_context)
{
	CUcontext ctx = start(0);
	CUevent e;

	start(1);
	e = event();
	fails(cuCtxRecordEvent(ctx, e), CUDA_ERROR_INVALID_HANDLE);
	ok(cuCtxSetCurrent(ctx));
	fails(cuEventRecord(e, NULL), CUDA_ERROR_INVALID_HANDLE);
	ok(cuStreamWaitEvent(NULL, e, 0));	/* waiting is allowed across contexts */
}
END_TEST

struct order {
	int n, seen[4];
};

static void note(void *arg)
{
	struct order *o = arg;

	o->seen[o->n] = o->n;
	o->n++;
}

static void on_stream(CUstream s, CUresult status, void *arg)
{
	(void)s;
	ck_assert_int_eq(status, CUDA_SUCCESS);
	note(arg);
}

START_TEST(host_functions_in_stream_order)
{
	struct order o = { 0 };
	CUstream s;

	start(0);
	s = stream(0);
	ok(launch(function("spin"), s, NULL));
	ok(cuLaunchHostFunc(s, note, &o));
	ok(cuStreamAddCallback(s, on_stream, &o, 0));
	fakecuda_advance(SPIN_NS - 1);
	ck_assert_int_eq(o.n, 0);
	ok(cuStreamSynchronize(s));
	ck_assert_int_eq(o.n, 2);
}
END_TEST

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void needs_mutex(void *arg)
{
	pthread_mutex_lock(&mutex);
	*(int *)arg = 1;
	pthread_mutex_unlock(&mutex);
}

/* A query must not run a host function on the thread that asks: it may hold what that needs. */
START_TEST(host_function_and_the_callers_lock)
{
	int done = 0;

	start(0);
	ok(cuLaunchHostFunc(NULL, needs_mutex, &done));
	pthread_mutex_lock(&mutex);
	fails(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	fails(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	pthread_mutex_unlock(&mutex);
	ok(cuStreamSynchronize(NULL));
	ck_assert_int_eq(done, 1);
}
END_TEST

START_TEST(fault_poisons_the_context)
{
	CUcontext ctx = start(0);
	CUdeviceptr p;
	size_t n;

	ok(launch(function("fault"), NULL, NULL));
	ok(cuMemAlloc(&p, 1));			/* not seen yet */
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuMemAlloc(&p, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuMemGetInfo(&n, &n), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	start(1);				/* another context is none the worse */
	ok(cuMemAlloc(&p, 1));
	ok(cuCtxSetCurrent(ctx));
	ok(cuDevicePrimaryCtxReset(0));		/* does not heal the device, as seen */
	fails(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
	fails(cuCtxCreate(&ctx, NULL, 0, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
}
END_TEST

START_TEST(copy_from_nowhere_poisons)
{
	CUdeviceptr p, q;
	CUstream s;

	start(0);
	s = stream(CU_STREAM_NON_BLOCKING);
	ok(cuMemAllocAsync(&p, 4 * MIB, s));
	ok(cuMemAlloc(&q, 4 * MIB));
	ok(launch(function("spin"), s, NULL));
	ok(cuMemcpyDtoDAsync(q, p, 4 * MIB, s));
	ok(cuMemFree(p));			/* does not wait: the program's mistake */
	ok(cuCtxSynchronize());			/* memory of the pool is still mapped */
	ok(cuStreamSynchronize(s));
}
END_TEST

START_TEST(same_program_same_course)
{
	uint64_t ends[2];

	for (int run = 0; run < 2; run++) {
		CUstream s[3];
		CUevent e;
		CUfunction nop;
		CUdeviceptr p;

		fakecuda_reset();
		start(0);
		nop = function("nop");
		e = event();
		ok(cuMemAlloc(&p, MIB));
		for (int i = 0; i < 3; i++)
			s[i] = stream(i == 2 ? CU_STREAM_NON_BLOCKING : 0);
		for (int i = 0; i < 300; i++) {
			ok(launch(nop, s[i % 3], NULL));
			ok(cuEventRecord(e, s[(i + 1) % 3]));
			ok(cuStreamWaitEvent(s[(i + 2) % 3], e, 0));
			if (i % 7 == 0)
				ok(cuMemsetD8Async(p, 1, MIB, NULL));
			if (i % 11 == 0)
				cuEventQuery(e);
		}
		ck_assert_int_eq(fakecuda_check(), 0);
		ok(cuCtxSynchronize());
		ends[run] = fakecuda_now();
	}
	ck_assert_uint_eq(ends[0], ends[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tc = new_case(suite, "clock");

	tcase_add_test(tc, time_stands_still_by_itself);
	tcase_add_test(tc, synchronise_jumps);
	tcase_add_test(tc, durations_by_name);
	tcase_add_test(tc, effects_come_at_the_end);
	tcase_add_test(tc, legacy_stream_rule);
	tcase_add_test(tc, per_thread_streams_are_one_a_thread);
	tcase_add_test(tc, events_order_and_measure);
	tcase_add_test(tc, event_handles_come_again);
	tcase_add_test(tc, context_event_covers_all_streams);
	tcase_add_test(tc, event_of_another_context);
	tcase_add_test(tc, host_functions_in_stream_order);
	tcase_add_test(tc, host_function_and_the_callers_lock);
	tcase_add_test(tc, fault_poisons_the_context);
	tcase_add_test(tc, copy_from_nowhere_poisons);
	tcase_add_test(tc, same_program_same_course);
	return run_suite(suite);
}
