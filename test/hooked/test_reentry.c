/*
 * Calls about cached memory from inside another hook of the same thread, as a signal handler or a
 * callback of the driver makes them: within a driver call of the program's, and within one of ours while
 * the locks of a growing heap are held. On the fake driver, through the hooks.
 */
#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "recorder/journal/recorder.h"
#include "test/hooked/hooked.h"

#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUstream stream;
static CUdeviceptr a, b;	/* in one segment: at its beginning, and behind that */
static void (*called_back)(void);
static CUresult said;
static CUdeviceptr big;		/* what the call around it allocated */
static size_t free_at_first;

static __typeof__(cuMemAlloc_v2) *alloc_of_driver;
static __typeof__(cuMemFree_v2) *free_of_driver;

static CUresult query_and_call_back(CUstream ignored)
{
	(void)ignored;
	called_back();
	return CUDA_SUCCESS;
}

static CUresult alloc_and_call_back(CUdeviceptr *ptr, size_t bytes)
{
	called_back();
	return alloc_of_driver(ptr, bytes);
}

/* @call runs inside a hook: @growing, one that makes a segment. */
static void inside(void (*call)(void), bool growing)
{
	big = 0;
	called_back = call;
	if (growing) {
		alloc_of_driver = gm_real.cuMemAlloc_v2;
		gm_real.cuMemAlloc_v2 = alloc_and_call_back;
		OK(cuMemAlloc_v2(&big, 30 * MIB));
		gm_real.cuMemAlloc_v2 = alloc_of_driver;
	} else {
		gm_real.cuStreamQuery = query_and_call_back;
		OK(cuStreamQuery(stream));
	}
	ck_assert(!gm_inside);
}

static size_t free_bytes(void)
{
	size_t left, total;

	OK(GM_REAL(cuMemGetInfo_v2)(&left, &total));
	return left;
}

static uint64_t lost(void)
{
	return gm_recorder_header()->operations_lost;
}

static void setup(void)
{
	struct gm_segment segment;
	struct gm_block block;

	context = begin();
	ck_assert(gm_cache_on());
	free_at_first = free_bytes();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&a, 5000));
	OK(cuMemAlloc_v2(&b, 5000));
	ck_assert(gm_cache_heap_segment(gm_cache_block(b, &block), &segment));
	ck_assert_uint_eq(segment.address, a);
	ck_assert_uint_gt(b, a);
	ck_assert_uint_lt(b, a + segment.size);
}

/* ---- free ---- */

static void free_a(void)
{
	said = cuMemFree_v2(a);
}

static void free_a_async(void)
{
	said = cuMemFreeAsync(a, stream);
}

static void free_a_async_ptsz(void)
{
	said = cuMemFreeAsync_ptsz(a, stream);
}

static void (*const frees[])(void) = { free_a, free_a_async, free_a_async_ptsz };

/* What begins a segment is freed; its neighbour keeps its memory. Freed once, it is nobody's until the outer call, or
 * another one, comes to do it; and the driver gets all back. */
START_TEST(test_free)
{
	struct gm_block block;
	uint32_t id = gm_cache_block(a, &block);
	uint64_t before = lost();
	CUdeviceptr base;
	size_t size;

	inside(frees[_i % 3], _i >= 3);
	ck_assert_int_eq(said, CUDA_SUCCESS);
	ck_assert_int_eq(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(lost(), before);
	OK(cuCtxSynchronize());
	OK(GM_REAL(cuMemGetAddressRange_v2)(&base, &size, b));
	ck_assert_uint_eq(base, a);
	OK(cuMemsetD8_v2(b, 1, 5000));
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(gm_cache_block(a, &block), 0);
	OK(cuMemFree_v2(b));
	if (big)
		OK(cuMemFree_v2(big));
	OK(cuCtxSynchronize());
	gm_cache_flush(0);
	ck_assert_int_eq(GM_REAL(cuMemGetAddressRange_v2)(&base, &size, b), CUDA_ERROR_NOT_FOUND);
	ck_assert_uint_eq(free_bytes(), free_at_first);
}
END_TEST

/* The same beside work of several streams: the memory is handed out when the work is complete. */
START_TEST(test_free_beside_work)
{
	CUdeviceptr more[64];
	bool again = false;

	OK(cuMemsetD8Async(b, 1, 5000, stream));
	OK(cuMemsetD8Async(b, 1, 5000, NULL));
	fakecuda_set_step_ns(0);
	inside(frees[_i % 3], _i >= 3);
	OK(cuMemAlloc_v2(&more[0], 5000));	/* does the free, which waits for all work from here on */
	ck_assert_uint_ne(more[0], a);
	OK(cuMemsetD8Async(b, 1, 5000, stream));
	OK(cuCtxSynchronize());
	for (int i = 1; i < 64; i++) {
		OK(cuMemAlloc_v2(&more[i], 5000));
		again = again || more[i] == a;
		ck_assert_uint_ne(more[i], b);
	}
	ck_assert(again);
}
END_TEST

static CUdeviceptr tried;

static void free_tried(void)
{
	said = cuMemFree_v2(tried);
}

/* What the driver would refuse, too, and what is its own. */
START_TEST(test_free_others)
{
	uint64_t before = lost();
	CUdeviceptr managed;

	tried = b + 512;
	inside(free_tried, _i);
	ck_assert_int_eq(said, CUDA_ERROR_INVALID_VALUE);
	tried = 12345;
	inside(free_tried, _i);
	ck_assert_int_eq(said, CUDA_ERROR_INVALID_VALUE);
	tried = 0;
	inside(free_tried, _i);
	ck_assert_int_eq(said, CUDA_SUCCESS);
	OK(cuMemFree_v2(b));
	tried = b;
	inside(free_tried, _i);
	ck_assert_int_eq(said, CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL));
	tried = managed;
	inside(free_tried, _i);
	ck_assert_int_eq(said, CUDA_SUCCESS);
	ck_assert_int_eq(GM_REAL(cuMemFree_v2)(managed), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(lost(), before);
}
END_TEST

static CUresult refuse(CUdeviceptr ptr)
{
	ck_assert_uint_ne(ptr, a);
	return CUDA_ERROR_NOT_PERMITTED;
}

/* What the driver says against the call is what the program hears. */
START_TEST(test_free_refused)
{
	uint64_t before = lost();

	free_of_driver = gm_real.cuMemFree_v2;
	gm_real.cuMemFree_v2 = refuse;
	inside(free_a, false);
	gm_real.cuMemFree_v2 = free_of_driver;
	ck_assert_int_eq(said, CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_eq(lost(), before);
	OK(cuMemFree_v2(a));
}
END_TEST

/* ---- questions ---- */

static CUdeviceptr base_said, start_said;
static size_t size_said, range_said;
static CUipcMemHandle handle;

static void ask_of_b(void)
{
	CUpointer_attribute both[] = { CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	void *data[] = { &start_said, &range_said };
	CUdeviceptr start;

	OK(cuMemGetAddressRange_v2(&base_said, &size_said, b + 100));
	OK(cuPointerGetAttributes(2, both, data, b + 100));
	OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, b + 100));
	ck_assert_uint_eq(start, start_said);
}

START_TEST(test_questions)
{
	inside(ask_of_b, _i);
	ck_assert_uint_eq(base_said, b);
	ck_assert_uint_eq(size_said, 5000);
	ck_assert_uint_eq(start_said, b);
	ck_assert_uint_eq(range_said, 5000);
}
END_TEST

static void export_b(void)
{
	said = cuIpcGetMemHandle(&handle, b);
}

/* The handle names the block, not the beginning of its segment; others may write it from then on. */
START_TEST(test_export)
{
	CUipcMemHandle outside;
	CUdeviceptr p;

	inside(export_b, _i);
	ck_assert_int_eq(said, CUDA_SUCCESS);
	OK(cuMemAlloc_v2(&p, 100 * MIB));
	ck_assert(gm_writers_any());
	OK(cuIpcGetMemHandle(&outside, b));
	ck_assert_mem_eq(&handle, &outside, sizeof(handle));
}
END_TEST

static const unsigned int zero, one = 1;
static const unsigned int *value;

static void set_of_b(void)
{
	said = cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b);
}

/* Never taken back from its neighbours. */
START_TEST(test_sync_memops)
{
	unsigned int now = 0;

	OK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	value = &zero;
	inside(set_of_b, _i);
	ck_assert_int_eq(said, CUDA_SUCCESS);
	OK(cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	ck_assert_uint_eq(now, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reentry");
	TCase *tc = tcase_create("reentry");

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, test_free, 0, 6);
	tcase_add_loop_test(tc, test_free_beside_work, 0, 6);
	tcase_add_loop_test(tc, test_free_others, 0, 2);
	tcase_add_test(tc, test_free_refused);
	tcase_add_loop_test(tc, test_questions, 0, 2);
	tcase_add_loop_test(tc, test_export, 0, 2);
	tcase_add_loop_test(tc, test_sync_memops, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
