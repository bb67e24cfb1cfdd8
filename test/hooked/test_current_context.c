/*
 * When a thread may rely on the context that it knows as current, and when it has to ask the driver:
 * judged by where an allocation lies, and by how often the fake driver was asked.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "test/hooked/hooked.h"

#define ENTRY "cuCtxGetCurrent"

static CUcontext context;

static void pairs(unsigned int count)
{
	CUdeviceptr p;

	while (count--) {
		OK(cuMemAlloc_v2(&p, 4096));
		OK(cuMemFree_v2(p));
	}
}

static uint64_t questions(unsigned int count)
{
	uint64_t before = fakecuda_calls(ENTRY);

	pairs(count);
	return fakecuda_calls(ENTRY) - before;
}

/* A sanitizer's own objects are bound past us: nothing is known then. */
static void nobody_asks(void)
{
	ck_assert_uint_eq(questions(100), gm_unseen() ? 100 : 0);
}

static void start(const char *devices)
{
	setenv("FAKECUDA_DEVICES", devices, 1);
	context = begin();
	ck_assert(gm_cache_on());
	pairs(3);
}

static void setup(void)
{
	start("1");
	nobody_asks();
}

static void setup_two(void)
{
	start("2");
}

/* As the driver says it where no context is current. */
static void none_is_current(void)
{
	CUdeviceptr p;

	ck_assert_int_eq(cuMemAlloc_v2(&p, 4096), CUDA_ERROR_INVALID_CONTEXT);
}

static CUcontext context_of_new(void)
{
	CUcontext owner = NULL;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 4096));
	OK(GM_REAL(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	OK(cuMemFree_v2(p));
	return owner;
}

/* ---- what the thread does ---- */

START_TEST(test_popped)
{
	CUcontext popped;

	if (_i)
		OK(cuCtxPopCurrent_v2(&popped));
	else
		OK(cuCtxPopCurrent(&popped));
	ck_assert_ptr_eq(popped, context);
	none_is_current();
	if (_i)
		OK(cuCtxPushCurrent_v2(context));
	else
		OK(cuCtxPushCurrent(context));
	pairs(3);
	nobody_asks();
}
END_TEST

START_TEST(test_set)
{
	OK(cuCtxSetCurrent(NULL));
	none_is_current();
	OK(cuCtxSetCurrent(context));
	pairs(3);
	nobody_asks();
}
END_TEST

/* Through a table of its own, then it looks, as the runtime does. */
START_TEST(test_set_unseen)
{
	CUcontext current;

	OK(GM_REAL(cuCtxSetCurrent)(NULL));
	OK(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	none_is_current();
	OK(GM_REAL(cuCtxSetCurrent)(context));
	pairs(1);
}
END_TEST

/* From a signal handler, say, while this thread is in a hook. */
START_TEST(test_set_inside)
{
	gm_inside = UINTPTR_MAX;
	OK(cuCtxSetCurrent(NULL));
	gm_inside = 0;
	none_is_current();
}
END_TEST

/* ---- other contexts ---- */

static CUresult create(CUcontext *ctx, unsigned int flags, CUdevice device)
{
	return GM_REAL(cuCtxCreate_v2)(ctx, flags, device);
}

static CUresult create_vdpau(CUcontext *ctx, unsigned int flags, CUdevice device,
			     uint32_t vdp_device UNUSED, void *vdp_get_proc_address UNUSED)
{
	return GM_REAL(cuCtxCreate_v2)(ctx, flags, device);
}

/* Each way makes the new one current. */
START_TEST(test_created)
{
	CUcontext other = NULL;

	gm_real.cuGLCtxCreate = gm_real.cuGLCtxCreate_v2 = create;
	gm_real.cuVDPAUCtxCreate = gm_real.cuVDPAUCtxCreate_v2 = create_vdpau;
	switch (_i) {
	case 0: OK(cuCtxCreate_v2(&other, 0, 0)); break;
	case 1: OK(cuGLCtxCreate(&other, 0, 0)); break;
	case 2: OK(cuGLCtxCreate_v2(&other, 0, 0)); break;
	case 3: OK(cuVDPAUCtxCreate(&other, 0, 0, 0, NULL)); break;
	default: OK(cuVDPAUCtxCreate_v2(&other, 0, 0, 0, NULL)); break;
	}
	ck_assert_ptr_eq(context_of_new(), other);
	/* From now on it is asked each time: who knows which one a private table makes current. */
	ck_assert_uint_ge(questions(100), 100);
	OK(GM_REAL(cuCtxSetCurrent)(context));
	ck_assert_ptr_eq(context_of_new(), context);
}
END_TEST

START_TEST(test_two_devices)
{
	CUcontext other;

	ck_assert_uint_ge(questions(100), 100);
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(GM_REAL(cuCtxSetCurrent)(other));
	ck_assert_ptr_eq(context_of_new(), other);
	OK(GM_REAL(cuCtxSetCurrent)(context));
	ck_assert_ptr_eq(context_of_new(), context);
}
END_TEST

static void *end_context(void *arg)
{
	(void)arg;
	OK(cuDevicePrimaryCtxReset_v2(0));
	return NULL;
}

/* By another thread. */
START_TEST(test_ended)
{
	CUdeviceptr p;
	pthread_t thread;
	uint64_t before;

	ck_assert_int_eq(pthread_create(&thread, NULL, end_context, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	before = fakecuda_calls(ENTRY);
	ck_assert_int_ne(cuMemAlloc_v2(&p, 4096), CUDA_SUCCESS);
	ck_assert_uint_gt(fakecuda_calls(ENTRY), before);
}
END_TEST

/* ---- where the question is also whether the driver allows anything ---- */

static CUresult told;

static void host_function(void *arg)
{
	CUdeviceptr p;

	(void)arg;
	told = cuMemAlloc_v2(&p, 4096);
}

START_TEST(test_host_function)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream, host_function, NULL));
	OK(cuStreamSynchronize(stream));	/* the fake runs it here */
	ck_assert_int_eq(told, CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_ge(questions(10), 10);
}
END_TEST

START_TEST(test_unseen)
{
	gm_unseen_work("a test");
	ck_assert_uint_ge(questions(10), 10);
}
END_TEST

START_TEST(test_exiting)
{
	__atomic_store_n((uint32_t *)&gm_state.exiting, 1, __ATOMIC_RELEASE);
	gm_context_handles_changed();
	ck_assert_uint_ge(questions(10), 10);
}
END_TEST

/* A name was looked up: what came with the object may be bound past us. The next free looks. */
START_TEST(test_looked_up)
{
	CUdeviceptr p;
	uint64_t before = fakecuda_calls(ENTRY);

	gm_name_resolved = true;
	OK(cuMemAlloc_v2(&p, 4096));
	ck_assert_uint_gt(fakecuda_calls(ENTRY), before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("current context");
	TCase *one = tcase_create("one device"), *two = tcase_create("two devices");

	tcase_add_checked_fixture(one, setup, NULL);
	tcase_add_loop_test(one, test_popped, 0, 2);
	tcase_add_test(one, test_set);
	tcase_add_test(one, test_set_unseen);
	tcase_add_test(one, test_set_inside);
	tcase_add_loop_test(one, test_created, 0, 5);
	tcase_add_test(one, test_ended);
	tcase_add_test(one, test_host_function);
	tcase_add_test(one, test_unseen);
	tcase_add_test(one, test_exiting);
	tcase_add_test(one, test_looked_up);
	suite_add_tcase(suite, one);
	tcase_add_checked_fixture(two, setup_two, NULL);
	tcase_add_test(two, test_two_devices);
	suite_add_tcase(suite, two);
	return run_hooked(suite);
}
