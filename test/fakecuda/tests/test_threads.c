/*
 * test_threads.c - many threads at once. What they see is not deterministic; that the driver stays
 * sound is. Run it under SAN=thread too.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 6
#define ROUNDS 300

static CUcontext ctx;
static CUfunction fill, nop;
static atomic_int host_calls;

static void host_function(void *arg)
{
	(void)arg;
	atomic_fetch_add(&host_calls, 1);
}

/* Everything a thread makes is its own, so its contents must be what it wrote. */
static void *worker(void *arg)
{
	uint32_t value = (uint32_t)(uintptr_t)arg, back;
	unsigned int seed = value;
	uint64_t n = 64;
	CUdeviceptr p;
	CUstream s;
	CUevent e;
	void *args[] = { &p, &value, &n };

	ok(cuCtxSetCurrent(ctx));
	ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&e, 0));
	for (int i = 0; i < ROUNDS; i++) {
		bool async = rand_r(&seed) % 2;

		if (async)
			ok(cuMemAllocAsync(&p, 256 + (size_t)i, s));
		else
			ok(cuMemAlloc(&p, 256 + (size_t)i));
		value += 1000;
		ok(launch(fill, s, args));
		ok(launch(nop, i % 3 ? s : CU_STREAM_PER_THREAD, NULL));
		ok(cuEventRecord(e, s));
		if (i % 10 == 0)
			ok(cuLaunchHostFunc(s, host_function, NULL));
		if (i % 7 == 0)
			ok(cuCtxSynchronize());
		while (i % 5 == 0 && cuEventQuery(e) == CUDA_ERROR_NOT_READY)
			;
		ok(cuMemcpyDtoHAsync(&back, p + 252, 4, s));
		ck_assert_uint_eq(back, value);
		if (async)
			ok(cuMemFreeAsync(p, s));
		else
			ok(cuMemFree(p));
	}
	ok(cuStreamSynchronize(s));
	ok(cuStreamDestroy(s));
	ok(cuEventDestroy(e));
	return NULL;
}

START_TEST(threads_keep_their_own)
{
	pthread_t t[THREADS];

	ctx = start(0);
	fill = function("fill");
	nop = function("nop");
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ok(cuCtxSynchronize());
	ck_assert_int_eq(host_calls, THREADS * ROUNDS / 10);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_DEVICE), 0);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_POOL), 0);
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

static void *one_free(void *arg)
{
	ok(cuCtxSetCurrent(ctx));
	return (void *)(uintptr_t)cuMemFree(*(CUdeviceptr *)arg);
}

/* Two frees of the same pointer, both waiting for the device: one of them gets it. */
START_TEST(double_free_race)
{
	pthread_t t[2];
	CUdeviceptr p;
	CUstream s;
	void *r[2];

	ctx = start(0);
	ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	nop = function("nop");
	for (int i = 0; i < 100; i++) {
		ok(cuMemAlloc(&p, 100));
		ok(launch(nop, s, NULL));
		ok(cuLaunchHostFunc(s, host_function, NULL));
		for (int j = 0; j < 2; j++)
			pthread_create(&t[j], NULL, one_free, &p);
		for (int j = 0; j < 2; j++)
			pthread_join(t[j], &r[j]);
		ck_assert_uint_eq((uintptr_t)r[0] + (uintptr_t)r[1], CUDA_ERROR_INVALID_VALUE);
	}
}
END_TEST

static atomic_int stage;

static void waits_for_main(void *arg)
{
	(void)arg;
	while (atomic_load(&stage) == 0)
		usleep(1000);
}

/* A host function that waits for what another thread does after its own driver call. */
START_TEST(host_function_waits_for_a_thread)
{
	CUdeviceptr p;
	CUstream a, b;

	ctx = start(0);
	ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	nop = function("nop");
	ok(cuLaunchHostFunc(a, waits_for_main, NULL));
	fails(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	ok(launch(nop, b, NULL));
	ok(cuStreamSynchronize(b));		/* goes on without it */
	ok(cuMemAlloc(&p, 1));
	atomic_store(&stage, 1);
	ok(cuStreamSynchronize(a));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *tc = new_case(suite, "threads");

	tcase_add_test(tc, threads_keep_their_own);
	tcase_add_test(tc, double_free_race);
	tcase_add_test(tc, host_function_waits_for_a_thread);
	return run_suite(suite);
}
