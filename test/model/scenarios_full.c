/*
 * scenarios_full.c - a full device: memory in the cache, memory that waits for the GPU, threads that grow at
 * once. A request that the driver would serve must be served (see scenario.h).
 *
 * Thread context: growing_together and freed_by_another_* have further threads.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test/model/scenario.h"

/* ---- the cache holds the device ---- */

/* Use nearly all memory of the device, and free it again. */
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

/* The same with lazy loading: the module is loaded when a part of it is requested. */
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

#define HOLDERS 2			/* threads that hold memory at a time */
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

static void grow(unsigned int draw)
{
	for (unsigned int n = 0; n < ROUNDS; n++) {
		CUdeviceptr p;

		draw = draw * 1664525 + 1013904223;
		hold(true);
		CHECK(cuMemAlloc(&p, (24 + (draw >> 16) % 4 * 24) * MIB));
		CHECK(cuMemFree(p));
		hold(false);
	}
}

/* No thread can use what another size left (max_split_size_mb:20), so there is always a thread that gives memory back.
 * All memory that they ever hold fits. A thread that hears otherwise was refused while another thread gave back. */
void scenario_growing_together(void)
{
	scene_together(grow);
}

/* ---- another thread's frees ---- */

#define MOST (60 * MIB)			/* there is no room for two of them */
#define STEP_NS UINT64_C(100000000)	/* virtual time of a query: a slow kernel ends after some polls */

struct freeing { struct scene *scene; CUdeviceptr ptr; _Atomic(int) done; };

static void *frees(void *arg)
{
	struct freeing *freeing = arg;

	CHECK(cuCtxSetCurrent(freeing->scene->context[0]));
	give(freeing->ptr);
	freeing->done = 1;
	return NULL;
}

/* Two streams have had work. A slow kernel uses a block of most of the device, and another thread frees the block. The
 * driver's own free would wait for the kernel. */
static void freed_by_another(struct scene *scene)
{
	struct freeing freeing = { .scene = scene };
	pthread_t thread;
	CUdeviceptr p;

	scene_open(scene, 1);
	p = get(WORDS * 4);
	fill(scene, scene->s, p, 1);
	CHECK(cuStreamSynchronize(scene->s));
	fill(scene, scene->t, p, 1);
	CHECK(cuCtxSynchronize());
	freeing.ptr = get(MOST);
	slow_from_here();
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	fill(scene, scene->s, freeing.ptr, 1);
	pthread_create(&thread, NULL, frees, &freeing);
	pthread_join(thread, NULL);
}

void scenario_freed_by_another(void)
{
	struct scene scene;
	CUdeviceptr q;

	freed_by_another(&scene);
	q = get(MOST);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
}

void scenario_freed_by_another_async(void)
{
	struct scene scene;
	CUdeviceptr q;

	freed_by_another(&scene);
	q = get_async(MOST, scene.t);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
}

static void *lets_time_pass(void *arg)
{
	(void)arg;
	usleep(400000);
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(STEP_NS);
	return NULL;
}

/* With a single stream a free is complete at once, and the segment goes back to the driver behind the kernel. The
 * kernel takes longer than one request waits. */
static void back_is_late(struct scene *scene, bool pitched)
{
	pthread_t thread;
	CUdeviceptr p;
	size_t pitch;

	scene_open(scene, 1);
	p = get(MOST);
	slow_from_here();
	((void (*)(uint64_t))control("fakecuda_set_step_ns"))(0);
	fill(scene, scene->s, p, 1);
	pthread_create(&thread, NULL, lets_time_pass, NULL);
	give(p);
	if (pitched)
		CHECK(cuMemAllocPitch(&p, &pitch, 1 << 20, 64, 4));
	else
		p = get(MOST + 4 * MIB);
	fill(scene, scene->s, p, 2);
	expect_words(scene->s, p, 2);
	pthread_join(thread, NULL);
}

void scenario_back_is_late(void)
{
	struct scene scene;

	back_is_late(&scene, false);
}

void scenario_back_is_late_pitched(void)
{
	struct scene scene;

	back_is_late(&scene, true);
}

/* The stream on which segments go back cannot be made. The segments go back anyway, without delay, so a request that is
 * refused does not wait for any. */
void scenario_back_without_stream(void)
{
	void (*fail)(const char *, long, long, int) =
		(void (*)(const char *, long, long, int))control("fakecuda_fail");
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemGenericAllocationHandle handle;
	struct rusage before, after;
	struct scene scene;
	CUdeviceptr p;

	scene_open(&scene, 1);
	fail("cuStreamCreate", 0, -1, CUDA_ERROR_OUT_OF_MEMORY);
	give(get(60 * MIB));
	give(get(100 * MIB));
	CHECK(cuMemCreate(&handle, 90 * MIB, &prop, 0));
	getrusage(RUSAGE_SELF, &before);
	must(cuMemAlloc(&p, 60 * MIB) == CUDA_ERROR_OUT_OF_MEMORY, "not refused");
	getrusage(RUSAGE_SELF, &after);
	must(after.ru_nvcsw < before.ru_nvcsw + 1000, "it slept %ld times", after.ru_nvcsw - before.ru_nvcsw);
	CHECK(cuMemRelease(handle));
	give(get(60 * MIB));
}

/* A call that goes to the driver requests the memory. */
void scenario_freed_by_another_pitched(void)
{
	struct scene scene;
	CUdeviceptr p;
	size_t pitch;

	freed_by_another(&scene);
	CHECK(cuMemAllocPitch(&p, &pitch, 1 << 20, 50, 4));
	CHECK(cuMemFree(p));
}

void scenario_freed_by_another_vmm(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemGenericAllocationHandle handle;
	struct scene scene;

	freed_by_another(&scene);
	CHECK(cuMemCreate(&handle, MOST, &prop, 0));
	CHECK(cuMemRelease(handle));
}

/* The request must be refused, because the kernel for which it waits ends only by the next call of this thread. (The
 * fake driver lets calls through while a free waits.) A second refusal comes sooner. */
void scenario_freed_by_another_flag(void)
{
	struct freeing freeing = { 0 };
	uint64_t (*calls)(const char *) = (uint64_t (*)(const char *))control("fakecuda_calls");
	uint64_t before, first, second;
	struct scene scene;
	pthread_t thread;
	CUdeviceptr flag, q;

	scene_open(&scene, 1);
	freeing.scene = &scene;
	flag = flag_new();
	fill(&scene, scene.t, flag + 2048, 1);
	CHECK(cuCtxSynchronize());
	freeing.ptr = get(MOST);
	flag_await(&scene, 0, scene.s, flag);
	pthread_create(&thread, NULL, frees, &freeing);
	for (int i = 0; !freeing.done && i < (cached() ? 5000 : 25); i++)
		usleep(2000);
	fill(&scene, scene.t, flag + 2048, 1);
	before = calls("cuEventQuery");
	must(cuMemAlloc(&q, MOST) == CUDA_ERROR_OUT_OF_MEMORY, "not refused");
	first = calls("cuEventQuery") - before;
	must(cuMemAlloc(&q, MOST) == CUDA_ERROR_OUT_OF_MEMORY, "not refused");
	second = calls("cuEventQuery") - before - first;
	must(!cached() || first > 2 * second, "%lu queries, then %lu", first, second);
	flag_set(&scene, flag);
	pthread_join(thread, NULL);
	CHECK(cuCtxSynchronize());
	q = get(MOST);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
}

/* Others have most of the device, so that all memory of this process lies within what its blocks may share
 * (shared_segments). A block that is in use until its free ends must be handed out again, instead of a block in a new
 * segment, whose memory would be missing later. */
void scenario_scarce(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p, q;
	struct scene scene;

	scene_open(&scene, 1);
	CHECK(cuMemCreate(&handle, 4006 * MIB, &prop, 0));
	p = get(32 * MIB);
	fill(&scene, scene.t, p, 1);
	CHECK(cuCtxSynchronize());
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(30 * MIB);
	CHECK(cuCtxSynchronize());
	get(2 * MIB);
	get(56 * MIB);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
}

/* A request that must have its own segment, because others may write to it, comes when the cache holds all memory. */
void scenario_dedicated_when_full(void)
{
	const char *library = getenv("SCENARIO_WRITERS");
	struct scene scene;

	scene_open(&scene, 1);
	fill_the_cache();
	if (library && !dlopen(library, RTLD_NOW))
		DIE("%s", dlerror());
	give(get(50 * MIB));		/* growth makes the library look at the loaded objects */
	give(get(45 * MIB));
}
