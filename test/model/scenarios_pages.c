/*
 * scenarios_pages.c - memory in pages (expandable_segments:True), which move to where they are needed (see scenario.h).
 *
 * Thread context: one thread; pages_freed_beside_release has one more.
 */
#include <pthread.h>

#include "test/model/scenario.h"

#define STEP_NS UINT64_C(100000000)	/* a query that often takes a slow kernel some polls to end */

void scenario_pages_of_a_kernel(void)
{
	struct scene scene;
	CUdeviceptr p, behind, large;

	scene_open(&scene, 1);
	p = get(40 * MIB);
	behind = get(2 * MIB);		/* nothing larger has its place where @p was */
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
		give(p);		/* the driver's waits */
	other = get(44 * MIB);
	flag_set(&scene, flag);
	fill(&scene, scene.s, other, 3);
	expect_words(scene.s, other, 3);
}

/* The driver gives a quarter of the addresses that are asked for first. Of small requests that is less than the device
 * has of memory. */
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
		return;			/* cudaMalloc's memory needs no access for each device */
	must(reaches(before) && reaches(before + 4 * MIB), "the peer does not reach what was there");
	must(reaches(after) && reaches(after + 49 * MIB), "the peer does not reach what came");
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
