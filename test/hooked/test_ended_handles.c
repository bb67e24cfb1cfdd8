/*
 * What a thread asks the driver about streams and contexts that others use. It never asks about one that
 * another thread has ended meanwhile, because that handle's memory may be anybody's by then, and never
 * about an event that has not been recorded yet.
 */
#include <pthread.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "preload/cache/cache_internal.h"
#include "test/hooked/hooked.h"

#define HELD_UP_NS 100000000
#define BYTES 500000u		/* a few of them are nothing that anybody lacks */

static CUcontext primary, other;
static CUstream stream;
static CUdeviceptr flag;
static pthread_t thread;
static _Atomic(bool) begun, named, ended_within, gave_back, entered;

static struct {
	__typeof__(cuStreamQuery) *query;
	__typeof__(cuStreamDestroy_v2) *destroy;
	__typeof__(cuCtxDestroy_v2) *end;
	__typeof__(cuCtxRecordEvent) *record_all;
	__typeof__(cuEventRecord) *record;
	__typeof__(cuMemFreeAsync) *give;
	__typeof__(cuCtxPushCurrent_v2) *enter;
} driver;

/* Another thread does @what, as far as it comes while this one is held up. */
static void beside(void *(*what)(void *))
{
	if (begun)
		return;
	begun = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, what, NULL), 0);
	gm_nap(HELD_UP_NS);
}

static void *destroys_stream(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(primary));
	OK(cuStreamDestroy_v2(stream));
	return NULL;
}

static void *destroys_context(void *arg)
{
	(void)arg;
	OK(cuCtxDestroy_v2(other));
	return NULL;
}

static void *gives_back(void *arg)
{
	CUmemoryPool pool;

	(void)arg;
	OK(cuCtxSetCurrent(primary));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolTrimTo(pool, 0));
	return NULL;
}

static CUresult held_up_query(CUstream asked)
{
	CUresult result;

	if (asked != stream)
		return driver.query(asked);
	named = true;
	beside(destroys_stream);
	result = driver.query(asked);
	named = false;
	return result;
}

static CUresult held_up_record_all(CUcontext context, CUevent event)
{
	CUresult result;

	if (context != other)
		return driver.record_all(context, event);
	named = true;
	beside(destroys_context);
	result = driver.record_all(context, event);
	named = false;
	return result;
}

static CUresult held_up_record(CUevent event, CUstream on)
{
	beside(gives_back);
	return driver.record(event, on);
}

static CUresult destroyed(CUstream which)
{
	ended_within |= named;
	return driver.destroy(which);
}

static CUresult ended(CUcontext context)
{
	ended_within |= named;
	return driver.end(context);
}

static CUresult ended_meanwhile(CUcontext context)
{
	if (context == other) {
		named = true;
		ck_assert_int_eq(pthread_create(&thread, NULL, gives_back, NULL), 0);
		pthread_join(thread, NULL);
		named = false;
	}
	return driver.end(context);
}

static CUresult pushed(CUcontext context)
{
	entered |= named && context == other;
	return driver.enter(context);
}

static CUresult given_back(CUdeviceptr ptr, CUstream on)
{
	gave_back = true;
	return driver.give(ptr, on);
}

static void setup(void)
{
	primary = begin();
	driver.query = gm_real.cuStreamQuery;
	driver.destroy = gm_real.cuStreamDestroy_v2;
	driver.end = gm_real.cuCtxDestroy_v2;
	driver.record_all = gm_real.cuCtxRecordEvent;
	driver.record = gm_real.cuEventRecord;
	driver.enter = gm_real.cuCtxPushCurrent_v2;
	driver.give = gm_real.cuMemFreeAsync;
	gm_real.cuStreamDestroy_v2 = destroyed;
	gm_real.cuCtxDestroy_v2 = ended;
	gm_real.cuMemFreeAsync = given_back;
	OK(cuMemAlloc_v2(&flag, 4096));
	OK(cuMemsetD32_v2(flag, 0, 1024));
	OK(cuCtxSynchronize());
}

static void used_and_freed(CUstream on)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, BYTES, on));
	OK(cuMemsetD32Async(p, 1, 1024, on));
	OK(cuMemFreeAsync(p, on));
}

/* A synchronise asks each stream that memory is cached for. */
START_TEST(stream_ends_beside)
{
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	used_and_freed(stream);
	gm_real.cuStreamQuery = held_up_query;
	OK(cuCtxSynchronize());
	ck_assert(begun);
	pthread_join(thread, NULL);
	ck_assert(!ended_within);
}
END_TEST

/* A free's event is recorded in every context that was given work. */
START_TEST(context_ends_beside)
{
	CUdeviceptr p, q;

	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAlloc_v2(&q, BYTES));
	OK(cuMemsetD32Async(q, 1, 1024, NULL));
	OK(cuCtxSetCurrent(primary));
	OK(cuMemAlloc_v2(&p, BYTES));
	OK(cuMemsetD32Async(p, 1, 1024, NULL));
	OK(cuMemFree_v2(p));
	gm_real.cuCtxRecordEvent = held_up_record_all;
	OK(cuMemsetD32Async(flag, 0, 1024, NULL));
	ck_assert(begun);
	pthread_join(thread, NULL);
	ck_assert(!ended_within);
}
END_TEST

/* The event of what was freed is new and not recorded yet: it would say that all is complete. */
START_TEST(event_is_not_recorded)
{
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	used_and_freed(stream);
	OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	used_and_freed(stream);
	gm_real.cuEventRecord = held_up_record;
	if (_i)
		OK(cuStreamDestroy_v2(stream));
	else
		gm_order_report_frees();
	ck_assert(begun);
	ck_assert(!gave_back);
	OK(cuMemsetD32Async(flag, 1, 1024, CU_STREAM_PER_THREAD));
	pthread_join(thread, NULL);
	OK(cuCtxSynchronize());
}
END_TEST

/* The pool's heap was made in the context that ends. */
START_TEST(pool_gives_back_beside)
{
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	used_and_freed(stream);
	OK(cuCtxSetCurrent(primary));
	used_and_freed(NULL);
	gm_real.cuCtxPushCurrent_v2 = pushed;
	gm_real.cuCtxDestroy_v2 = ended_meanwhile;
	OK(cuCtxDestroy_v2(other));
	ck_assert(!entered);
	gives_back(NULL);
	ck_assert(gave_back);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ended handles");
	TCase *tc = tcase_create("ended handles");

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, stream_ends_beside);
	tcase_add_test(tc, context_ends_beside);
	tcase_add_test(tc, pool_gives_back_beside);
	tcase_add_loop_test(tc, event_is_not_recorded, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
