/*
 * What the driver's queries answer about cached memory while others allocate and free, and which pools
 * are served from the cache. On the fake driver, through the hooks.
 */
#include <pthread.h>

#include "preload/cache/cache.h"
#include "test/hooked/hooked.h"

#define MIB ((size_t)1 << 20)
#define THREADS 3
#define STEPS 1500
#define LIVE 24

static CUcontext context;
static _Atomic(CUdeviceptr) shown;	/* a block of somebody's, or one that was */
static _Atomic(int) done;

static void setup(void)
{
	context = begin();
	ck_assert(gm_cache_on());
}

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One of our own, which lives: exactly so. */
static const char *look_at(CUdeviceptr p, size_t bytes, uint64_t at)
{
	CUdeviceptr base = 0, start = 0;
	size_t size = 0, range = 0;

	if (cuMemGetAddressRange_v2(&base, &size, p + at % bytes) || base != p || size != bytes)
		return "another range";
	if (cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + at % bytes) ||
	    start != p)
		return "another start";
	if (cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p) || range != bytes)
		return "another size";
	return NULL;
}

static void *allocate_and_look(void *arg)
{
	CUdeviceptr p[LIVE] = { 0 };
	size_t bytes[LIVE];
	uint64_t seed = (uintptr_t)arg * 7919 + 1;
	const char *wrong = NULL;

	if (cuCtxSetCurrent(context))
		return (void *)"no context";
	for (int i = 0; i < STEPS && !wrong; i++) {
		uint64_t dice = rnd(&seed);
		unsigned int n = (unsigned int)(dice >> 20) % LIVE;

		if (p[n]) {
			wrong = look_at(p[n], bytes[n], dice >> 8);
			if (cuMemFree_v2(p[n]))
				wrong = "not freed";
			p[n] = 0;
		} else {
			bytes[n] = 1 + (dice >> 30) % (dice % 8 ? 100000 : 3 * MIB);
			if (cuMemAlloc_v2(&p[n], bytes[n]))
				return (void *)"no memory";
			shown = p[n];
		}
		if (p[dice % LIVE])
			wrong = look_at(p[dice % LIVE], bytes[dice % LIVE], dice >> 5);
	}
	for (int n = 0; n < LIVE; n++)
		if (p[n] && cuMemFree_v2(p[n]))
			wrong = "not freed";
	done++;
	return (void *)wrong;
}

/* Others' blocks: there or not, but never anything that makes no sense. */
static void *look_at_others(void *arg)
{
	(void)arg;
	if (cuCtxSetCurrent(context))
		return (void *)"no context";
	while (done < THREADS) {
		CUdeviceptr p = shown, base = 0;
		size_t size = 0, free_bytes, total;
		CUresult r = cuMemGetAddressRange_v2(&base, &size, p);

		if (p && r != CUDA_ERROR_NOT_FOUND && (r || base > p || p - base >= size))
			return (void *)"a range without its address";
		if (cuMemGetInfo_v2(&free_bytes, &total) || free_bytes > total)
			return (void *)"more free than there is";
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS + 1];
	size_t before, after, total;
	void *wrong;

	OK(cuMemGetInfo_v2(&before, &total));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, allocate_and_look,
						(void *)(uintptr_t)(i + 1)), 0);
	ck_assert_int_eq(pthread_create(&threads[THREADS], NULL, look_at_others, NULL), 0);
	for (int i = 0; i <= THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_msg(!wrong, "%s", (const char *)wrong);
	}
	OK(cuCtxSynchronize());
	OK(cuMemGetInfo_v2(&after, &total));
	ck_assert_uint_eq(after, before);
}
END_TEST

START_TEST(test_served)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
	CUmemoryPool normal, other;
	int off = 0, on = 1;

	OK(cuDeviceGetDefaultMemPool(&normal, 0));
	OK(cuMemPoolCreate(&other, &props));
	ck_assert(gm_pool_served(0));
	ck_assert(!gm_pool_served(63));
	OK(cuDeviceSetMemPool(0, other));
	ck_assert(!gm_pool_served(0));
	OK(cuDeviceSetMemPool(0, normal));
	ck_assert(gm_pool_served(0));
	OK(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, other));
	ck_assert(!gm_pool_served(0));
	OK(cuMemPoolDestroy(other));		/* the default one is current again */
	ck_assert(gm_pool_served(0));
	OK(cuMemPoolSetAttribute(normal, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
	ck_assert(!gm_pool_served(0));
	OK(cuMemPoolSetAttribute(normal, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	ck_assert(gm_pool_served(0));
}
END_TEST

static uint64_t reserved(CUmemoryPool pool)
{
	uint64_t bytes = 0;

	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
	return bytes;
}

/* What is idle goes back at a synchronise, but for the threshold. */
START_TEST(test_threshold)
{
	uint64_t threshold = 64 * MIB;
	CUdeviceptr a, b;
	CUmemoryPool pool;
	CUstream stream;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < 2; round++) {
		OK(cuMemAllocAsync(&a, 100 * MIB, stream));
		OK(cuMemAllocAsync(&b, 20 * MIB, stream));
		OK(cuMemFreeAsync(a, stream));
		OK(cuMemFreeAsync(b, stream));
		ck_assert_uint_ge(reserved(pool), 120 * MIB);
		OK(cuStreamSynchronize(stream));
		ck_assert_uint_le(reserved(pool), round ? threshold : 0);
		OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	}
	threshold = UINT64_MAX;
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAllocAsync(&a, 100 * MIB, stream));
	OK(cuMemFreeAsync(a, stream));
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_ge(reserved(pool), 100 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(reserved(pool), 0);
}
END_TEST

/* Signs that cards or other processes will use the memory. */
START_TEST(test_writers)
{
	CUipcMemHandle handle;
	unsigned int one = 1;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 5000));
	ck_assert(!gm_writers_any());
	if (_i)
		OK(cuIpcGetMemHandle(&handle, p));
	else
		OK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	ck_assert(gm_writers_any());
	ck_assert(gm_unseen());
	OK(cuMemFree_v2(p));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("queries");
	TCase *tc = tcase_create("queries");

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	tcase_set_timeout(tc, 100);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_served);
	tcase_add_test(tc, test_threshold);
	tcase_add_loop_test(tc, test_writers, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
