/*
 * scenarios_pages.c - memory in pages (expandable_segments:True), which move to where they are needed (see scenario.h).
 *
 * Thread context: one thread; pages_freed_beside_release has one more, pages_growing_together four.
 */
#include <pthread.h>

#include "test/model/scenario.h"

#define STEP_NS UINT64_C(100000000)	/* virtual time of a query: a slow kernel ends after some polls */

void scenario_pages_of_a_kernel(void)
{
	struct scene scene;
	CUdeviceptr p, behind, large;

	scene_open(&scene, 1);
	p = get(40 * MIB);
	behind = get(2 * MIB);		/* so that no larger block fits in the place of @p */
	slow_from_here();
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	fill(&scene, scene.s, p, 1);
	give(p);
	large = get(60 * MIB);
	fill(&scene, scene.s, large + 59 * MIB, 2);
	expect_words(scene.s, large + 59 * MIB, 2);
	give(large);
	give(behind);
}

struct freeing { struct scene *scene; CUdeviceptr ptr; _Atomic(int) done; };

static void *frees(void *arg)
{
	struct freeing *freeing = arg;

	CHECK(cuCtxSetCurrent(freeing->scene->context[0]));
	give(freeing->ptr);
	freeing->done = 1;
	return NULL;
}

static void free_beside_release(void *arg, const char *entry, int relaxed, int result)
{
	struct freeing *freeing = arg;
	pthread_t thread;

	(void)relaxed;
	if (result != -1 || freeing->done || strcmp(entry, "cuDevicePrimaryCtxRelease_v2") != 0)
		return;
	pthread_create(&thread, NULL, frees, freeing);
	pthread_join(thread, NULL);
}

void scenario_pages_freed_beside_release(void)
{
	void (*watch)(void (*)(void *, const char *, int, int), void *) =
		(void (*)(void (*)(void *, const char *, int, int), void *))control("fakecuda_watch");
	struct freeing freeing = { 0 };
	CUdeviceptr behind, large;
	CUcontext again;
	struct scene scene;

	scene_open(&scene, 1);
	CHECK(cuDevicePrimaryCtxRetain(&again, 0));
	freeing.scene = &scene;
	freeing.ptr = get(40 * MIB);
	behind = get(2 * MIB);
	slow_from_here();
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	fill(&scene, scene.s, freeing.ptr, 1);
	watch(free_beside_release, &freeing);
	CHECK(cuDevicePrimaryCtxRelease(0));
	watch(NULL, NULL);
	must(freeing.done, "nothing was freed beside the release");
	large = get(60 * MIB);
	fill(&scene, scene.s, large + 59 * MIB, 2);
	expect_words(scene.s, large + 59 * MIB, 2);
	give(large);
	give(behind);
}

void scenario_pages_behind_flag(void)
{
	CUdeviceptr flag, p, other;
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	p = get(40 * MIB);
	other = get(4 * MIB);
	fill(&scene, scene.s, p, 1);
	flag_await(&scene, 0, scene.s, flag);
	fill(&scene, scene.s, p, 2);
	if (cached())
		give(p);		/* the driver's own free waits */
	other = get(44 * MIB);
	flag_set(&scene, flag);
	fill(&scene, scene.s, other, 3);
	expect_words(scene.s, other, 3);
}

/* The driver reserves only a quarter of the first requested addresses. For small requests that is less than the
 * device's memory. */
void scenario_pages_few_addresses(void)
{
	CUdeviceptr block[70];
	struct scene scene;

	scene_open(&scene, 1);
	for (unsigned int i = 0; i < 70; i++) {
		block[i] = get(MIB);
		fill(&scene, scene.s, block[i], i);
	}
	for (unsigned int i = 0; i < 70; i++) {
		expect_words(scene.s, block[i], i);
		give(block[i]);
	}
	give(get(60 * MIB));
}

static bool reaches(CUdeviceptr p)
{
	CUmemLocation there = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 };
	unsigned long long flags = 0;

	CHECK(cuMemGetAccess(&flags, &there, p));
	return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

void scenario_pages_for_a_peer(void)
{
	CUdeviceptr before, after;
	struct scene scene;

	scene_open(&scene, 2);
	before = get(5 * MIB);
	must(!cached() || !reaches(before), "the peer has access that nobody gave it");
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuCtxEnablePeerAccess(scene.context[0], 0));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	after = get(50 * MIB);
	if (!cached())
		return;			/* cudaMalloc memory needs no access for each device */
	must(reaches(before) && reaches(before + 4 * MIB), "the peer does not reach what was there");
	must(reaches(after) && reaches(after + 49 * MIB), "the peer does not reach what came");
}

/* In stream order, from the default pool: another stream gets the fitting memory behind the kernel, and no thread
 * waits. */
void scenario_pages_taken_over(void)
{
	struct scene scene;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	p = get_async(60 * MIB, scene.s);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give_async(p, scene.s);
	q = get_async(56 * MIB, scene.t);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
	give_async(q, scene.t);
}

/* One stream frees @freed bytes that a kernel uses, with another block behind them. Another stream requests @wanted
 * bytes, and gets the freed pages when the kernel has ended. */
static void wanted_elsewhere(struct scene *scene, size_t freed, size_t wanted)
{
	CUdeviceptr p = get_async(freed, scene->s), behind = get_async(2 * MIB, scene->s), large;

	slow_from_here();
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	fill(scene, scene->s, p + freed - MIB, 2);
	give_async(p, scene->s);
	large = get_async(wanted, scene->t);
	fill(scene, scene->t, large + wanted - MIB, 3);
	fill(scene, scene->t, large, 3);
	expect_words(scene->t, large + wanted - MIB, 3);
	give_async(large, scene->t);
	give_async(behind, scene->s);
}

void scenario_pages_of_a_stream(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	wanted_elsewhere(&scene, 40 * MIB, 60 * MIB);
}

/* Let the pool keep its memory at a synchronise. */
static void keep_all(void)
{
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* Another stream waits for a flag that only work which needs the pages sets. So does the stream itself, in a later
 * wait. */
static void behind_flag(bool in_order)
{
	CUdeviceptr flag, p, behind, large;
	struct scene scene;

	scene_open(&scene, 1);
	keep_all();
	flag = flag_new();
	give_async(get_async(2 * MIB, scene.u), scene.u);	/* frees have events from here on */
	p = get_async(40 * MIB, scene.s);
	behind = get_async(2 * MIB, scene.s);
	fill(&scene, scene.s, p, 1);
	if (in_order)
		give_async(p, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	if (!in_order)
		give(p);
	flag_await(&scene, 0, scene.u, flag);
	flag_await(&scene, 0, scene.s, flag);
	large = get_async(60 * MIB, scene.t);
	fill(&scene, scene.t, large + 59 * MIB, 2);
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	CHECK(cuStreamSynchronize(scene.t));
	expect_words(scene.t, large + 59 * MIB, 2);
	CHECK(cuCtxSynchronize());
	give_async(behind, scene.s);
	give_async(large, scene.t);
}

void scenario_pages_of_a_stream_behind_flag(void)
{
	behind_flag(true);
}

void scenario_pages_freed_behind_flag(void)
{
	behind_flag(false);
}

/* The pool's heap waits, before it grows, for a kernel that waits for a flag, and never waits again. Afterwards all
 * of its memory is free. */
static void wait_in_vain(struct scene *scene)
{
	CUdeviceptr flag = flag_new(), p = get_async(20 * MIB, scene->s), behind = get_async(2 * MIB, scene->s), large;

	flag_await(scene, 0, scene->s, flag);
	fill(scene, scene->s, p, 1);
	give_async(p, scene->s);
	large = get_async(30 * MIB, scene->t);
	flag_set(scene, flag);
	CHECK(cuCtxSynchronize());
	give_async(large, scene->t);
	give_async(behind, scene->s);
	give(flag);
	CHECK(cuCtxSynchronize());
}

/* Taking memory over does not complete its free. So the pages must not go to a third stream, although the stream that
 * took them over has passed all its own earlier frees. */
void scenario_pages_taken_over_twice(void)
{
	CUdeviceptr p, q, small, large;
	struct scene scene;

	scene_open(&scene, 1);
	wait_in_vain(&scene);
	keep_all();
	p = get_async(60 * MIB, scene.s);
	small = get_async(2 * MIB, scene.t);
	fill(&scene, scene.t, small, 1);
	give_async(small, scene.t);
	CHECK(cuStreamSynchronize(scene.t));
	slow_from_here();
	fill(&scene, scene.s, p + 58 * MIB, 2);
	give_async(p, scene.s);
	q = get_async(56 * MIB, scene.t);
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	large = get_async(38 * MIB, scene.u);
	fill(&scene, scene.u, large + 37 * MIB, 3);
	fill(&scene, scene.u, large, 3);
	expect_words(scene.u, large + 37 * MIB, 3);
	fill(&scene, scene.t, q, 4);
	expect_words(scene.t, q, 4);
	give_async(large, scene.u);
	give_async(q, scene.t);
}

/* Such a heap waits again when no memory is left. */
void scenario_pages_of_a_stream_in_vain(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	wait_in_vain(&scene);
	wanted_elsewhere(&scene, 20 * MIB, 80 * MIB);
}

/* A stream takes over memory that a destroyed stream freed while there was so little memory that frees had no events. A
 * later free of the first stream is not complete before that stream has got to it. */
void scenario_pages_taken_over_unmarked(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	CUstream gone;

	scene_open(&scene, 1);
	keep_all();
	CHECK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
	p = get_async(60 * MIB, gone);
	slow_from_here();
	fill(&scene, gone, p, 1);
	give_async(p, gone);
	CHECK(cuStreamDestroy(gone));
	q = get_async(56 * MIB, scene.t);
	fill(&scene, scene.t, q, 2);
	CHECK(cuStreamSynchronize(scene.t));
	fill(&scene, scene.t, q, 3);
	give_async(q, scene.t);
	q = get_async(56 * MIB, scene.u);
	fill(&scene, scene.u, q, 4);
	expect_words(scene.u, q, 4);
	give_async(q, scene.u);
}

/* A refused request must not leave its stream waiting for another stream, which may be waiting for it. */
void scenario_pages_refused_behind_flag(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle others;
	CUdeviceptr flag, p, none;
	struct scene scene;

	scene_open(&scene, 1);
	keep_all();
	flag = flag_new();
	give_async(get_async(2 * MIB, scene.u), scene.u);	/* frees have events from here on */
	p = get_async(20 * MIB, scene.s);
	flag_await(&scene, 0, scene.s, flag);
	give_async(p, scene.s);
	CHECK(cuMemCreate(&others, 40 * MIB, &prop, 0));
	must(cuMemAllocAsync(&none, 60 * MIB, scene.t) == CUDA_ERROR_OUT_OF_MEMORY, "more than there is was served");
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	CHECK(cuStreamSynchronize(scene.t));
	CHECK(cuCtxSynchronize());
}

/* If one stream has enough memory to give, a stream with too little must not be waited for, because it may be
 * waiting for the requesting stream. */
void scenario_pages_taken_over_beside_flag(void)
{
	CUdeviceptr flag, p, q, own;
	struct scene scene;

	scene_open(&scene, 1);
	keep_all();
	flag = flag_new();
	own = get_async(20 * MIB, scene.u);
	give_async(get_async(4 * MIB, scene.u), scene.u);
	flag_await(&scene, 0, scene.u, flag);
	give_async(own, scene.u);
	own = get_async(20 * MIB, scene.u);
	p = get_async(60 * MIB, scene.s);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give_async(p, scene.s);
	q = get_async(56 * MIB, scene.t);
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	give_async(q, scene.t);
	give_async(own, scene.u);
}

static size_t of_pool(CUmemPool_attribute which)
{
	cuuint64_t bytes = 0;
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolGetAttribute(pool, which, &bytes));
	return bytes;
}

/* The pool behaves as the driver's own, except for the size of its pieces. */
void scenario_pages_of_the_pool(void)
{
	cuuint64_t keep = UINT64_MAX, none = 0;
	CUmemoryPool pool, of_pointer = NULL;
	struct scene scene;
	CUcontext context;
	size_t reserved;
	CUdeviceptr p;

	scene_open(&scene, 1);
	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	p = get_async(5 * MIB + 5, scene.s);
	must(of_pool(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * MIB + 5, "bytes used");
	reserved = of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	must(reserved >= 6 * MIB && reserved <= 32 * MIB, "%zu bytes reserved", reserved);
	CHECK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	must(of_pointer == pool, "the pointer's pool");
	CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	must(!context, "the pointer has a context");
	give_async(p, scene.s);
	must(of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved, "bytes reserved after the free");
	CHECK(cuStreamSynchronize(scene.s));
	must(!of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "kept at a synchronise");
	must(of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == reserved, "the most reserved");
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
	must(!of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), "the most reserved, since then");
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	p = get_async(5 * MIB, scene.s);
	give_async(p, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	must(of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved, "not kept at a synchronise");
	CHECK(cuMemPoolTrimTo(pool, 0));
	must(!of_pool(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "not trimmed");
	must(!of_pool(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "bytes used in the end");
	must(of_pool(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5 * MIB + 5, "the most used");
}

static bool pool_reaches(CUdeviceptr p)
{
	CUmemLocation there = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 };
	unsigned long long flags = 0;

	CHECK(cuMemGetAccess(&flags, &there, p));
	return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

void scenario_pages_of_a_pool_for_a_peer(void)
{
	CUmemAccessDesc there = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr before, after;
	struct scene scene;
	CUmemoryPool pool;

	scene_open(&scene, 2);
	before = get_async(5 * MIB, scene.s);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuCtxEnablePeerAccess(scene.context[0], 0));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	must(!cached() || !pool_reaches(before), "a context's peer has access to the pool");
	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolSetAccess(pool, &there, 1));
	after = get_async(50 * MIB, scene.s);
	if (!cached())
		return;			/* the driver does not report single pieces of a pool */
	must(pool_reaches(before) && pool_reaches(before + 4 * MIB), "the peer does not reach what was there");
	must(pool_reaches(after) && pool_reaches(after + 49 * MIB), "the peer does not reach what came");
	there.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CHECK(cuMemPoolSetAccess(pool, &there, 1));
	must(!pool_reaches(before) && !pool_reaches(after + 49 * MIB), "the peer still has access");
}

void scenario_pages_come_and_go(void)
{
	static const size_t sizes[] = { 3, 30, 7, 50, 2, 21, 60, 5, 33, 12 };
	CUdeviceptr block[6] = { 0 };
	struct scene scene;
	size_t held[6] = { 0 }, sum = 0;

	scene_open(&scene, 1);
	slow_from_here();
	for (unsigned int i = 0; i < 300; i++) {
		CUstream stream = i % 3 == 0 ? scene.s : i % 3 == 1 ? scene.t : scene.u;
		size_t size = sizes[i * 7 % 10] * MIB - (i % 5) * 100000;
		unsigned int at = i % 6;

		for (unsigned int k = at; block[at] || sum + size > 80 * MIB; k = (k + 1) % 6) {
			if (!block[k])
				continue;
			give(block[k]);
			sum -= held[k];
			block[k] = 0;
		}
		block[at] = get(size);
		sum += held[at] = size;
		fill(&scene, stream, block[at], i);
		fill(&scene, stream, block[at] + size / 4096 * 4096 - 4096, i);
		expect_words(stream, block[at], i);
	}
}

/* ---- threads ---- */

#define KEPT 3				/* blocks of each thread */
#define ROUNDS 1500

static void grow_and_move(unsigned int draw)
{
	CUdeviceptr block[KEPT] = { 0 };

	for (unsigned int n = 0; n < ROUNDS; n++) {
		CUdeviceptr *one = &block[n % KEPT];

		draw = draw * 1664525 + 1013904223;
		if (*one)
			give(*one);
		*one = get((2 + (draw >> 16) % 12) * MIB + 100000);
	}
}

/* The sizes differ, so pages move all the time. */
void scenario_pages_growing_together(void)
{
	scene_together(grow_and_move);
}
