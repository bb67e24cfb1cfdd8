/*
 * Memory in pages (expandable_segments:True) from several threads at once, on a device that has little of it: pages move
 * from one to the other while streams capture, contexts with pages of their own come and end, what is idle goes back, and
 * somebody looks. Each thread has memory in no order, in that of its own stream, and in that of one that all have. On
 * the fake driver.
 */
#include <pthread.h>

#include "allocator/lock.h"
#include "allocator/pages_heap.h"
#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "preload/cache/cache_pages.h"
#include "recorder/journal/recorder.h"
#include "recorder/read/copy.h"
#include "test/hooked/hooked.h"
#include "test/unit/journal/aux_check.h"

#define THREADS 3u
#define STEPS 250u
#define HELD 5u
#define MIB ((size_t)1 << 20)
#define MOST (45 * MIB)			/* that each thread holds */

static CUcontext context;
static CUstream shared;
static _Atomic(uint32_t) running;
static _Atomic(uint32_t) served;

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

struct held { CUdeviceptr at; size_t bytes; CUstream stream; };

static void take(struct held *held, size_t bytes, CUstream stream)
{
	CUresult result = held->stream ? cuMemAllocAsync(&held->at, bytes, held->stream) : cuMemAlloc_v2(&held->at, bytes);

	ck_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);	/* beside a capture */
	if (result) {
		held->at = 0;
		return;
	}
	held->bytes = bytes;
	served++;
	OK(cuMemsetD8Async(held->at, 1, bytes, held->stream ? held->stream : stream));
}

/* In the order of its own stream, or of another that the work does not come before. */
static void give(struct held *held, bool elsewhere)
{
	if (!held->stream)
		OK(cuMemFree_v2(held->at));
	else if (elsewhere)
		OK(cuStreamSynchronize(held->stream));
	if (held->stream)
		OK(cuMemFreeAsync(held->at, elsewhere ? NULL : held->stream));
	held->at = 0;
}

static void *use(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg + 1;
	struct held held[HELD] = { 0 };
	size_t sum = 0;
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < STEPS; i++) {
		struct held *one = &held[next_random(&random) % HELD];
		size_t bytes = next_random(&random) % 4 ? next_random(&random) % (30 * MIB) + 1 : 5000;

		if (one->at) {
			give(one, next_random(&random) % 8 == 0);
			sum -= one->bytes;
		} else if (sum + bytes <= MOST) {
			CUstream streams[] = { NULL, stream, shared };

			one->stream = streams[next_random(&random) % 3];
			take(one, bytes, stream);
			sum += one->at ? bytes : 0;
		}
	}
	for (unsigned int i = 0; i < HELD; i++)
		if (held[i].at)
			give(&held[i], false);
	OK(cuStreamSynchronize(stream));
	OK(cuStreamDestroy_v2(stream));
	running--;
	return NULL;
}

static void capture(CUstream stream)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuStreamEndCapture(stream, &graph));
	if (graph)
		OK(cuGraphDestroy(graph));
}

static void context_of_pages(void)
{
	struct held held = { 0 };
	CUcontext own;

	OK(cuCtxCreate_v2(&own, 0, 0));
	take(&held, 3 * MIB, NULL);
	if (held.at && running % 2)
		OK(cuMemFree_v2(held.at));
	OK(cuCtxDestroy_v2(own));
	OK(cuCtxSetCurrent(context));
}

static void *disturb(void *arg)
{
	CUstream stream;

	(void)arg;
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; running > 0; i++) {
		switch (i % 4) {
		case 0: capture(stream); break;
		case 1: gm_cache_flush(0); break;
		case 2: context_of_pages(); break;
		default: gm_reuse_look(gm_order_reuse());
		}
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS], other;
	struct gm_copy copy;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("GPUMEM_COMPACTION_TIME", _i ? "0" : "1", 1);
	setenv("FAKECUDA_CAPACITY", "192MiB", 1);
	context = begin();
	OK(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
	running = THREADS;
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, use, (void *)i);
	pthread_create(&other, NULL, disturb, NULL);
	for (unsigned int i = 0; i < 10; i++) {
		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
		ck_assert_uint_eq(copy.damage, 0);
		gm_copy_free(&copy);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(other, NULL);
	ck_assert_uint_gt(served, THREADS * STEPS / 8);
	ck_assert_int_eq(gm_recorder_check(), 0);
	/* Nothing is used any more: each free has been asked about, and all pages go. */
	OK(cuCtxSynchronize());
	gm_cache_flush(0);
	ck_assert_uint_eq(gm_cache_idle_bytes(0), 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static const struct gm_cache_heap *heap(void)
{
	return gm_cache_heap_next(NULL, 0);
}

/* 40 MiB with work on them are freed, in front of others: what comes next does not fit there, and their pages cannot
 * move yet. */
static CUdeviceptr free_busy(CUstream stream)
{
	CUdeviceptr busy, behind;

	OK(cuMemAlloc_v2(&busy, 40 * MIB));
	OK(cuMemAlloc_v2(&behind, 2 * MIB));
	OK(cuMemsetD8Async(busy, 1, 40 * MIB, stream));
	OK(cuMemFree_v2(busy));
	return behind;
}

/* A request that would take more than is live waits for the GPU, and gets the pages. */
START_TEST(test_waits_before_growth)
{
	CUdeviceptr behind, next;
	CUstream stream;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("FAKECUDA_KERNEL_NS", "300000", 1);	/* some queries */
	begin();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	behind = free_busy(stream);
	OK(cuMemAlloc_v2(&next, 60 * MIB));
	ck_assert_uint_le(heap()->segments, 66 * MIB);
	ck_assert(!heap()->moving.impatient);
	OK(cuMemFree_v2(behind));
	OK(cuMemFree_v2(next));
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* In pages, with a flag that work may wait for. */
static CUdeviceptr begin_with_flag(void)
{
	CUdeviceptr flag;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("FAKECUDA_HANG", "off", 1);
	begin();
	OK(cuMemAlloc_v2(&flag, 4));
	ck_assert_int_eq(fakecuda_write(flag, &(const uint32_t){ 0 }, 4), 0);
	return flag;
}

/* Where the GPU waits for what the host does next, the heap grows after a while, and is not kept waiting again. */
START_TEST(test_waits_in_vain_once)
{
	CUdeviceptr flag, behind, next, last;
	CUstream stream;

	flag = begin_with_flag();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	behind = free_busy(stream);
	OK(cuMemAlloc_v2(&next, 60 * MIB));
	ck_assert(heap()->moving.impatient);
	ck_assert_uint_ge(heap()->segments, 102 * MIB);
	OK(cuMemAlloc_v2(&last, 100 * MIB));
	ck_assert_int_eq(fakecuda_write(flag, &(const uint32_t){ 1 }, 4), 0);
	OK(cuMemFree_v2(behind));
	OK(cuMemFree_v2(next));
	OK(cuMemFree_v2(last));
	OK(cuCtxSynchronize());
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

static const struct gm_cache_heap *pool_heap(void)
{
	struct gm_cache_heap *any = gm_cache_heap_next(NULL, 0);

	while (any && any->kind != GM_KIND_POOL)
		any = gm_cache_heap_next(any, 0);
	return any;
}

/* What a stream of the pool has got past is not waited for, whatever another stream does. */
START_TEST(test_waits_for_no_other_stream)
{
	CUdeviceptr flag, busy, behind, next;
	cuuint64_t keep = UINT64_MAX;
	CUstream stream, other, own;
	CUmemoryPool pool;

	flag = begin_with_flag();
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&busy, 40 * MIB, stream));
	OK(cuMemAllocAsync(&behind, 2 * MIB, stream));
	OK(cuMemsetD8Async(busy, 1, 40 * MIB, stream));
	OK(cuMemFreeAsync(busy, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuStreamWaitValue32_v2(other, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemAllocAsync(&next, 60 * MIB, own));
	ck_assert(!pool_heap()->moving.impatient);
	ck_assert_uint_le(pool_heap()->segments, 66 * MIB);
	ck_assert_int_eq(fakecuda_write(flag, &(const uint32_t){ 1 }, 4), 0);
	OK(cuMemFreeAsync(behind, stream));
	OK(cuMemFreeAsync(next, own));
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static CUdeviceptr step, freed_late;	/* @step: a word on the device that work waits for */
static CUstream freed_on;

static void *free_late(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(context));
	OK(cuStreamWaitValue32_v2(freed_on, step, 2, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuMemFreeAsync(freed_late, freed_on));
	freed_late = 0;
	return NULL;
}

/* When the request's stream waits for what the other stream freed, another thread frees a block there. */
bool __real_gm_order_behind_stream(uint64_t key, CUstream own, bool may_record);
bool __wrap_gm_order_behind_stream(uint64_t key, CUstream own, bool may_record);
bool __wrap_gm_order_behind_stream(uint64_t key, CUstream own, bool may_record)
{
	bool waits = __real_gm_order_behind_stream(key, own, may_record);
	pthread_t thread;

	if (waits && freed_late) {
		pthread_create(&thread, NULL, free_late, NULL);
		pthread_join(thread, NULL);
	}
	return waits;
}

/* A request on another stream takes over what a stream freed, and waits on the GPU for that free. A block that the
 * stream frees meanwhile is not part of it: the next request waits for the later free, too. */
START_TEST(test_freed_while_taken_over)
{
	CUdeviceptr first, between, next, last;
	cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUstream own;

	setenv("FAKECUDA_CAPACITY", "192MiB", 1);
	step = begin_with_flag();
	OK(cuCtxGetCurrent(&context));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuStreamCreate(&freed_on, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&first, 80 * MIB, freed_on));
	OK(cuMemAllocAsync(&between, 2 * MIB, freed_on));	/* else the two free blocks become one */
	OK(cuMemAllocAsync(&last, 80 * MIB, freed_on));
	OK(cuStreamWaitValue32_v2(freed_on, step, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuMemFreeAsync(first, freed_on));
	freed_late = last;
	OK(cuMemAllocAsync(&next, 80 * MIB, own));
	ck_assert_uint_eq(freed_late, 0);
	ck_assert_int_eq(cuStreamQuery(own), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(fakecuda_write(step, &(const uint32_t){ 1 }, 4), 0);
	OK(cuStreamSynchronize(own));
	OK(cuMemAllocAsync(&last, 80 * MIB, own));
	ck_assert_int_eq(cuStreamQuery(own), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(fakecuda_write(step, &(const uint32_t){ 2 }, 4), 0);
	OK(cuStreamSynchronize(own));
	ck_assert_int_eq(gm_recorder_check(), 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static __typeof__(cuEventQuery) *query_of_driver;
static CUdeviceptr given;

static void *free_given(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(context));
	OK(cuMemFree_v2(given));
	given = 0;
	return NULL;
}

/* Once the request has some of the pages that it needs, another thread frees a block that serves it. */
static CUresult free_meanwhile(CUevent event)
{
	pthread_t thread;

	if (given && gm_pages(heap()->core)->spare) {
		pthread_create(&thread, NULL, free_given, NULL);
		pthread_join(thread, NULL);
	}
	return query_of_driver(event);
}

/* The pages that it does not need any more go back where the driver lacks them. */
START_TEST(test_spare_is_not_lost)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr early, first, busy, next, large;
	CUstream stream;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("FAKECUDA_CAPACITY", "192MiB", 1);
	setenv("FAKECUDA_KERNEL_NS", "300000", 1);	/* some queries */
	context = begin();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&early, 10 * MIB));
	OK(cuMemAlloc_v2(&first, 2 * MIB));
	OK(cuMemAlloc_v2(&busy, 40 * MIB));
	OK(cuMemAlloc_v2(&next, 2 * MIB));
	OK(cuMemAlloc_v2(&given, 60 * MIB));
	OK(cuMemAlloc_v2(&next, 2 * MIB));
	OK(cuMemFree_v2(early));
	gm_reuse_look(gm_order_reuse());
	OK(cuMemsetD8Async(busy, 1, 40 * MIB, stream));
	OK(cuMemFree_v2(busy));
	query_of_driver = gm_real.cuEventQuery;
	gm_real.cuEventQuery = free_meanwhile;
	OK(cuMemAlloc_v2(&large, 60 * MIB));
	gm_real.cuEventQuery = query_of_driver;
	ck_assert_uint_eq(given, 0);
	OK(cuMemAlloc_v2(&early, 40 * MIB));
	ck_assert_uint_eq(heap()->core->idle, 0);
	ck_assert_uint_eq(gm_cache_idle_bytes(0), 10 * MIB);
	OK(cuMemCreate(&handle, 80 * MIB, &prop, 0));
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static unsigned int asked;
static CUresult (*real_alloc)(CUdeviceptr *, size_t);
static CUresult (*real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);

static CUresult count_alloc(CUdeviceptr *ret, size_t bytes)
{
	asked++;
	return real_alloc(ret, bytes);
}

static CUresult count_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
			      unsigned long long flags)
{
	CUresult result = real_create(ret, bytes, prop, flags);

	asked += result != CUDA_SUCCESS;
	return result;
}

/* What cannot be had the driver is asked for no more often than it has to be, since a refusal takes it milliseconds: at two
 * growths of the heap, in segments or (_i) in pages, before and after idle memory went back, with another try each, and
 * once for just the request. */
START_TEST(test_refusals_are_few)
{
	CUdeviceptr p;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", _i ? "True" : "False", 1);
	setenv("FAKECUDA_CAPACITY", "64MiB", 1);
	setenv("FAKECUDA_OTHER_BYTES", "32MiB", 1);	/* else it is known before that there is too little */
	begin();
	OK(cuMemAlloc_v2(&p, MIB));		/* there is a heap */
	real_alloc = gm_real.cuMemAlloc_v2;
	real_create = gm_real.cuMemCreate;
	gm_real.cuMemAlloc_v2 = count_alloc;
	gm_real.cuMemCreate = count_create;
	ck_assert_int_eq((int)cuMemAlloc_v2(&p, 40 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(asked, 9);
}
END_TEST

/* 64 MiB are live in 16 blocks, half of which go, and then there is one of 24 MiB: its pages move, or (_i) moving has taken
 * too much time and there are pages more, up to a quarter of what was live; or nothing is to spare of the device (2) or of
 * a limit (3), or (4) would be then. */
START_TEST(test_moves_as_time_allows)
{
	static const char *const others[] = { "0", "0", "52MiB", "0", "42MiB" };	/* of 128 MiB, where it is not 0 */
	uint64_t most[] = { 67 * MIB, 82 * MIB, 67 * MIB, 67 * MIB, 67 * MIB };
	CUdeviceptr p[16], first, next, last;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("GPUMEM_COMPACTION_TIME", _i ? "0" : "1", 1);
	setenv("GPUMEM_MEMORY_LIMIT", _i == 3 ? "74MiB" : "unlimited", 1);
	setenv("FAKECUDA_CAPACITY", others[_i][1] ? "128MiB" : "1GiB", 1);
	setenv("FAKECUDA_OTHER_BYTES", others[_i], 1);
	begin();
	for (unsigned int i = 0; i < 16; i++)
		OK(cuMemAlloc_v2(&p[i], 4 * MIB));
	for (unsigned int i = 0; i < 16; i += 2)
		OK(cuMemFree_v2(p[i]));
	OK(cuMemAlloc_v2(&first, 8 * MIB));	/* until then nothing has moved, and taken time */
	ck_assert_uint_le(heap()->segments, 67 * MIB);
	ck_assert_uint_gt(heap()->moving.spent_ns, 0);
	OK(cuMemAlloc_v2(&next, 8 * MIB));
	ck_assert_uint_le(heap()->segments, most[_i]);
	ck_assert_int_eq(heap()->segments > 67 * MIB, _i == 1);
	OK(cuMemAlloc_v2(&last, 16 * MIB));	/* no more than that */
	ck_assert_uint_le(heap()->segments, most[_i]);
	ck_assert_int_eq(gm_recorder_check(), 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* ---- handles of several pages ---- */

#define CALLS 5u
static __typeof__(cuMemMap) *real_map;
static __typeof__(cuMemSetAccess) *real_access;
static __typeof__(cuMemUnmap) *real_unmap;
static __typeof__(cuMemRelease) *real_release;
static unsigned int created, until[CALLS];	/* @until: such calls that pass before one fails; 0: all pass */

static bool fails(unsigned int call)
{
	return until[call] && !--until[call];
}

static CUresult fail_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
			    unsigned long long flags)
{
	created++;
	return fails(0) ? CUDA_ERROR_OUT_OF_MEMORY : real_create(ret, bytes, prop, flags);
}

static CUresult fail_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
			 unsigned long long flags)
{
	return fails(1) ? CUDA_ERROR_OUT_OF_MEMORY : real_map(at, bytes, offset, handle, flags);
}

static CUresult fail_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *who, size_t count)
{
	return fails(2) ? CUDA_ERROR_OUT_OF_MEMORY : real_access(at, bytes, who, count);
}

static CUresult fail_unmap(CUdeviceptr at, size_t bytes)
{
	return fails(3) ? CUDA_ERROR_INVALID_VALUE : real_unmap(at, bytes);
}

static CUresult fail_release(CUmemGenericAllocationHandle handle)
{
	return fails(4) ? CUDA_ERROR_INVALID_VALUE : real_release(handle);
}

static void begin_with_calls(const char *compaction_time)
{
	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("GPUMEM_COMPACTION_TIME", compaction_time, 1);
	setenv("FAKECUDA_CAPACITY", "140GiB", 1);
	begin();
	real_create = gm_real.cuMemCreate;
	real_map = gm_real.cuMemMap;
	real_access = gm_real.cuMemSetAccess;
	real_unmap = gm_real.cuMemUnmap;
	real_release = gm_real.cuMemRelease;
	gm_real.cuMemCreate = fail_create;
	gm_real.cuMemMap = fail_map;
	gm_real.cuMemSetAccess = fail_access;
	gm_real.cuMemUnmap = fail_unmap;
	gm_real.cuMemRelease = fail_release;
}

/* 1.5 GiB in blocks of 128 MiB: where pages move whatever it takes (_i) each is a handle. Else what a heap of 256 MiB
 * gets is in handles of 4 MiB, of 512 MiB in those of 8, of 1 GiB in those of 16; smaller ones that are freed serve a
 * larger block as such. */
START_TEST(test_handles_of_several_pages)
{
	CUdeviceptr p[12], next;

	begin_with_calls(_i ? "1" : "0.9");
	for (unsigned int i = 0; i < 12; i++)
		OK(cuMemAlloc_v2(&p[i], 128 * MIB));
	ck_assert_uint_eq(created, _i ? 12 * 64 : 64 + 2 * 32 + 4 * 16 + 5 * 8);
	for (unsigned int i = 0; i < 6; i += 2)
		OK(cuMemFree_v2(p[i]));
	created = 0;
	OK(cuMemAlloc_v2(&next, 300 * MIB));
	ck_assert_uint_le(heap()->segments, 12 * 128 * MIB + 24 * MIB + 2 * MIB);
	ck_assert_uint_ge(created, _i ? 0 : 300 / 16);
	ck_assert_uint_le(created, _i ? 13 : 300 / 16 + 2);
	ck_assert_int_eq(gm_recorder_check(), 0);
	for (unsigned int i = 0; i < 12; i++)
		if (i >= 6 || i % 2)
			OK(cuMemFree_v2(p[i]));
	OK(cuMemFree_v2(next));
	gm_cache_flush(0);
	ck_assert_uint_eq(heap()->segments, 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* What a pool gives back at each synchronisation is in handles of 16 MiB; what it keeps (_i) is in smaller ones. */
START_TEST(test_handles_of_a_pool)
{
	cuuint64_t keep = UINT64_MAX;
	CUdeviceptr p[4];
	CUmemoryPool pool;
	CUstream stream;

	begin_with_calls("0.9");
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	if (_i)
		OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int round = 0; round < 3; round++) {
		created = 0;
		for (unsigned int i = 0; i < 4; i++)
			OK(cuMemAllocAsync(&p[i], 64 * MIB, stream));
		ck_assert_uint_eq(created, !_i ? 4 * 4 : round ? 0 : 3 * 32 + 16);
		for (unsigned int i = 0; i < 4; i++)
			OK(cuMemFreeAsync(p[i], stream));
		OK(cuStreamSynchronize(stream));
		ck_assert_uint_eq(pool_heap()->segments, _i ? 256 * MIB : 0);
	}
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* What is idle above the release threshold, or above what cuMemPoolTrimTo keeps, goes back; the rest stays. */
START_TEST(test_threshold_of_a_pool)
{
	cuuint64_t keep = 64 * MIB;
	CUmemoryPool pool;
	CUdeviceptr p[4];
	CUstream stream;

	begin_with_calls("0.9");
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int i = 0; i < 4; i++)
		OK(cuMemAllocAsync(&p[i], 64 * MIB, stream));
	for (unsigned int i = 0; i < 4; i++)
		OK(cuMemFreeAsync(p[i], stream));
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_ge(pool_heap()->segments, keep);
	ck_assert_uint_lt(pool_heap()->segments, keep + 16 * MIB);
	OK(cuMemPoolTrimTo(pool, 20 * MIB));
	ck_assert_uint_ge(pool_heap()->segments, 20 * MIB);
	ck_assert_uint_lt(pool_heap()->segments, 20 * MIB + 16 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(pool_heap()->segments, 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* The n-th call of a kind fails, for several n: the request is served, or refused, and everything comes back. */
START_TEST(test_failing_calls)
{
	static const unsigned int which[] = { 1, 2, 3, 20, 33, 50, 64, 65, 90, 130 };

	begin_with_calls("0.9");
	for (unsigned int n = 0; n < sizeof(which) / sizeof(which[0]); n++) {
		CUdeviceptr p[12] = { 0 }, next = 0;

		for (unsigned int i = 0; i < 12; i++)
			OK(cuMemAlloc_v2(&p[i], 128 * MIB));
		for (unsigned int i = 1; i < 12; i += 2)
			OK(cuMemFree_v2(p[i]));
		until[_i] = which[n];
		if (!cuMemAlloc_v2(&next, 300 * MIB))
			OK(cuMemsetD2D8_v2(next, 2 * MIB, 1, 1, 150));	/* in each page */
		until[_i] = 0;
		ck_assert_int_eq(gm_recorder_check(), 0);
		for (unsigned int i = 0; i < 12; i += 2)
			OK(cuMemFree_v2(p[i]));
		if (next)
			OK(cuMemFree_v2(next));
		OK(cuMemAlloc_v2(&next, 1536 * MIB));	/* what stayed mapped is found */
		OK(cuMemsetD2D8_v2(next, 2 * MIB, 1, 1, 768));
		OK(cuMemFree_v2(next));
		OK(cuCtxSynchronize());
		gm_cache_flush(0);
		ck_assert_uint_eq(heap()->segments, 0);
	}
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* ---- peers ---- */

static unsigned long long access_of(CUdeviceptr p, int device)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
	unsigned long long flags = 0;

	OK(cuMemGetAccess(&flags, &location, p));
	return flags;
}

static void begin_with_devices(const char *count)
{
	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", "True", 1);
	setenv("FAKECUDA_DEVICES", count, 1);
	setenv("FAKECUDA_CAPACITY", "2GiB", 1);		/* the race detector leaves few addresses */
	context = begin();
}

/* A peer's context that the runtime has made, and no call of ours has met yet. */
START_TEST(test_peer_that_was_not_met)
{
	CUcontext peer;
	CUdeviceptr p;

	begin_with_devices("2");
	OK(GM_REAL(cuDevicePrimaryCtxRetain)(&peer, 1));
	if (_i)					/* there is memory already */
		OK(cuMemAlloc_v2(&p, MIB));
	OK(cuCtxEnablePeerAccess(peer, 0));
	OK(cuCtxSetCurrent(peer));
	OK(cuMemAlloc_v2(&p, 4 * MIB));
	ck_assert_uint_eq(access_of(p, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_uint_eq(access_of(p, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* A plain copy between the memory of two devices gives them access to each other's pages: without access the driver
 * refuses the copy (seen on two H100s, not by the fake driver). The copy runs on the source's device, or on the
 * destination's. */
START_TEST(test_copies_without_peer_access)
{
	CUdeviceptr from, to;
	CUcontext other;
	unsigned int word = 0x5a5a5a5a, got = 0;

	begin_with_devices("2");
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuMemAlloc_v2(&from, MIB));
	OK(cuMemsetD32_v2(from, word, MIB / 4));
	OK(cuCtxSetCurrent(other));
	OK(cuMemAlloc_v2(&to, MIB));
	OK(cuCtxSetCurrent(_i & 1 ? context : other));
	if (_i & 2)
		OK(cuMemcpyDtoD_v2(to, from, MIB));
	else
		OK(cuMemcpyAsync(to, from, MIB, NULL));
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(access_of(from, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_uint_eq(access_of(to, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuCtxSetCurrent(other));
	OK(cuMemcpyDtoH_v2(&got, to + MIB - 4, 4));
	ck_assert_uint_eq(got, word);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static struct {
	CUdeviceptr from, to;
	CUcontext current;
	pthread_t thread;
	unsigned long long access;
	_Atomic(bool) begun, ended;
} second;

static void *copy_too(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(second.current));
	OK(cuMemcpyAsync(second.to, second.from, MIB, NULL));
	second.access = access_of(second.from, 1) & access_of(second.to, 0);
	second.ended = true;
	return NULL;
}

/* Before the first copy's access is there, another thread copies. */
static CUresult copy_before_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *who, size_t count)
{
	struct timespec nap = { .tv_nsec = 1000000 };

	if (count > 1 && !second.begun) {
		second.begun = true;
		ck_assert_int_eq(pthread_create(&second.thread, NULL, copy_too, NULL), 0);
		for (int i = 0; i < 100 && !second.ended; i++)
			nanosleep(&nap, NULL);
	}
	return real_access(at, bytes, who, count);
}

/* Two threads make the first copies at once: neither copy passes before the devices have access. */
START_TEST(test_first_copies_at_once)
{
	CUcontext other;

	begin_with_devices("2");
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuMemAlloc_v2(&second.from, MIB));
	OK(cuCtxSetCurrent(other));
	OK(cuMemAlloc_v2(&second.to, MIB));
	second.current = other;
	real_access = gm_real.cuMemSetAccess;
	gm_real.cuMemSetAccess = copy_before_access;
	OK(cuMemcpyAsync(second.to, second.from, MIB, NULL));
	ck_assert(second.begun);
	pthread_join(second.thread, NULL);
	ck_assert_uint_eq(second.access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

static CUresult refuse_device_2(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *who, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (who[i].location.id == 2)
			return CUDA_ERROR_INVALID_DEVICE;
	return real_access(at, bytes, who, count);
}

/* The driver does not give access to one of several peers: the others have it. */
START_TEST(test_peer_that_is_refused)
{
	CUcontext peer;
	CUdeviceptr p;

	begin_with_devices("4");
	real_access = gm_real.cuMemSetAccess;
	gm_real.cuMemSetAccess = refuse_device_2;
	for (int i = 1; i < 4; i++) {
		OK(cuDevicePrimaryCtxRetain(&peer, i));
		OK(cuCtxSetCurrent(peer));
		OK(cuCtxEnablePeerAccess(context, 0));
	}
	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc_v2(&p, 4 * MIB));
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(access_of(p, i), i == 2 ? CU_MEM_ACCESS_FLAGS_PROT_NONE
							  : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}
END_TEST

static struct { CUdeviceptr at[8192]; unsigned int count; uint32_t random; } many;

static bool take_one(size_t bytes)
{
	CUresult result = cuMemAlloc_v2(&many.at[many.count], bytes);

	ck_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	many.count += !result;
	return !result;
}

static void take_some(unsigned int count, size_t most)
{
	for (unsigned int i = 0; i < count; i++)
		take_one(next_random(&many.random) % most + 8);
}

static void take_all(size_t largest)
{
	for (size_t bytes = largest; bytes >= 2 * MIB; bytes /= 2)
		while (take_one(bytes))
			continue;
}

static void keep_some(unsigned int count)
{
	while (many.count > count) {
		unsigned int n = next_random(&many.random) % many.count;

		OK(cuMemFree_v2(many.at[n]));
		many.at[n] = many.at[--many.count];
	}
}

/* A device of 140 GiB is filled in pieces of all sizes, which are freed in no order: then one block can have nearly all of
 * it, although free blocks lie beside one another that one transaction could not join. */
START_TEST(test_all_of_the_device)
{
	begin_with_calls(_i ? "1" : "0.005");
	many.random = 42;
	take_some(400, 200 * MIB);
	keep_some(100);
	take_some(200, 100 * MIB);
	take_all(1024 * MIB);
	keep_some(50);
	take_all(4096 * MIB);
	keep_some(20);
	take_some(100, 64 * MIB);
	keep_some(0);
	ck_assert(take_one((size_t)133 << 30));
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* Blocks of all sizes come and go on a device that is nearly full of live ones: handles that were made when it was not
 * leave no memory that is idle and can go nowhere. */
START_TEST(test_nearly_all_live)
{
	static size_t sizes[8192];
	size_t live = 0, total, bytes;

	begin_with_calls("0.005");
	OK(cuDeviceTotalMem_v2(&total, 0));
	many.random = 1;
	for (unsigned int i = 0; i < 25000; i++) {
		bytes = next_random(&many.random) % (16 * MIB) * 4 + 512;	/* it has 24 bits */
		while (live + bytes > total / 100 * 95) {
			unsigned int n = next_random(&many.random) % many.count;

			OK(cuMemFree_v2(many.at[n]));
			live -= sizes[n];
			many.at[n] = many.at[--many.count];
			sizes[n] = sizes[many.count];
		}
		sizes[many.count] = bytes;
		live += bytes;
		ck_assert(take_one(bytes));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *tc = tcase_create("pages");

	setenv("GPUMEM_COMPACTION_TIME", "1", 1);	/* however busy the machine is */
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_threads, 0, 2);
	tcase_add_loop_test(tc, test_refusals_are_few, 0, 2);
	tcase_add_loop_test(tc, test_peer_that_was_not_met, 0, 2);
	tcase_add_test(tc, test_peer_that_is_refused);
	tcase_add_loop_test(tc, test_copies_without_peer_access, 0, 4);
	tcase_add_test(tc, test_first_copies_at_once);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* A sanitizer's dlsym stands before ours, so that work may pass unseen: then what is freed waits in limbo. */
	tcase_add_test(tc, test_waits_before_growth);
	tcase_add_test(tc, test_waits_in_vain_once);
	tcase_add_test(tc, test_waits_for_no_other_stream);
	tcase_add_test(tc, test_freed_while_taken_over);
	tcase_add_test(tc, test_spare_is_not_lost);
	tcase_add_loop_test(tc, test_moves_as_time_allows, 0, 5);
	tcase_add_loop_test(tc, test_handles_of_several_pages, 0, 2);
	tcase_add_loop_test(tc, test_handles_of_a_pool, 0, 2);
	tcase_add_test(tc, test_threshold_of_a_pool);
	tcase_add_loop_test(tc, test_failing_calls, 0, CALLS);
	tcase_add_loop_test(tc, test_all_of_the_device, 0, 2);
	tcase_add_test(tc, test_nearly_all_live);
#else
	(void)test_waits_before_growth;
	(void)test_waits_in_vain_once;
	(void)test_waits_for_no_other_stream;
	(void)test_freed_while_taken_over;
	(void)test_spare_is_not_lost;
	(void)test_moves_as_time_allows;
	(void)test_handles_of_several_pages;
	(void)test_handles_of_a_pool;
	(void)test_threshold_of_a_pool;
	(void)test_failing_calls;
	(void)test_all_of_the_device;
	(void)test_nearly_all_live;
#endif
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
