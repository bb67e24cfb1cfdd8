/*
 * scenarios_barrier.c - cudaFree as the host's wait for the GPU, and memory running short (see
 * scenario.h).
 *
 * Thread context: one thread, but for growing_together.
 */
#include <pthread.h>
#include <unistd.h>

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

/* ---- the cache holds the device ---- */

/* All of it but a little was used and is free again. */
static void fill_the_cache(void)
{
	CUdeviceptr block[4];

	for (int i = 0; i < 4; i++)
		block[i] = get(14 * MIB);
	for (int i = 0; i < 4; i++)
		give(block[i]);
}

void scenario_pitched_when_full(void)
{
	struct scene scene;
	CUdeviceptr p;
	size_t pitch;

	scene_open(&scene, 1);
	fill_the_cache();
	CHECK(cuMemAllocPitch(&p, &pitch, 1 << 20, 40, 4));
	CHECK(cuMemFree(p));
}

void scenario_module_when_full(void)
{
	static const char large[] =
		".version 8.0\n.target sm_75\n.address_size 64\n"
		".visible .global .align 4 .b8 table[31457280];\n"
		".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n";
	CUdeviceptr table;
	struct scene scene;
	CUmodule module;
	size_t bytes;

	scene_open(&scene, 1);
	fill_the_cache();
	CHECK(cuModuleLoadData(&module, large));
	CHECK(cuModuleGetGlobal(&table, &bytes, module, "table"));
	must(bytes == 31457280, "%zu bytes", bytes);
}

/* The same by the lazy way: loaded when something of it is asked for. */
void scenario_lazy_module_when_full(void)
{
	static const char large[] =
		".version 8.0\n.target sm_75\n.address_size 64\n"
		".visible .global .align 4 .b8 table[31457280];\n"
		".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n";
	uint32_t value = 4, words = WORDS;
	struct scene scene;
	CUlibrary library;
	CUdeviceptr p, table;
	CUkernel kernel;
	size_t bytes;
	void *args[] = { &p, &value, &words };

	scene_open(&scene, 1);
	CHECK(cuLibraryLoadData(&library, large, NULL, NULL, 0, NULL, NULL, 0));
	fill_the_cache();
	CHECK(cuLibraryGetGlobal(&table, &bytes, library, "table"));
	CHECK(cuLibraryGetKernel(&kernel, library, "fill"));
	p = get(4096);
	CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, scene.s, args, NULL));
	CHECK(cuStreamSynchronize(scene.s));
	expect_words(scene.s, p, 4);
}

void scenario_other_sizes_when_full(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	fill_the_cache();
	give(get(50 * MIB));
	give_async(get_async(40 * MIB, scene.s), scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	give(get(45 * MIB));
}

/* ---- threads that grow ---- */

#define GROWERS 4
#define HOLDERS 2			/* of memory at a time */
#define ROUNDS 1000

static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t holder_left = PTHREAD_COND_INITIALIZER;
static int holders;

static void hold(bool begins)
{
	pthread_mutex_lock(&holders_lock);
	while (begins && holders == HOLDERS)
		pthread_cond_wait(&holder_left, &holders_lock);
	holders += begins ? 1 : -1;
	pthread_cond_signal(&holder_left);
	pthread_mutex_unlock(&holders_lock);
}

static void *grow(void *arg)
{
	struct scene *scene = ((void **)arg)[0];
	unsigned int number = (unsigned int)(uintptr_t)((void **)arg)[1], draw = number;

	CHECK(cuCtxSetCurrent(scene->context[0]));
	for (unsigned int n = 0; n < ROUNDS; n++) {
		CUdeviceptr p;

		draw = draw * 1664525 + 1013904223;
		hold(true);
		CHECK(cuMemAlloc(&p, (24 + (draw >> 16) % 4 * 24) * MIB));
		CHECK(cuMemFree(p));
		hold(false);
	}
	return NULL;
}

/* None can use what another size left (max_split_size_mb:20), so that somebody always gives back.
 * All they ever hold fits; whoever is told otherwise was told so while another gave back. */
void scenario_growing_together(void)
{
	void *args[GROWERS][2];
	pthread_t thread[GROWERS];
	struct scene scene;

	scene_open(&scene, 1);
	for (int i = 0; i < GROWERS; i++) {
		args[i][0] = &scene;
		args[i][1] = (void *)(uintptr_t)i;
		pthread_create(&thread[i], NULL, grow, args[i]);
	}
	for (int i = 0; i < GROWERS; i++)
		pthread_join(thread[i], NULL);
}
