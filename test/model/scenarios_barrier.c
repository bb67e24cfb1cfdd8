/*
 * scenarios_barrier.c - cudaFree as the host's wait for the GPU (see scenario.h).
 *
 * Thread context: one thread.
 */
#include "test/model/scenario.h"

static void read_by_host(const volatile uint32_t *words)
{
	void (*note)(uint64_t, size_t, int) =
		(void (*)(uint64_t, size_t, int))dlsym(RTLD_DEFAULT, "fakecuda_note_access");

	note((uintptr_t)words, WORDS * 4, 0);
	for (unsigned int i = 0; i < WORDS; i++)
		must(words[i] == 5, "word %u is %u, not 5", i, words[i]);
}

/* A copy to pinned memory, cudaFree of what it copies from, a look at the copy. */
void scenario_barrier_pinned(void)
{
	struct scene scene;
	CUdeviceptr p;
	void *host;

	scene_open(&scene, 1);
	CHECK(cuMemHostAlloc(&host, WORDS * 4, 0));
	p = get(WORDS * 4);
	slow_from_here();
	fill(&scene, scene.s, p, 5);
	CHECK(cuMemcpyDtoHAsync(host, p, WORDS * 4, scene.s));
	give(p);
	read_by_host(host);
}

void scenario_barrier_managed(void)
{
	struct scene scene;
	CUdeviceptr p, managed;

	scene_open(&scene, 1);
	CHECK(cuMemAllocManaged(&managed, WORDS * 4, CU_MEM_ATTACH_GLOBAL));
	p = get(WORDS * 4);
	slow_from_here();
	fill(&scene, scene.s, managed, 5);
	give(p);
	read_by_host((const volatile uint32_t *)(uintptr_t)managed);
}

void scenario_barrier_mapped(void)
{
	struct scene scene;
	CUdeviceptr p, mapped;
	void *host;

	scene_open(&scene, 1);
	CHECK(cuMemHostAlloc(&host, WORDS * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&mapped, host, 0));
	p = get(WORDS * 4);
	slow_from_here();
	fill(&scene, scene.s, mapped, 5);
	give(p);
	read_by_host(host);
}
