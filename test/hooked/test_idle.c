/*
 * What nobody uses goes back to the driver, turn by turn (gm_cache_turn), and what is used again stays. The test takes
 * the helper thread's place, so that a turn is when it says. On the fake driver, through the hooks.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "test/hooked/hooked.h"

#define MIB ((size_t)1 << 20)

enum heap { SEGMENTS, POOL, PAGES, POOL_PAGES, HEAPS };

static enum heap kind;
static CUstream stream;

static CUcontext start(int heap)
{
	CUcontext context;

	kind = (enum heap)heap;
	setenv("GPUMEM_IDLE_TIME", "0", 1);		/* the helper thread takes no turn */
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", heap >= PAGES ? "True" : "False", 1);
	setenv("GPUMEM_COMPACTION_TIME", "1", 1);	/* a busy machine moves pages as a quiet one does */
	setenv("FAKECUDA_CAPACITY", "1GiB", 1);
	setenv("FAKECUDA_DEVICES", "2", 1);
	context = begin();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return context;
}

static bool of_pool(void)
{
	return kind == POOL || kind == POOL_PAGES;
}

static CUdeviceptr get(size_t bytes)
{
	CUdeviceptr p;

	OK(of_pool() ? cuMemAllocAsync(&p, bytes, stream) : cuMemAlloc_v2(&p, bytes));
	return p;
}

static void drop(CUdeviceptr p)
{
	OK(of_pool() ? cuMemFreeAsync(p, stream) : cuMemFree_v2(p));
}

static __typeof__(cuMemFreeAsync) *real_free;
static __typeof__(cuMemUnmap) *real_unmap;
static CUstream captured;
static bool began, began_inside;

static void begin_capture(void)
{
	uintptr_t inside = gm_inside;

	if (began)
		return;
	began = true;
	began_inside = inside != 0;
	gm_inside = 0;
	OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
	gm_inside = inside;
}

static void end_capture(void)
{
	CUgraph graph;

	gm_inside = 0;
	OK(cuStreamEndCapture(captured, &graph));
	OK(cuGraphDestroy(graph));
}

static void *helper(void *count)
{
	gm_inside = (uintptr_t)__builtin_frame_address(0);
	for (unsigned int i = 0; i < *(unsigned int *)count; i++) {
		if (gm_unseen())		/* in place of the program's next call */
			gm_reuse_look(gm_order_reuse());
		gm_cache_turn();
	}
	if (began_inside)
		end_capture();
	return NULL;
}

static uint64_t turns(unsigned int count)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, helper, &count), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	return fakecuda_charged_bytes(0);
}

/* Calls by which the cache gets memory. */
static uint64_t growths(void)
{
	return fakecuda_calls("cuMemAlloc_v2") + fakecuda_calls("cuMemAllocAsync") + fakecuda_calls("cuMemCreate");
}

START_TEST(test_goes_back)
{
	uint64_t before, with;
	CUdeviceptr p, q;

	start(_i);
	q = get(30 * MIB);
	drop(get(4096));
	turns(3);
	before = fakecuda_charged_bytes(0);
	p = get(200 * MIB);
	drop(get(3 * MIB));
	with = fakecuda_charged_bytes(0);
	ck_assert_uint_ge(with, before + 200 * MIB);
	ck_assert_uint_ge(turns(3), before + 200 * MIB);	/* it is live */
	drop(p);
	ck_assert_uint_ge(turns(1), before + 200 * MIB);
	ck_assert_uint_le(turns(20), before);		/* what went before was missed */
	drop(q);
	ck_assert_uint_le(turns(20), before - 30 * MIB);
}
END_TEST

/* Blocks in a thread cache, whose thread does nothing. */
START_TEST(test_thread_cache)
{
	CUdeviceptr p[64];
	uint64_t before;

	start(_i);
	before = fakecuda_charged_bytes(0);
	for (size_t i = 0; i < 64; i++)
		p[i] = get(512 << 10);
	ck_assert_uint_ge(fakecuda_charged_bytes(0), before + 32 * MIB);
	for (size_t i = 0; i < 64; i++)
		drop(p[i]);
	ck_assert_uint_ge(turns(1), before + 2 * MIB);
	ck_assert_uint_le(turns(4), before);
}
END_TEST

/* An iteration of @_i turns: after the first ones nothing comes or goes. */
START_TEST(test_iterations_stay)
{
	uint64_t got = 0;

	for (int length = 1; length < 12; length += 3) {
		start(_i);
		for (unsigned int i = 0; i < 20; i++) {
			drop(get(300 * MIB));
			turns(1);
			drop(get(40 * MIB));
			turns((unsigned int)length);
			if (i == 4)
				got = growths();
		}
		ck_assert_uint_gt(got, 0);
		ck_assert_uint_eq(growths(), got);
		ck_assert_uint_ge(fakecuda_charged_bytes(0), 300 * MIB);
		/* And when the program has ended with them, it goes. */
		ck_assert_uint_lt(turns(64), 300 * MIB);
	}
}
END_TEST

/* Of segments those that are used stay, however much lies beside. */
START_TEST(test_only_unused)
{
	CUdeviceptr p, q;

	start(_i);
	p = get(100 * MIB);
	q = get(200 * MIB);
	drop(p);
	drop(q);
	for (unsigned int i = 0; i < 4; i++) {
		drop(get(100 * MIB));
		turns(1);
	}
	ck_assert_uint_ge(fakecuda_charged_bytes(0), 100 * MIB);
	ck_assert_uint_lt(fakecuda_charged_bytes(0), 200 * MIB);
}
END_TEST

/* Freed behind work that is not complete: it waits for that, and nobody else does. */
START_TEST(test_behind_work)
{
	CUdeviceptr flag, p;
	CUstream beside;
	uint64_t before;

	start(_i);
	OK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&flag, 4));
	OK(cuMemsetD32_v2(flag, 0, 1));
	p = get(100 * MIB);
	OK(cuMemsetD8Async(p, 1, 100 * MIB, beside));
	OK(cuStreamSynchronize(beside));
	before = turns(3);
	OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD8Async(p, 1, 100 * MIB, stream));
	drop(p);
	ck_assert_uint_ge(turns(4), before);
	ck_assert_uint_eq(fakecuda_hangs(), 0);
	OK(cuStreamWriteValue32_v2(beside, flag, 1, 0));
	OK(GM_REAL(cuStreamSynchronize)(stream));
	ck_assert_uint_le(turns(4), before - 100 * MIB);
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

static CUresult free_beside_capture(CUdeviceptr p, CUstream of)
{
	begin_capture();
	return real_free(p, of);
}

static CUresult unmap_beside_capture(CUdeviceptr p, size_t bytes)
{
	begin_capture();
	return real_unmap(p, bytes);
}

/* A capture goes on, or begins in the middle of a turn. */
START_TEST(test_capture)
{
	int heap = _i / 2;

	start(heap);
	OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
	for (size_t i = 1; i < 6; i++)
		drop(get(20 * i * MIB));
	OK(GM_REAL(cuStreamSynchronize)(stream));	/* ours would give back by itself */
	turns(1);
	if (_i % 2) {
		real_free = gm_real.cuMemFreeAsync;
		real_unmap = gm_real.cuMemUnmap;
		gm_real.cuMemFreeAsync = free_beside_capture;
		gm_real.cuMemUnmap = unmap_beside_capture;
	} else {
		begin_capture();
	}
	turns(4);
	ck_assert(began);
	if (_i % 2)
		began_inside = false;
	else
		end_capture();
	ck_assert_uint_lt(turns(4), 20 * MIB);
}
END_TEST

/* A pool keeps what its release threshold says. */
START_TEST(test_threshold)
{
	cuuint64_t threshold = _i ? UINT64_MAX : 50 * MIB;
	CUmemoryPool pool;

	start(POOL);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	drop(get(200 * MIB));
	drop(get(20 * MIB));
	OK(GM_REAL(cuStreamSynchronize)(stream));
	if (_i)
		ck_assert_uint_ge(turns(5), 200 * MIB);
	else
		ck_assert_uint_lt(turns(5), 200 * MIB);
}
END_TEST

/* Memory of a context in which something waits stays, that of another device goes. */
START_TEST(test_other_device)
{
	CUcontext first, second;
	CUdeviceptr flag, p;
	CUstream waits;
	uint64_t before;

	start(_i);
	first = NULL;
	OK(cuCtxGetCurrent(&first));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&flag, 4));
	OK(cuMemsetD32_v2(flag, 0, 1));
	OK(cuCtxSynchronize());
	OK(cuStreamWaitValue32_v2(waits, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuCtxSetCurrent(first));
	before = turns(2);
	p = get(100 * MIB);
	drop(p);
	ck_assert_uint_ge(fakecuda_charged_bytes(0), before + 100 * MIB);
	if (gm_unseen() && !of_pool())		/* work that no hook sees may touch any memory */
		ck_assert_uint_ge(turns(20), before + 100 * MIB);
	else
		ck_assert_uint_le(turns(20), before);
	ck_assert_uint_eq(fakecuda_hangs(), 0);
	OK(cuCtxSetCurrent(second));
	OK(cuStreamWriteValue32_v2(NULL, flag, 1, 0));
	OK(cuCtxSynchronize());
}
END_TEST

/* Its context ends, or it has a sticky error: nothing is touched. */
START_TEST(test_contexts_end)
{
	CUcontext context;

	start(_i);
	drop(get(100 * MIB));
	turns(1);
	OK(cuStreamSynchronize(stream));
	OK(cuDevicePrimaryCtxReset_v2(0));
	turns(3);
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	drop(get(100 * MIB));
	OK(GM_REAL(cuStreamSynchronize)(stream));
	ck_assert_uint_lt(turns(3), 100 * MIB);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("idle");
	TCase *tc = tcase_create("idle");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_goes_back, 0, HEAPS);
	tcase_add_loop_test(tc, test_thread_cache, 0, HEAPS);
	tcase_add_loop_test(tc, test_iterations_stay, 0, HEAPS);
	tcase_add_loop_test(tc, test_only_unused, 0, HEAPS);
	tcase_add_loop_test(tc, test_behind_work, 0, HEAPS);
	tcase_add_loop_test(tc, test_capture, 0, 2 * HEAPS);
	tcase_add_loop_test(tc, test_threshold, 0, 2);
	tcase_add_loop_test(tc, test_other_device, 0, HEAPS);
	tcase_add_loop_test(tc, test_contexts_end, 0, HEAPS);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
