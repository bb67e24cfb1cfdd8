/*
 * The cache's heaps and their records: the context that a heap works in, heaps that cannot be made, tables without a
 * record left, memory that PyTorch's interface gets from the driver. On the fake driver, through the hooks.
 */
#include <sys/mman.h>

#include "allocator/free_set.h"
#include "preload/api/gpumem.h"
#include "preload/cache/cache.h"
#include "preload/cache/cache_heap.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "recorder/read/copy.h"
#include "test/hooked/hooked.h"
#include "test/unit/journal/aux_check.h"

#define MIB ((size_t)1 << 20)

static void configure(bool pages, const char *capacity)
{
	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	setenv("GPUMEM_EXPANDABLE_SEGMENTS", pages ? "True" : "False", 1);
	setenv("FAKECUDA_CAPACITY", capacity, 1);
}

static CUcontext start(bool pages, const char *capacity)
{
	configure(pages, capacity);
	return begin();
}

static size_t free_bytes(void)
{
	size_t free = 0, total;

	OK(cuMemGetInfo_v2(&free, &total));
	return free;
}

/* ---- green contexts ---- */

static CUcontext green_context(CUgreenCtx *ret_green)
{
	CUdevResource all, part;
	unsigned int groups = 1;
	CUdevResourceDesc desc;
	CUcontext context;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8));
	OK(cuDevResourceGenerateDesc(&desc, &part, 1));
	OK(cuGreenCtxCreate(ret_green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuCtxFromGreenCtx(&context, *ret_green));
	return context;
}

static CUcontext gone;
static CUstream made[16];
static unsigned int made_count, uses;
static __typeof__(cuCtxPushCurrent_v2) *real_push;
static __typeof__(cuMemFreeAsync) *real_free;
static __typeof__(cuStreamCreate) *real_create;

static CUresult watch_push(CUcontext context)
{
	uses += context == gone;
	return real_push(context);
}

/* Which streams are made while the green context is current? */
static CUresult watch_create(CUstream *ret, unsigned int flags)
{
	CUresult result = real_create(ret, flags);
	CUcontext current = NULL;

	OK(GM_REAL(cuCtxGetCurrent)(&current));
	if (!result && current == gone && made_count < 16)
		made[made_count++] = *ret;
	return result;
}

static CUresult watch_free(CUdeviceptr ptr, CUstream stream)
{
	for (unsigned int i = 0; i < made_count; i++)
		uses += made[i] == stream;
	return real_free(ptr, stream);
}

/* A heap's first memory is asked for in a green context, which ends: the heap works in the primary context, and nothing
 * of the green one is given to the driver. The primary one was met before (0, 1), or only the green one was (2, 3). */
START_TEST(test_green_context)
{
	CUcontext primary, said = NULL;
	CUdeviceptr p, q;
	CUgreenCtx green;
	CUstream stream;

	setenv("GPUMEM_FILL", "zero", 1);		/* on a stream of ours */
	configure(_i % 2, "1GiB");
	ck_assert(gm_real_find());
	OK(cuInit(0));
	OK(_i / 2 ? GM_REAL(cuDevicePrimaryCtxRetain)(&primary, 0) : cuDevicePrimaryCtxRetain(&primary, 0));
	gone = green_context(&green);
	OK(cuCtxSetCurrent(gone));
	real_push = gm_real.cuCtxPushCurrent_v2;
	real_create = gm_real.cuStreamCreate;
	real_free = gm_real.cuMemFreeAsync;
	gm_real.cuStreamCreate = watch_create;
	OK(cuMemAlloc_v2(&p, 40 * MIB));
	OK(cuMemFree_v2(p));
	OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	OK(cuMemAllocAsync(&q, 40 * MIB, stream));
	OK(cuMemFreeAsync(q, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemAllocAsync(&q, 40 * MIB, NULL));
	OK(cuMemFreeAsync(q, NULL));
	gm_cache_flush(0);
	OK(cuStreamDestroy_v2(stream));
	OK(cuCtxSetCurrent(primary));
	OK(cuMemAlloc_v2(&p, 40 * MIB));
	OK(cuGreenCtxDestroy(green));
	gm_real.cuCtxPushCurrent_v2 = watch_push;
	gm_real.cuMemFreeAsync = watch_free;
	OK(cuPointerGetAttribute(&said, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	ck_assert_ptr_eq(said, primary);
	OK(cuMemAllocAsync(&q, 40 * MIB, NULL));
	OK(cuMemFreeAsync(q, NULL));
	OK(cuMemFree_v2(p));
	OK(cuCtxSynchronize());
	gm_cache_flush(0);
	ck_assert_uint_eq(gm_cache_idle_bytes(0), 0);
	ck_assert_uint_eq(uses, 0);
}
END_TEST

/* ---- heaps that cannot be made ---- */

/* Atomic, because the library's other threads map memory, too. */
static __typeof__(gm_sys.map) real_map;
static _Atomic(bool) refuses;
static _Atomic(unsigned int) tries;

static void *map_or_refuse(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (!refuses)
		return real_map(at, bytes, protection, flags, fd, offset);
	tries += bytes == gm_region(GM_REGION_BLOCKS)->capacity / sizeof(struct gm_block) * sizeof(struct gm_free_link);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* Then the driver serves, and the cache tries again ever more seldom; once there is memory it serves, too. */
START_TEST(test_heap_cannot_be_made)
{
	CUdeviceptr p[256];

	real_map = gm_sys.map;
	gm_sys.map = map_or_refuse;
	start(false, "1GiB");
	refuses = true;
	for (unsigned int i = 0; i < 256; i++)
		OK(cuMemAlloc_v2(&p[i], MIB));
	refuses = false;
	ck_assert_uint_gt(tries, 2);
	ck_assert_uint_lt(tries, 20);
	ck_assert_ptr_null(gm_cache_heap_next(NULL, 0));
	for (unsigned int i = 0; i < 256; i++)
		OK(cuMemFree_v2(p[i]));
	for (unsigned int i = 0; i < 600 && !gm_cache_heap_next(NULL, 0); i++)
		OK(cuMemAlloc_v2(&p[0], 512));
	ck_assert_ptr_nonnull(gm_cache_heap_next(NULL, 0));
	ck_assert_uint_eq(gm_cache_heap_next(NULL, 0)->number, 1);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* ---- the journal was cut short ---- */

/* Two threads are within cudaMalloc when the tables become empty. The first splits a block, whose size it read before and
 * whose address it reads after: what remains begins at an address that is none, and the second finds that. The driver
 * serves it then. */
START_TEST(test_lost_within_a_call)
{
	CUdeviceptr kept[64], p[256], base;
	struct gm_block was[64];
	uint32_t id[64];
	size_t size;

	setenv("GPUMEM_THREAD_CACHE", _i / 2 ? "yes" : "no", 1);
	setenv("GPUMEM_MEMORY_LIMIT", "32MiB", 1);
	start(_i % 2, "1GiB");
	for (unsigned int i = 0; i < 64; i++)
		OK(cuMemAlloc_v2(&kept[i], 512 + 512 * (i % 7)));
	for (unsigned int i = 0; i < 64; i += 2) {
		id[i] = gm_cache_block(kept[i], &was[i]);
		OK(cuMemFree_v2(kept[i]));
		was[i] = gm_rec.blocks[id[i]];
	}
	ck_assert(gm_recorder_lose(gm_rec.base));	/* and gm_cache_lost() has not been called */
	for (unsigned int i = 0; i < 64; i += 2) {
		was[i].address = 0x800;
		gm_rec.blocks[id[i]] = was[i];
	}
	for (unsigned int i = 0; i < 256; i++) {
		OK(cuMemAlloc_v2(&p[i], 512 << i % 8));
		OK(cuMemGetAddressRange_v2(&base, &size, p[i]));
		ck_assert_uint_eq(base, p[i]);
	}
	for (unsigned int i = 0; i < 256; i++)
		OK(cuMemFree_v2(p[i]));
	OK(cuMemAlloc_v2(&p[0], 64 * MIB));		/* the limit's count is lost, too */
	OK(cuMemFree_v2(p[0]));
	for (unsigned int i = 1; i < 64; i += 2)
		OK(cuMemFree_v2(kept[i]));
}
END_TEST

/* ---- no record left ---- */

/* The tables are full while a large block is free: what is asked for then takes just that of the device, and the rest
 * can be had. In segments, or (_i) in pages, where the free block ends within a page that others use. */
START_TEST(test_no_record_left)
{
	struct gm_region *blocks;
	CUdeviceptr large, next, p;
	uint64_t most, refused;
	size_t before, pitch;

	start(_i, "256MiB");
	OK(cuMemAlloc_v2(&large, 160 * MIB + (_i ? 512 : 0)));
	OK(cuMemAlloc_v2(&next, 3 * MIB));
	for (unsigned int i = 0; i < 100; i++)
		OK(cuMemAlloc_v2(&p, 512));
	OK(cuMemFree_v2(large));
	blocks = gm_region(GM_REGION_BLOCKS);
	most = blocks->capacity;
	blocks->capacity = gm_get(&blocks->used);
	refused = blocks->refused;
	while (refused == blocks->refused)
		OK(cuMemAlloc_v2(&p, 512));
	before = free_bytes();
	OK(cuMemAlloc_v2(&p, 2 * MIB));
	ck_assert_uint_eq(before - free_bytes(), 2 * MIB);
	OK(cuMemAllocPitch_v2(&p, &pitch, MIB, 120, 4));
	OK(cuMemFree_v2(p));
	OK(cuMemAlloc_v2(&p, 130 * MIB));
	OK(cuMemFree_v2(p));
	ck_assert_ptr_nonnull(gpumem_torch_malloc((ssize_t)(130 * MIB), 0, NULL));
	blocks->capacity = most;
	ck_assert_int_eq(gm_recorder_check(), 0);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* ---- PyTorch's interface ---- */

/* What the driver gives in its place is in no stream's order, and recorded so. */
START_TEST(test_torch_from_the_driver)
{
	const struct gm_segment *segments;
	struct gm_copy copy;
	CUstream stream;
	bool found = false;
	uint64_t ptr;

	setenv("GPUMEM_SHARED_SEGMENTS", "1", 1);
	start(false, "16MiB");			/* too little for a segment of 20 MiB */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ptr = (uint64_t)(uintptr_t)gpumem_torch_malloc((ssize_t)(3 * MIB), 0, stream);
	ck_assert_uint_ne(ptr, 0);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	segments = (const void *)(copy.base + copy.header->regions[GM_REGION_SEGMENTS].offset);
	for (size_t i = 1; i < gm_copy_items(&copy, GM_REGION_SEGMENTS); i++)
		if (segments[i].used && segments[i].address == ptr) {
			ck_assert_uint_eq(segments[i].stream, 0);
			found = true;
		}
	ck_assert(found);
	gm_copy_free(&copy);
	gpumem_torch_free((void *)(uintptr_t)ptr, (ssize_t)(3 * MIB), 0, stream);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_DEVICE), 0);
}
END_TEST

/* ---- caches above ours ---- */

/* What PyTorch's cache gets and frees is the driver's again at once, although another stream works; the same program without
 * that cache (_i) is served from ours. Other modules are, too. */
START_TEST(test_caches_above)
{
	CUdeviceptr p[3], other;
	struct gm_block copy;
	uint64_t before;
	CUstream stream;

	if (_i)
		setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
	start(false, "1GiB");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&other, 4 * MIB));
	ck_assert_uint_ne(gm_cache_block(other, &copy), 0);
	ck_assert_uint_ne(copy.module, 0);
	gm_writers_module(copy.module, "/site-packages/torch/lib/libc10_cuda.so");
	before = fakecuda_charged_bytes(0);
	OK(cuMemAlloc_v2(&p[0], 2 * MIB));
	OK(cuMemAlloc_v2(&p[1], 20 * MIB));
	OK(cuMemAlloc_v2(&p[2], 34 * MIB));
	for (unsigned int i = 0; i < 3; i++) {
		ck_assert_uint_ne(gm_cache_block(p[i], &copy), 0);
		OK(cuMemsetD8Async(p[i], 1, 2 * MIB, stream));
	}
	if (!_i)
		ck_assert_uint_eq(fakecuda_charged_bytes(0), before + 56 * MIB);
	for (unsigned int i = 0; i < 3; i++)
		OK(cuMemFree_v2(p[i]));
	if (!_i)
		ck_assert_uint_eq(fakecuda_charged_bytes(0), before);
	else
		ck_assert_uint_gt(fakecuda_charged_bytes(0), before);
	OK(cuMemFree_v2(other));
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heaps");
	TCase *tc = tcase_create("heaps");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_green_context, 0, 4);
	tcase_add_test(tc, test_heap_cannot_be_made);
	tcase_add_loop_test(tc, test_lost_within_a_call, 0, 4);
	tcase_add_loop_test(tc, test_no_record_left, 0, 2);
	tcase_add_test(tc, test_torch_from_the_driver);
	tcase_add_loop_test(tc, test_caches_above, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
