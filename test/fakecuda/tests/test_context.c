/*
 * test_context.c - devices, contexts and their end, green contexts.
 */
#include "common.h"

#include <pthread.h>

#define SPIN_NS 5000000000ULL

START_TEST(devices)
{
	CUuuid a, b;
	char name[64], bus[16];
	CUdevice dev;
	size_t total;
	int v;

	setenv("FAKECUDA_DEVICES", "3", 1);
	setenv("FAKECUDA_CAPACITY", "141GiB", 1);
	ok(cuInit(0));
	ok(cuDeviceGetCount(&v));
	ck_assert_int_eq(v, 3);
	ok(cuDeviceGet(&dev, 2));
	fails(cuDeviceGet(&dev, 3), CUDA_ERROR_INVALID_DEVICE);
	ok(cuDeviceGetName(name, sizeof(name), 2));
	ck_assert_str_eq(name, "Fake CUDA device");
	ok(cuDeviceTotalMem(&total, 2));
	ck_assert_uint_eq(total, (size_t)141 << 30);
	ok(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2));
	ck_assert_int_eq(v, 9);
	ok(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2));
	ck_assert_int_eq(v, 132);
	ok(cuDeviceGetUuid(&a, 0));
	ok(cuDeviceGetUuid(&b, 1));
	ck_assert(memcmp(&a, &b, sizeof(a)));
	ok(cuDeviceGetPCIBusId(bus, sizeof(bus), 2));
	ok(cuDeviceGetByPCIBusId(&dev, bus));
	ck_assert_int_eq(dev, 2);
}
END_TEST

START_TEST(primary_context_counts_retains)
{
	CUcontext a, b;
	unsigned int flags;
	CUdeviceptr p;
	int active;

	ok(cuInit(0));
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	fails(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDevicePrimaryCtxRetain(&a, 0));
	ok(cuDevicePrimaryCtxRetain(&b, 0));
	ck_assert_ptr_eq(a, b);
	ok(cuCtxSetCurrent(a));
	ok(cuMemAlloc(&p, 100));
	ok(cuDevicePrimaryCtxRelease(0));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 100);
	ok(cuDevicePrimaryCtxRelease(0));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	fails(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
}
END_TEST

START_TEST(reset_takes_memory_but_not_the_pools)
{
	CUcontext ctx = start(0), again;
	CUdeviceptr p, q;
	CUstream s;
	CUevent e;
	void *h;

	ok(cuStreamCreate(&s, 0));
	ok(cuEventCreate(&e, 0));
	ok(cuMemAlloc(&p, 4 * MIB));
	ok(cuMemAllocAsync(&q, 100, s));
	ok(cuMemHostAlloc(&h, 100, 0));
	ok(launch(function("spin"), s, NULL));
	ok(cuDevicePrimaryCtxReset(0));
	ck_assert_uint_ge(fakecuda_now(), SPIN_NS);
	ok(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(ctx, again);
	fails(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE);
	fails(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	fails(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 0);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_POOL), 100);
	ok(cuMemsetD8(q, 1, 100));
	ok(cuMemFreeAsync(q, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
}
END_TEST

START_TEST(the_stack)
{
	CUcontext a, b, c;
	CUdevice dev;

	ok(cuInit(0));
	fails(cuCtxGetDevice(&dev), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxCreate(&a, NULL, 0, 0));
	ok(cuCtxCreate(&b, NULL, 0, 1));
	ok(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, b);
	ok(cuCtxGetDevice(&dev));
	ck_assert_int_eq(dev, 1);
	ok(cuCtxPopCurrent(&c));
	ck_assert_ptr_eq(c, b);
	ok(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, a);
	ok(cuCtxPushCurrent(b));
	ok(cuCtxDestroy(b));			/* pops */
	ok(cuCtxGetCurrent(&c));
	ck_assert_ptr_eq(c, a);
	fails(cuCtxPushCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxSetCurrent(NULL));
	ok(cuCtxGetCurrent(&c));
	ck_assert_ptr_null(c);
}
END_TEST

static void *use_destroyed(void *arg)
{
	pthread_barrier_t *meet = ((void **)arg)[1];
	CUcontext ctx = ((void **)arg)[0];
	CUresult *r = ((void **)arg)[2];
	size_t n;

	ok(cuCtxSetCurrent(ctx));
	pthread_barrier_wait(meet);
	pthread_barrier_wait(meet);
	*r = cuMemGetInfo(&n, &n);
	return NULL;
}

START_TEST(destroyed_elsewhere)
{
	pthread_barrier_t meet;
	CUcontext ctx, again;
	CUresult r;
	CUdeviceptr p;
	void *arg[] = { NULL, &meet, &r };
	pthread_t t;

	ok(cuInit(0));
	pthread_barrier_init(&meet, NULL, 2);
	ok(cuCtxCreate(&ctx, NULL, 0, 0));
	ok(cuMemAlloc(&p, 100));
	arg[0] = ctx;
	pthread_create(&t, NULL, use_destroyed, arg);
	pthread_barrier_wait(&meet);
	ok(cuCtxDestroy(ctx));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	ok(cuCtxCreate(&again, NULL, 0, 0));
	ck_assert_ptr_eq(ctx, again);		/* the handle comes again, the context does not */
	pthread_barrier_wait(&meet);
	pthread_join(t, NULL);
	ck_assert_int_eq(r, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}
END_TEST

START_TEST(memory_of_one_context_freed_from_another)
{
	CUcontext a, b;
	CUdeviceptr p, q;

	ok(cuInit(0));
	ok(cuCtxCreate(&a, NULL, 0, 0));
	ok(cuMemAlloc(&p, 100));
	ok(cuMemAlloc(&q, 100));
	ok(cuCtxCreate(&b, NULL, 0, 0));
	ok(cuMemFree(p));
	ok(cuCtxDestroy(a));
	fails(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static CUgreenCtx green(unsigned int *ret_sm)
{
	CUdevResource all, part[2], rest;
	CUdevResourceDesc desc;
	unsigned int n = 2;
	CUgreenCtx g;

	ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	ok(cuDevSmResourceSplitByCount(part, &n, &all, &rest, 0, 60));
	ck_assert_uint_eq(n, 2);
	*ret_sm = part[0].sm.smCount;
	ok(cuDevResourceGenerateDesc(&desc, part, 1));
	ok(cuGreenCtxCreate(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return g;
}

START_TEST(green_contexts_belong_to_the_primary_one)
{
	CUcontext primary = start(0), ctx;
	CUfunction spin = function("spin");
	CUdevResource res;
	CUgreenCtx g, found;
	unsigned int sm;
	CUdeviceptr p;
	CUstream s;
	CUevent e;

	g = green(&sm);
	fails(cuGreenCtxStreamCreate(&s, g, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuGreenCtxStreamCreate(&s, g, CU_STREAM_NON_BLOCKING, 0));
	ok(cuStreamGetGreenCtx(s, &found));
	ck_assert_ptr_eq(found, g);
	ok(cuGreenCtxGetDevResource(g, &res, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(res.sm.smCount, sm);
	ok(launch(spin, s, NULL));
	ok(cuEventCreate(&e, 0));
	ok(cuCtxRecordEvent(primary, e));	/* covers the green streams */
	fails(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	ok(cuCtxSynchronize());
	ck_assert_uint_ge(fakecuda_now(), SPIN_NS);
	ok(cuCtxFromGreenCtx(&ctx, g));
	ok(cuCtxPushCurrent(ctx));
	ok(cuMemAlloc(&p, 100));
	ok(cuCtxPopCurrent(NULL));
	ok(cuGreenCtxDestroy(g));
	fails(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	fails(cuCtxPushCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuMemFree(p));			/* was the primary context's */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("contexts");
	TCase *tc = new_case(suite, "contexts");

	tcase_add_test(tc, devices);
	tcase_add_test(tc, primary_context_counts_retains);
	tcase_add_test(tc, reset_takes_memory_but_not_the_pools);
	tcase_add_test(tc, the_stack);
	tcase_add_test(tc, destroyed_elsewhere);
	tcase_add_test(tc, memory_of_one_context_freed_from_another);
	tcase_add_test(tc, green_contexts_belong_to_the_primary_one);
	return run_suite(suite);
}
