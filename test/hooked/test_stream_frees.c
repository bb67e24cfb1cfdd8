/*
 * How far a stream has come with what was freed on it (preload/order/timeline_streams.c), while one thread asks and
 * another one frees on the same stream, between the driver's answer and what is made of it. On the fake driver.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"
#include "test/hooked/hooked.h"

#define BYTES ((size_t)100 << 10)

static CUcontext context;
static struct gm_timeline *timeline;
static CUstream stream, beside;
static CUdeviceptr first, second, flag, other_flag;
static void (*meanwhile)(void);

static __typeof__(cuEventQuery) *query_of_driver;
static __typeof__(cuCtxRecordEvent) *record_of_driver;

static void *run_meanwhile(void *arg)
{
	void (*what)(void) = meanwhile;

	(void)arg;
	meanwhile = NULL;
	OK(cuCtxSetCurrent(context));
	what();
	return NULL;
}

static void let_another(void)
{
	pthread_t thread;

	if (!meanwhile)
		return;
	ck_assert_int_eq(pthread_create(&thread, NULL, run_meanwhile, NULL), 0);
	pthread_join(thread, NULL);
}

static CUresult query_and_wait(CUevent event)
{
	CUresult result = query_of_driver(event);

	let_another();
	return result;
}

static CUresult wait_and_record(CUcontext of, CUevent event)
{
	let_another();
	return record_of_driver(of, event);
}

static void start(bool in_pages)
{
	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", in_pages ? "True" : "False", 1);
	setenv("FAKECUDA_CAPACITY", "2GiB", 1);	/* nothing is marked by itself */
	context = begin();
	ck_assert(gm_cache_on());
	timeline = gm_reuse_time(gm_order_reuse());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&flag, 8));
	OK(cuMemsetD32_v2(flag, 0, 2));
	other_flag = flag + 4;
	query_of_driver = gm_real.cuEventQuery;
	record_of_driver = gm_real.cuCtxRecordEvent;
	gm_real.cuEventQuery = query_and_wait;
	gm_real.cuCtxRecordEvent = wait_and_record;
}

static void free_second_behind_flag(void)
{
	OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemFreeAsync(second, stream));
}

static void set_flag(void)
{
	OK(cuStreamWriteValue32_v2(beside, flag, 1, 0));
	OK(cuCtxSynchronize());
}

/* The answer is of the first free; what it was asked for is not known any more when it comes. */
START_TEST(freed_while_it_is_asked)
{
	uint64_t key;
	bool ended;

	start(_i);
	gm_order_report_frees();
	key = gm_stream_key(stream, false);
	OK(cuMemAllocAsync(&first, BYTES, stream));
	OK(cuMemAllocAsync(&second, BYTES, stream));
	OK(cuMemFreeAsync(first, stream));
	meanwhile = free_second_behind_flag;
	gm_reuse_look_streams(gm_order_reuse(), false);
	ck_assert_ptr_null(meanwhile);
	ck_assert_int_eq(gm_timeline_stream_frees(timeline, key, &ended), GM_FREES_PENDING);
	ck_assert(gm_timeline_streams_pending(timeline));
	if (_i)
		ck_assert_uint_lt(gm_timeline_stream_passed(timeline, key), gm_reuse_now(gm_order_reuse()));
	gm_reuse_look_streams(gm_order_reuse(), false);
	ck_assert_int_eq(gm_timeline_stream_frees(timeline, key, &ended), GM_FREES_PENDING);
	set_flag();
	gm_reuse_look_streams(gm_order_reuse(), false);
	ck_assert_int_eq(gm_timeline_stream_frees(timeline, key, &ended), GM_FREES_PASSED);
}
END_TEST

static void free_first_on_default(void)
{
	OK(cuMemFreeAsync(first, CU_STREAM_LEGACY));
}

/* What was freed before there were events gets one of the whole context, on the default stream. A free beside that has
 * its own, of the default stream alone: what others wait for is none of its business. */
START_TEST(freed_while_it_is_marked)
{
	uint64_t key;
	bool ended;

	start(_i);
	key = gm_stream_key(CU_STREAM_LEGACY, false);
	OK(cuMemAllocAsync(&first, BYTES, CU_STREAM_LEGACY));
	OK(cuStreamWaitValue32_v2(CU_STREAM_LEGACY, other_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	meanwhile = free_first_on_default;
	gm_order_report_frees();
	ck_assert_ptr_null(meanwhile);
	OK(cuStreamWriteValue32_v2(beside, other_flag, 1, 0));
	OK(cuStreamSynchronize(CU_STREAM_LEGACY));
	gm_reuse_look_streams(gm_order_reuse(), false);
	ck_assert_int_eq(gm_timeline_stream_frees(timeline, key, &ended), GM_FREES_PASSED);
	set_flag();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stream frees");
	TCase *tc = tcase_create("stream frees");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, freed_while_it_is_asked, 0, 2);
	tcase_add_loop_test(tc, freed_while_it_is_marked, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
