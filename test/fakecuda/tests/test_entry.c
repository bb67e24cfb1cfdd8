/*
 * test_entry.c - names, ABI versions, counters, injected failures, fork, host functions.
 */
#define _GNU_SOURCE
#include "common.h"

#include <dlfcn.h>
#include <sys/wait.h>

static void *lookup(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	ck_assert_msg(p != NULL, "%s is not exported", name);
	return p;
}

static void *resolve(const char *base, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	void *p;

	ok(cuGetProcAddress(base, &p, version, flags, &status));
	ck_assert_int_eq(status, p ? CU_GET_PROC_ADDRESS_SUCCESS : status);
	return p;
}

START_TEST(resolver_gives_the_exported_entry)
{
	ck_assert_ptr_eq(resolve("cuMemAlloc", 2000, 0), lookup("cuMemAlloc"));
	ck_assert_ptr_eq(resolve("cuMemAlloc", 3020, 0), lookup("cuMemAlloc_v2"));
	ck_assert_ptr_eq(resolve("cuMemAlloc", 13000, 0), lookup("cuMemAlloc_v2"));
	ck_assert_ptr_eq(resolve("cuMemAllocAsync", 11020, 0), lookup("cuMemAllocAsync"));
	ck_assert_ptr_eq(resolve("cuMemAllocAsync", 11020, 2), lookup("cuMemAllocAsync_ptsz"));
	ck_assert_ptr_eq(resolve("cuMemcpyHtoD", 7000, 2), lookup("cuMemcpyHtoD_v2_ptds"));
	ck_assert_ptr_null(resolve("cuMemcpyHtoD", 3020, 2));	/* no such form by then */
	ck_assert_ptr_eq(resolve("cuCtxCreate", 12050, 0), lookup("cuCtxCreate_v4"));
	ck_assert_ptr_eq(resolve("cuCtxCreate", 12040, 0), lookup("cuCtxCreate_v3"));
	ck_assert_ptr_eq(resolve("cuMemFree", 3020, 2), lookup("cuMemFree_v2"));
	ck_assert_ptr_eq(resolve("cuGetProcAddress", 11030, 0), lookup("cuGetProcAddress"));
	ck_assert_ptr_eq(resolve("cuGetProcAddress", 12000, 0), lookup("cuGetProcAddress_v2"));
	ck_assert_ptr_eq(resolve("cuStreamGetCaptureInfo", 11030, 2),
			 lookup("cuStreamGetCaptureInfo_v2_ptsz"));
}
END_TEST

START_TEST(resolver_refuses)
{
	CUdriverProcAddressQueryResult status;
	void *p = &status;
	typedef CUresult (*old_abi)(const char *, void **, int, cuuint64_t);
	old_abi old = (old_abi)lookup("cuGetProcAddress");

	ok(cuGetProcAddress("cuMemAlloc_v2", &p, 13000, 0, &status));
	ck_assert_ptr_null(p);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ok(cuGetProcAddress("cuMemAllocAsync", &p, 11000, 0, &status));
	ck_assert_ptr_null(p);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	ok(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	fails(old("cuNoSuchThing", &p, 13000, 0), CUDA_ERROR_NOT_FOUND);
	fails(cuGetProcAddress(NULL, &p, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
	fails(cuGetProcAddress("cuMemAlloc", &p, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
	fails(cuGetProcAddress("cuMemAlloc", &p, 13000, 4, &status), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

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
	ck_assert_uint_gt(n, 650);
}
END_TEST

/* Everything else must do something: a row added without its work shows here. */
START_TEST(what_is_not_implemented)
{
	static const char *const none[] = {
		"cuTexRef", "cuSurfRef", "cuParamSetTexRef", "cuMulticast", "cuGraphics", "cuGL",
		"cuEGL", "cuVDPAU", "cuCoredump", "cuTensorMapEncodeIm2col", "cuLogsDumpToFile",
		"cuMemBatchDecompressAsync", "cuMemGetHandleForAddressRange", "cuMemMapArrayAsync",
		"cuDeviceGetLuid", "cuDeviceGetNvSciSyncAttributes",
		"cuGraphConditionalHandleCreate",
	};
	const char *name;
	int implemented;

	for (size_t n = 0; (name = fakecuda_entry(n, NULL, &implemented)); n++) {
		bool expected = true;

		for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
			if (!strncmp(name, none[i], strlen(none[i])))
				expected = false;
		ck_assert_msg(implemented == expected, "%s", name);
	}
}
END_TEST

START_TEST(before_init_and_after)
{
	int n;

	fails(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	ok(cuDriverGetVersion(&n));
	ck_assert_int_eq(n, 13000);
	fails(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	ok(cuInit(0));
	ok(cuDeviceGetCount(&n));
	ck_assert_int_eq(n, 2);
}
END_TEST

START_TEST(no_device)
{
	setenv("FAKECUDA_DEVICES", "0", 1);
	fails(cuInit(0), CUDA_ERROR_NO_DEVICE);
}
END_TEST

START_TEST(export_tables_are_not_there)
{
	CUuuid id = { { 0x6b, (char)0xd5, (char)0xfb, 0x6c } };
	const void *table = &id;

	ok(cuInit(0));
	fails(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
	ck_assert_ptr_null(table);
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

START_TEST(forked_child_gets_3)
{
	CUdeviceptr p;
	int status;
	pid_t pid;

	start(0);
	pid = fork();
	if (!pid)
		_exit(cuMemAlloc(&p, 1) == CUDA_ERROR_NOT_INITIALIZED &&
		      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
		      cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ok(cuMemAlloc(&p, 1));
}
END_TEST

START_TEST(child_forked_before_init_works)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(cuInit(0) ? 1 : 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static CUresult inside[4];
static CUevent event;

static void host_function(void *arg)
{
	CUdeviceptr p;
	int version;

	(void)arg;
	inside[0] = cuMemAlloc(&p, 1);
	inside[1] = cuStreamQuery(NULL);
	inside[2] = cuDriverGetVersion(&version);
	inside[3] = cuEventQuery(event);
}

START_TEST(host_functions_may_not_call)
{
	start(0);
	ok(cuEventCreate(&event, 0));
	ok(cuLaunchHostFunc(NULL, host_function, NULL));
	ok(cuCtxSynchronize());
	ck_assert_int_eq(inside[0], CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(inside[1], CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(inside[2], CUDA_SUCCESS);
	ck_assert_int_eq(inside[3], CUDA_SUCCESS);
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

START_TEST(errors_have_names)
{
	const char *s;

	ok(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &s));
	ck_assert_str_eq(s, "CUDA_ERROR_OUT_OF_MEMORY");
	ok(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
	ck_assert_str_eq(s, "out of memory");
	fails(cuGetErrorName((CUresult)12345, &s), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_null(s);
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

	tcase_add_test(tc, resolver_gives_the_exported_entry);
	tcase_add_test(tc, resolver_refuses);
	tcase_add_test(tc, older_driver_has_less);
	tcase_add_test(tc, every_row_is_exported_and_resolves);
	tcase_add_test(tc, what_is_not_implemented);
	tcase_add_test(tc, before_init_and_after);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, export_tables_are_not_there);
	tcase_add_test(tc, calls_are_counted);
	tcase_add_test(tc, calls_are_watched);
	tcase_add_test(tc, failures_by_call);
	tcase_add_test(tc, failures_by_environment);
	tcase_add_test(tc, forked_child_gets_3);
	tcase_add_test(tc, child_forked_before_init_works);
	tcase_add_test(tc, host_functions_may_not_call);
	tcase_add_test(tc, reset_forgets_all);
	tcase_add_test(tc, errors_have_names);
	return run_suite(suite);
}
