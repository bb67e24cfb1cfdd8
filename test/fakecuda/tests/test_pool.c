/*
 * test_pool.c - stream-ordered memory: pools, reuse, attributes, what is given back when.
 */
#include "common.h"

#define SPIN_NS 5000000000ULL

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool;

	ok(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute attr)
{
	uint64_t v;

	ok(cuMemPoolGetAttribute(pool, attr, &v));
	return v;
}

static void set_threshold(CUmemoryPool pool, uint64_t bytes)
{
	ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static void set_flag(CUmemoryPool pool, CUmemPool_attribute attr, int value)
{
	ok(cuMemPoolSetAttribute(pool, attr, &value));
}

static CUstream stream(void)
{
	CUstream s;

	ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static CUmemoryPool new_pool(int device)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
	CUmemoryPool pool;

	ok(cuMemPoolCreate(&pool, &props));
	return pool;
}

START_TEST(nothing_is_null)
{
	CUdeviceptr p = 1, managed;

	start(0);
	ok(cuMemAllocAsync(&p, 0, NULL));
	ck_assert_uint_eq(p, 0);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_POOL), 0);
	ok(cuMemFreeAsync(0, NULL));
	ok(cuMemAllocAsync(&p, 1, NULL));
	ok(cuMemFreeAsync(p, NULL));
	fails(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAllocAsync(&p, SIZE_MAX, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAllocManaged(&managed, 1, CU_MEM_ATTACH_GLOBAL));
	fails(cuMemFreeAsync(managed, NULL), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(bytes_are_counted)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;

	start(0);
	pool = default_pool();
	ok(cuMemAllocAsync(&p, 1000, NULL));
	ok(cuMemAllocAsync(&q, 40 * MIB, NULL));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_POOL), 1000 + 40 * MIB);
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000 + 40 * MIB);
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 64 * MIB);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 64 * MIB);
	ok(cuMemFreeAsync(q, NULL));
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000 + 40 * MIB);
	ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &(uint64_t){ 0 }));
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000);
	ok(cuStreamSynchronize(NULL));			/* gives the unused end back */
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 32 * MIB);
	fails(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &(uint64_t){ 1 }),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree(p));
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_POOL), 0);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

START_TEST(threshold_takes_effect_at_synchronise)
{
	CUmemoryPool pool;
	CUdeviceptr p;

	start(0);
	pool = default_pool();
	ok(cuMemAllocAsync(&p, 1, NULL));
	ok(cuMemFreeAsync(p, NULL));
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 32 * MIB);
	ok(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 0);
	set_threshold(pool, UINT64_MAX);
	ok(cuMemAllocAsync(&p, 1, NULL));
	ok(cuMemFreeAsync(p, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 32 * MIB);
	ok(cuMemPoolTrimTo(pool, 3 * MIB));		/* not below it, in steps of 32 MiB */
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 32 * MIB);
	ok(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(fakecuda_pool_reserved_bytes(0), 0);
}
END_TEST

START_TEST(reuse_in_the_same_stream)
{
	CUdeviceptr p, q;
	CUstream s;

	start(0);
	s = stream();
	ok(launch(function("spin"), s, NULL));
	ok(cuMemAllocAsync(&p, MIB, s));
	ok(cuMemFreeAsync(p, s));
	ok(cuMemAllocAsync(&q, MIB, s));
	ck_assert_uint_eq(p, q);
	ck_assert_uint_eq(fakecuda_now(), 0);
}
END_TEST

START_TEST(no_reuse_in_an_unordered_stream)
{
	CUdeviceptr p, q, r;
	CUstream a, b;
	CUevent e;

	start(0);
	a = stream();
	b = stream();
	ok(cuEventCreate(&e, 0));
	ok(cuMemAllocAsync(&p, MIB, a));
	ok(launch(function("spin"), a, NULL));
	ok(cuMemFreeAsync(p, a));
	ok(cuMemAllocAsync(&q, MIB, b));
	ck_assert_uint_ne(p, q);
	ok(cuEventRecord(e, a));
	ok(cuStreamWaitEvent(b, e, 0));
	ok(cuMemAllocAsync(&r, MIB, b));		/* ordered now */
	ck_assert_uint_eq(p, r);
	ck_assert_uint_eq(fakecuda_now(), 0);
}
END_TEST

START_TEST(reuse_flags)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;
	CUstream a, b;
	CUevent e;

	start(0);
	pool = default_pool();
	a = stream();
	b = stream();
	ok(cuEventCreate(&e, 0));
	set_flag(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
	set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
	ok(cuMemAllocAsync(&p, MIB, a));
	ok(launch(function("spin"), a, NULL));
	ok(cuMemFreeAsync(p, a));
	ok(cuEventRecord(e, a));
	ok(cuStreamWaitEvent(b, e, 0));
	ok(cuMemAllocAsync(&q, MIB, b));
	ck_assert_uint_ne(p, q);
	ok(cuMemFreeAsync(q, b));
	fakecuda_advance(2 * SPIN_NS);
	ok(cuMemAllocAsync(&q, MIB, b));		/* its own, not the complete one of a */
	ck_assert_uint_ne(p, q);
	ok(cuMemFreeAsync(q, b));
	ok(cuMemAllocAsync(&q, 31 * MIB, a));
	set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
	ok(cuMemAllocAsync(&q, MIB, b));
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

/* When the device is full, a stream is made to wait for what another one has freed. */
START_TEST(internal_dependencies)
{
	CUmemoryPool pool;
	CUdeviceptr p, q;
	CUfunction spin;
	CUstream a, b;

	setenv("FAKECUDA_CAPACITY", "66M", 1);	/* 2 of them for the module's variables */
	start(0);
	spin = function("spin");
	pool = default_pool();
	a = stream();
	b = stream();
	ok(cuMemAllocAsync(&p, 64 * MIB, a));
	ok(launch(spin, a, NULL));
	ok(cuMemFreeAsync(p, a));
	set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
	fails(cuMemAllocAsync(&q, 10 * MIB, b), CUDA_ERROR_OUT_OF_MEMORY);
	set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
	ok(cuMemAllocAsync(&q, 10 * MIB, b));
	ck_assert_uint_eq(fakecuda_now(), 0);
	ok(cuStreamSynchronize(b));
	ck_assert_uint_eq(fakecuda_now(), SPIN_NS);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

START_TEST(either_free_takes_either_kind)
{
	CUdeviceptr p, q;
	CUfunction spin;
	CUstream s;
	size_t before;

	start(0);
	s = stream();
	spin = function("spin");
	before = fakecuda_charged_bytes(0);
	ok(cuMemAlloc(&p, 3 * MIB));
	ok(cuMemAllocAsync(&q, 3 * MIB, s));
	ok(launch(spin, s, NULL));
	ok(cuMemFree(q));				/* does not wait */
	ck_assert_uint_eq(fakecuda_now(), 0);
	ok(cuMemFreeAsync(p, s));			/* in its turn */
	fails(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	ck_assert_uint_eq(fakecuda_charged_bytes(0) - before, 32 * MIB + 4 * MIB);
	ok(cuStreamSynchronize(s));
	ck_assert_uint_eq(fakecuda_charged_bytes(0), before);
}
END_TEST

START_TEST(the_current_pool)
{
	CUmemoryPool pool, current;
	CUdeviceptr p;

	start(0);
	pool = new_pool(0);
	ok(cuDeviceGetMemPool(&current, 0));
	ck_assert_ptr_eq(current, default_pool());
	ok(cuDeviceSetMemPool(0, pool));
	ok(cuDeviceGetMemPool(&current, 0));
	ck_assert_ptr_eq(current, pool);
	ok(cuMemAllocAsync(&p, 600, NULL));
	ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 600);
	ok(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	ck_assert_ptr_eq(current, pool);
	ok(cuMemPoolDestroy(pool));		/* goes with its last block */
	ok(cuDeviceGetMemPool(&current, 0));
	ck_assert_ptr_eq(current, default_pool());
	fails(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_POOL), 600);
	ok(cuMemFreeAsync(p, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	fails(cuMemPoolDestroy(default_pool()), CUDA_ERROR_INVALID_VALUE);
	fails(cuDeviceSetMemPool(1, default_pool()), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(peer_access)
{
	CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAccess_flags flags;
	CUmemoryPool pool;

	start(0);
	pool = new_pool(0);
	ok(cuMemPoolGetAccess(&flags, pool, &desc.location));
	ck_assert_int_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	ok(cuMemPoolSetAccess(pool, &desc, 1));
	ok(cuMemPoolGetAccess(&flags, pool, &desc.location));
	ck_assert_int_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	desc.location.id = 0;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	fails(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(limits)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .maxSize = 40 * MIB,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemoryPool pool;
	CUdeviceptr p;

	start(0);
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&p, 30 * MIB, pool, NULL));
	fails(cuMemAllocFromPoolAsync(&p, 30 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAllocFromPoolAsync(&p, 2 * MIB, pool, NULL));
}
END_TEST

START_TEST(host_pools_are_host_memory)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_HOST },
	};
	CUmemoryPool pool;
	CUdeviceptr p;

	start(0);
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&p, 1000, pool, NULL));
	memset((void *)(uintptr_t)p, 1, 1000);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 1000);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	ok(cuMemFreeAsync(p, NULL));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 0);
}
END_TEST

/* Random traffic on several streams, the structures checked at every step. */
START_TEST(random_traffic)
{
	CUdeviceptr live[64] = { 0 };
	size_t size[64], total = 0;
	unsigned int seed = 1;
	CUstream s[3];
	CUfunction nop;

	setenv("FAKECUDA_CAPACITY", "256M", 1);
	start(0);
	nop = function("nop");
	for (int i = 0; i < 3; i++)
		s[i] = stream();
	for (int step = 0; step < 20000; step++) {
		int i = rand_r(&seed) % 64;
		CUstream where = s[rand_r(&seed) % 3];

		if (live[i]) {
			ok(cuMemFreeAsync(live[i], where));
			total -= size[i];
			live[i] = 0;
		} else {
			size[i] = (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 100000 : 8 * MIB);
			if (cuMemAllocAsync(&live[i], size[i], where))
				live[i] = 0;
			else
				total += size[i];
		}
		if (rand_r(&seed) % 5 == 0)
			ok(launch(nop, where, NULL));
		if (rand_r(&seed) % 50 == 0)
			ok(cuStreamSynchronize(where));
		ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_POOL), total);
		if (step % 16 == 0)
			ck_assert_int_eq(fakecuda_check(), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pools");
	TCase *tc = new_case(suite, "pools");

	tcase_add_test(tc, nothing_is_null);
	tcase_add_test(tc, bytes_are_counted);
	tcase_add_test(tc, threshold_takes_effect_at_synchronise);
	tcase_add_test(tc, reuse_in_the_same_stream);
	tcase_add_test(tc, no_reuse_in_an_unordered_stream);
	tcase_add_test(tc, reuse_flags);
	tcase_add_test(tc, internal_dependencies);
	tcase_add_test(tc, either_free_takes_either_kind);
	tcase_add_test(tc, the_current_pool);
	tcase_add_test(tc, peer_access);
	tcase_add_test(tc, limits);
	tcase_add_test(tc, host_pools_are_host_memory);
	tcase_add_test(tc, random_traffic);
	return run_suite(suite);
}
