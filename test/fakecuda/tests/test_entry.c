/*
 * test_entry.c - exported names, an older driver, counters, injected failures, reset.
 */
#define _GNU_SOURCE
#include "common.h"

#include <dlfcn.h>

static void *lookup(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	ck_assert_msg(p != NULL, "%s is not exported", name);
	return p;
}

START_TEST(older_driver_has_less)
{
	CUdriverProcAddressQueryResult status;
	int version;
	void *p;

	setenv("FAKECUDA_DRIVER_VERSION", "12040", 1);
	ok(cuDriverGetVersion(&version));
	ck_assert_int_eq(version, 12040);
	ok(cuGetProcAddress("cuCtxRecordEvent", &p, 13000, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	start(0);
	fails(cuCtxRecordEvent(NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(every_row_is_exported_and_resolves)
{
	const char *name;
	size_t n = 0;
	int since;

	for (; (name = fakecuda_entry(n, &since, NULL)); n++) {
		lookup(name);
		ck_assert_int_le(since, 13000);
	}
	ck_assert_uint_gt(n, 600);
}
END_TEST

START_TEST(calls_are_counted)
{
	CUdeviceptr p;

	start(0);
	ck_assert_uint_eq(fakecuda_calls("cuMemAlloc_v2"), 0);
	ok(cuMemAlloc(&p, 1));
	fails(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_calls("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(fakecuda_calls("cuMemAlloc"), 2);
	ck_assert_uint_eq(fakecuda_calls("cuMemAllocAsync"), 0);
	fakecuda_reset_calls();
	ck_assert_uint_eq(fakecuda_calls(NULL), 0);
}
END_TEST

START_TEST(failures_by_call)
{
	CUdeviceptr p;

	start(0);
	fakecuda_fail("cuMemAlloc_v2", 1, 2, CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAlloc(&p, 1));
	fails(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	fails(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAlloc(&p, 1));
	fakecuda_fail("cuMemFree", 0, -1, CUDA_ERROR_UNKNOWN);
	fails(cuMemFree(p), CUDA_ERROR_UNKNOWN);
	fails(cuMemFree(p), CUDA_ERROR_UNKNOWN);
	fakecuda_fail(NULL, 0, 0, 0);
	ok(cuMemFree(p));
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_DEVICE), 1);
}
END_TEST

START_TEST(failures_by_environment)
{
	CUdeviceptr p;

	setenv("FAKECUDA_FAIL", "cuMemAlloc:0:1:2,cuMemAllocHost_v2:0:-1:304", 1);
	start(0);
	fails(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAlloc(&p, 1));
	fails(cuMemAllocHost((void **)&p, 1), CUDA_ERROR_OPERATING_SYSTEM);
}
END_TEST

START_TEST(reset_forgets_all)
{
	CUdeviceptr p;
	CUdevice dev;
	CUstream s;

	start(1);
	ok(cuMemAlloc(&p, 3 * MIB));
	ok(cuStreamCreate(&s, 0));
	ok(cuMemAllocAsync(&p, 100, s));
	ok(cuMemFreeAsync(p, s));
	fakecuda_fail("cuInit", 0, -1, 1);
	fakecuda_reset();
	ck_assert_uint_eq(fakecuda_calls(NULL), 0);
	ck_assert_uint_eq(fakecuda_now(), 0);
	fails(cuDeviceGet(&dev, 0), CUDA_ERROR_NOT_INITIALIZED);
	fails(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	start(1);
	ck_assert_uint_eq(fakecuda_charged_bytes(-1), 0);
	ck_assert_uint_eq(fakecuda_live_bytes(-1, FAKECUDA_DEVICE), 0);
	fails(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

struct told { int begun, ended, relaxed; char name[32]; };

static void tell(void *arg, const char *entry, int relaxed, int result)
{
	struct told *told = arg;

	if (result < 0) {
		told->begun++;
		strncpy(told->name, entry, sizeof(told->name) - 1);
	} else {
		told->ended += result == CUDA_ERROR_INVALID_VALUE ? 100 : 1;
	}
	told->relaxed += relaxed;
	ok(cuCtxSetCurrent(NULL));	/* not told of */
}

START_TEST(calls_are_watched)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct told told = { 0 };
	CUdeviceptr p;

	start(0);
	fakecuda_watch(tell, &told);
	fails(cuMemFree(12345), CUDA_ERROR_INVALID_VALUE);
	ck_assert_str_eq(told.name, "cuMemFree_v2");
	ck_assert_int_eq(told.begun, 1);
	ck_assert_int_eq(told.ended, 100);
	ck_assert_int_eq(told.relaxed, 0);
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(told.relaxed, 1);	/* when it ends */
	fakecuda_watch(NULL, NULL);
	cuMemAlloc(&p, 1);
	ck_assert_int_eq(told.begun, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("entries");
	TCase *tc = new_case(suite, "entries");

	tcase_add_test(tc, older_driver_has_less);
	tcase_add_test(tc, every_row_is_exported_and_resolves);
	tcase_add_test(tc, calls_are_counted);
	tcase_add_test(tc, calls_are_watched);
	tcase_add_test(tc, failures_by_call);
	tcase_add_test(tc, failures_by_environment);
	tcase_add_test(tc, reset_forgets_all);
	return run_suite(suite);
}
