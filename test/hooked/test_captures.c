/*
 * How many streams capture, as the hooks count it: whatever ends a capture. On the fake driver,
 * through the hooks.
 */
#include <pthread.h>

#include "preload/api/gpumem.h"
#include "preload/cache/cache.h"
#include "test/hooked/hooked.h"

#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

static CUcontext context;

static void setup(void)
{
	setenv("GPUMEM_SHARED_SEGMENTS", "1", 1);	/* one may need 20 MiB (test_torch_free) */
	context = begin();
	ck_assert(!gm_capturing());
}

static CUstream stream_new(void)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

START_TEST(test_ends)
{
	CUstream a = stream_new(), b = stream_new();
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(a, RELAXED));
	ck_assert(gm_capturing());
	OK(cuStreamBeginCapture_v2(b, RELAXED));
	OK(cuStreamEndCapture(a, &graph));
	ck_assert(gm_capturing());
	OK(cuStreamEndCapture(b, &graph));
	ck_assert(!gm_capturing());
}
END_TEST

START_TEST(test_forms)
{
	CUstream s = stream_new();
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	switch (_i) {
	case 0: OK(cuStreamBeginCapture(s)); break;
	case 1: OK(cuStreamBeginCapture_ptsz(s)); break;
	case 2: OK(cuStreamBeginCapture_v2_ptsz(s, RELAXED)); break;
	case 3: OK(cuStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, RELAXED)); break;
	case 4: OK(cuStreamBeginCaptureToGraph_ptsz(s, graph, NULL, NULL, 0, RELAXED)); break;
	default: s = NULL; OK(cuStreamBeginCapture_v2_ptsz(s, RELAXED)); break;
	}
	ck_assert(gm_capturing());
	if (_i % 2)
		OK(cuStreamEndCapture_ptsz(s, &graph));
	else
		OK(cuStreamEndCapture(s, &graph));
	ck_assert(!gm_capturing());
}
END_TEST

START_TEST(test_refused)
{
	CUstream s = stream_new();
	CUgraph graph;

	ck_assert_int_ne(cuStreamBeginCapture_v2(NULL, RELAXED), CUDA_SUCCESS);
	ck_assert(!gm_capturing());
	OK(cuStreamBeginCapture_v2(s, RELAXED));
	ck_assert_int_ne(cuStreamBeginCapture_v2(s, RELAXED), CUDA_SUCCESS);
	ck_assert(gm_capturing());
	OK(cuStreamEndCapture(s, &graph));
	ck_assert(!gm_capturing());
	ck_assert_int_ne(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
	ck_assert(!gm_capturing());
}
END_TEST

/* Invalidated: it counts until the program ends it. */
START_TEST(test_invalidated)
{
	CUstream s = stream_new();
	CUdeviceptr p;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_ne(GM_REAL(cuMemAlloc_v2)(&p, 64), CUDA_SUCCESS);
	ck_assert_int_eq(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert(!gm_capturing());
}
END_TEST

/* A stream, or its whole context, may go while it captures. */
START_TEST(test_gone)
{
	CUcontext own;
	CUstream s;

	OK(cuCtxCreate_v2(&own, 0, 1));
	s = stream_new();
	OK(cuStreamBeginCapture_v2(s, RELAXED));
	ck_assert(gm_capturing());
	if (_i)
		OK(cuCtxDestroy_v2(own));
	else
		OK(cuStreamDestroy_v2(s));
	ck_assert(!gm_capturing());
}
END_TEST

#define THREADS 4

static void *capture_often(void *arg)
{
	CUstream s;
	CUgraph graph;

	(void)arg;
	if (cuCtxSetCurrent(context) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING))
		return "no stream";
	for (int i = 0; i < 200; i++) {
		if (cuStreamBeginCapture_v2(s, RELAXED))
			return "no capture";
		if (!gm_capturing())
			return "not counted";
		if (i % 20 == 7) {
			if (cuStreamDestroy_v2(s) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING))
				return "no new stream";
		} else if (cuStreamEndCapture(s, &graph)) {
			return "no end";
		}
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	void *wrong;

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, capture_often, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_msg(!wrong, "%s", (const char *)wrong);
	}
	ck_assert(!gm_capturing());
}
END_TEST

/* PyTorch's interface: malloc is refused where cudaMalloc is, and succeeds where that does. */
START_TEST(test_torch_malloc)
{
	enum CUstreamCaptureMode_enum mode = _i ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUstream s = stream_new();
	CUgraph graph;
	void *p;

	p = gpumem_torch_malloc(4096, 0, s);	/* there is a free block, so that the driver is not asked */
	gpumem_torch_free(p, 4096, 0, s);
	OK(cuCtxSynchronize());
	OK(cuStreamBeginCapture_v2(s, mode));
	p = gpumem_torch_malloc(4096, 0, s);
	ck_assert_int_eq(p != NULL, _i);
	ck_assert_int_eq((int)cuStreamEndCapture(s, &graph), _i ? 0 : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

#define BYTES (3 << 20)

/* free always succeeds, invalidates no capture, and the block is nobody's before the capture has ended: one of the
 * stream that captures (0), of another one (1), or of the driver's (2). */
START_TEST(test_torch_free)
{
	CUstream s = stream_new(), other = stream_new();
	struct gm_block copy;
	size_t free, total;
	void *p, *next;
	CUgraph graph;

	OK(cuMemGetInfo_v2(&free, &total));
	if (_i == 2)				/* too little for a segment */
		fakecuda_set_other_bytes(0, free - ((size_t)16 << 20));
	p = gpumem_torch_malloc(BYTES, 0, _i ? other : s);
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(!gm_cache_block((CUdeviceptr)(uintptr_t)p, &copy), _i == 2);
	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	gpumem_torch_free(p, BYTES, 0, _i ? other : s);
	ck_assert_uint_eq(gm_cache_block((CUdeviceptr)(uintptr_t)p, &copy), 0);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuCtxSynchronize());
	next = gpumem_torch_malloc(BYTES, 0, _i ? other : s);
	ck_assert_ptr_nonnull(next);
	if (_i < 2)
		ck_assert_ptr_eq(next, p);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_DEVICE), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("captures");
	TCase *tc = tcase_create("captures");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_ends);
	tcase_add_loop_test(tc, test_forms, 0, 6);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_invalidated);
	tcase_add_loop_test(tc, test_gone, 0, 2);
	tcase_add_test(tc, test_threads);
	tcase_add_loop_test(tc, test_torch_malloc, 0, 2);
	tcase_add_loop_test(tc, test_torch_free, 0, 3);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
