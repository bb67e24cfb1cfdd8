/*
 * What other threads may do while a context ends: the driver has given its memory up, and our hook has
 * not gone on yet. The driver may hand the same addresses to another thread then, and whatever the ended
 * context's heap still did with them would be done to that thread's blocks.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "preload/cache/cache_internal.h"
#include "recorder/journal/recorder.h"
#include "test/hooked/hooked.h"
#include "test/unit/journal/aux_check.h"

#define MANY 2048u
#define SOME 5000u

static CUcontext primary, own;
static CUstream streams[2];
static void (*meanwhile)(void);
static CUdeviceptr others[MANY], lost_base;
static unsigned int other_count, released;
static uint64_t waiting;

static __typeof__(cuCtxDestroy_v2) *destroy_of_driver;
static __typeof__(cuDevicePrimaryCtxRelease_v2) *release_of_driver;

static void *run_meanwhile(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(primary));
	meanwhile();
	return NULL;
}

static void let_others(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, run_meanwhile, NULL), 0);
	pthread_join(thread, NULL);
}

static CUresult destroy_and_wait(CUcontext context)
{
	CUresult result = destroy_of_driver(context);

	let_others();
	return result;
}

/* The program's own: the library holds a primary context for a moment, too, where it has to learn its handle. */
static CUresult release_and_wait(CUdevice device)
{
	CUresult result = release_of_driver(device);

	if (!released++)
		let_others();
	return result;
}

static void setup(void)
{
	primary = begin();
	ck_assert(gm_cache_on());
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	OK(cuCtxCreate_v2(&own, 0, 0));
	destroy_of_driver = gm_real.cuCtxDestroy_v2;
	gm_real.cuCtxDestroy_v2 = destroy_and_wait;
	other_count = 0;
}

/* From here on two streams have been given work: what is freed waits for it. */
static void work_on_two(void)
{
	CUdeviceptr p;

	OK(cuCtxSetCurrent(primary));
	OK(cuMemAlloc_v2(&p, SOME));
	for (int i = 0; i < 2; i++) {
		OK(cuMemsetD8Async(p, 1, SOME, streams[i]));
		OK(cuStreamSynchronize(streams[i]));
	}
	OK(cuMemFree_v2(p));
}

static CUdeviceptr base_of(CUdeviceptr ptr)
{
	struct gm_segment segment;
	struct gm_block block;
	uint32_t id = gm_cache_block(ptr, &block);

	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(block.address, ptr);
	ck_assert(gm_cache_heap_segment(id, &segment));
	return segment.address;
}

/* Blocks in a segment where the ended context had one, and behind it. */
static void take_its_place(void)
{
	unsigned int there = 0;

	while (there < 8) {
		ck_assert_uint_lt(other_count, MANY);
		OK(cuMemAlloc_v2(&others[other_count], SOME));
		there += base_of(others[other_count++]) == lost_base;
	}
}

static void nothing_lost(void)
{
	for (unsigned int i = 0; i < other_count; i++)
		base_of(others[i]);
	for (unsigned int i = 0; i < other_count; i++)
		OK(cuMemFree_v2(others[i]));
	ck_assert_int_eq(gm_recorder_check(), 0);
}

/* ---- what waited for the GPU is complete then -------------------------------------------------- */

static void take_and_complete(void)
{
	take_its_place();
	ck_assert_uint_eq(gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX), waiting);
	OK(cuCtxSynchronize());
	/* Where a sanitizer's objects are bound past us, the one that ends may have been given work. */
	ck_assert_uint_eq(gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX),
			  gm_unseen() ? waiting : 0);
}

START_TEST(limbo_completes)
{
	CUdeviceptr busy, p[4];

	work_on_two();
	OK(cuMemAlloc_v2(&busy, SOME));
	fakecuda_set_step_ns(0);		/* it ends when it is waited for */
	OK(cuMemsetD8Async(busy, 2, SOME, streams[0]));
	OK(cuCtxSetCurrent(own));
	for (int i = 0; i < 4; i++)
		OK(cuMemAlloc_v2(&p[i], SOME));
	lost_base = base_of(p[0]);
	gm_ticket_touches(gm_context_find(primary), gm_context_find(own));	/* they wait for its work */
	for (int i = 0; i < 4; i++)
		OK(cuMemFree_v2(p[i]));
	OK(cuCtxSetCurrent(primary));
	OK(cuMemsetD8Async(busy, 3, SOME, streams[1]));
	waiting = gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX);
	ck_assert_uint_gt(waiting, 0);
	meanwhile = take_and_complete;
	OK(cuCtxDestroy_v2(own));
	nothing_lost();
}
END_TEST

/* ---- what is the driver's own lies there then --------------------------------------------------- */

static void take_of_driver(void)
{
	CUdeviceptr p[64], base;
	bool there = false;
	size_t size;

	for (int i = 0; i < 64; i++) {
		OK(cuMemAlloc_v2(&p[i], 2 << 20));
		there = there || p[i] == lost_base;
		OK(cuMemGetAddressRange_v2(&base, &size, p[i] + SOME));
		ck_assert_uint_eq(base, p[i]);
	}
	ck_assert(there);
	for (int i = 0; i < 64; i++)
		OK(cuMemFree_v2(p[i]));
}

START_TEST(passed_through)
{
	CUdeviceptr p;

	gm_writers_seen("a test says so");
	OK(cuCtxSetCurrent(own));
	OK(cuMemAlloc_v2(&p, SOME));
	lost_base = base_of(p);
	meanwhile = take_of_driver;
	OK(cuCtxDestroy_v2(own));
	OK(cuCtxSetCurrent(primary));
	nothing_lost();
}
END_TEST

/* ---- it does not end ---------------------------------------------------------------------------- */

static CUdeviceptr mine[16];

static void free_all(void)
{
	for (int i = 0; i < 16; i++)
		OK(cuMemFree_v2(mine[i]));
	OK(cuCtxSynchronize());
}

/* The runtime and libraries each hold the primary context, and give it back while others work. */
START_TEST(not_the_last_release)
{
	struct gm_stats stats;
	CUcontext again;

	if (_i)
		work_on_two();
	OK(cuCtxSetCurrent(primary));
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	for (int i = 0; i < 16; i++)
		OK(cuMemAlloc_v2(&mine[i], SOME));
	release_of_driver = gm_real.cuDevicePrimaryCtxRelease_v2;
	gm_real.cuDevicePrimaryCtxRelease_v2 = release_and_wait;
	meanwhile = free_all;
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuCtxSynchronize());
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][0].current, 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ACTIVE][0].current, 0);
	ck_assert_int_eq(stats.stat[GM_STAT_INACTIVE_SPLIT][0].current, 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
	OK(cuMemAlloc_v2(&mine[0], SOME));
	base_of(mine[0]);
	OK(cuMemFree_v2(mine[0]));
}
END_TEST

/* ---- our own hold on it is the last ------------------------------------------------------------- */

static unsigned int releases;

static void *release_theirs(void *arg)
{
	OK(cuDevicePrimaryCtxRelease_v2(1));
	return arg;
}

/* The library is about to give up what it holds to learn a handle: then another thread gives up the program's. */
static CUresult release_after_theirs(CUdevice device)
{
	pthread_t thread;

	if (!releases++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, release_theirs, NULL), 0);
		pthread_join(thread, NULL);
	}
	return release_of_driver(device);
}

/* Nothing of the context is used any more, and what is freed elsewhere still completes. */
START_TEST(our_hold_is_the_last)
{
	CUcontext there;
	CUdeviceptr p;
	uint32_t id;

	OK(cuDevicePrimaryCtxRetain(&there, 1));
	OK(cuCtxSetCurrent(there));
	OK(cuMemAlloc_v2(&p, SOME));
	OK(cuMemFree_v2(p));
	id = gm_context_find(there);
	ck_assert_uint_ne(id, 0);
	OK(cuCtxSetCurrent(primary));
	release_of_driver = gm_real.cuDevicePrimaryCtxRelease_v2;
	gm_real.cuDevicePrimaryCtxRelease_v2 = release_after_theirs;
	gm_ticket_context(id);
	ck_assert_uint_ge(releases, 2);
	gm_real.cuDevicePrimaryCtxRelease_v2 = release_of_driver;
	work_on_two();
	OK(cuMemAlloc_v2(&p, SOME));
	OK(cuMemFree_v2(p));
	OK(cuMemsetD8Async(p, 1, 1, streams[0]));
	for (int i = 0; i < 100 && gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX); i++)
		gm_reuse_poll(gm_order_reuse());
	ck_assert_uint_eq(gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX), 0);
	OK(cuDevicePrimaryCtxRetain(&there, 1));
	OK(cuCtxSetCurrent(there));
	OK(cuMemAlloc_v2(&p, SOME));
	OK(cuMemsetD8_v2(p, 7, SOME));
	OK(cuMemFree_v2(p));
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

/* ---- many of them ------------------------------------------------------------------------------- */

static _Atomic(bool) enough;

static void *ask(void *arg)
{
	size_t free_bytes, total;

	(void)arg;
	OK(cuCtxSetCurrent(primary));
	while (!enough) {
		OK(cuMemGetInfo_v2(&free_bytes, &total));
		gm_cache_set_limit(0, GM_HEAP_UNLIMITED, 1, GM_LIMIT_CALL);
		gm_cache_flush(0);
	}
	return NULL;
}

/* A heap's place is taken by another's while somebody looks at all of them. For the sanitizers above
 * all. */
START_TEST(come_and_go)
{
	CUcontext context;
	pthread_t thread;
	CUdeviceptr p;

	gm_real.cuCtxDestroy_v2 = destroy_of_driver;
	OK(cuCtxDestroy_v2(own));
	ck_assert_int_eq(pthread_create(&thread, NULL, ask, NULL), 0);
	for (int i = 0; i < 200; i++) {
		OK(cuCtxCreate_v2(&context, 0, 0));
		OK(cuMemAlloc_v2(&p, SOME));
		OK(cuMemFree_v2(p));
		OK(cuMemAlloc_v2(&p, SOME));
		OK(cuCtxDestroy_v2(context));
	}
	enough = true;
	pthread_join(thread, NULL);
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("context end");
	TCase *tc = tcase_create("context end");

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, limbo_completes);
	tcase_add_test(tc, passed_through);
	tcase_add_loop_test(tc, not_the_last_release, 0, 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* Where a sanitizer's objects are bound past us, each context is met before it is asked for here. */
	tcase_add_test(tc, our_hold_is_the_last);
#else
	(void)our_hold_is_the_last;
#endif
	tcase_add_test(tc, come_and_go);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
