/*
 * scenarios_memory.c - what a program sees of its memory: errors, limits, fills, the end of contexts and of
 * processes (see scenario.h).
 *
 * Thread context: one thread.
 */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/api/gpumem.h"
#include "test/model/scenario.h"

/* ---- errors ---- */

static void must_say(CUresult wanted, CUresult result, const char *what)
{
	must(result == wanted, "%s: %d, not %d", what, (int)result, (int)wanted);
}

void scenario_wrong_frees(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	int foreign;

	scene_open(&scene, 1);
	p = get(4096);
	q = get(2 * MIB);
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFree(p + 256), "the middle of a block");
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFree((uintptr_t)&foreign), "host memory");
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p + 256, scene.s), "its middle, async");
	must_say(CUDA_SUCCESS, cuMemFree(0), "nothing");
	give(p);
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFree(p), "twice");
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, scene.s), "twice, async");
	fill(&scene, scene.s, q, 3);
	expect_words(scene.s, q, 3);
	give(q);
}

void scenario_malloc_zero(void)
{
	struct scene scene;
	CUdeviceptr p = 1;

	scene_open(&scene, 1);
	give(get(4096));
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0), "no bytes");
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 4096), "nowhere");
}

/* After a fault every call of the driver fails; calls that the cache serves must fail, too. */
void scenario_sticky_error(void)
{
	static const char faulty[] =
		".version 8.0\n.target sm_75\n.address_size 64\n"
		".visible .entry fault(.param .u64 p){ret;}\n";
	struct scene scene;
	CUdeviceptr p, q;
	CUmodule module;
	CUfunction fault;
	void *args[] = { &p };

	scene_open(&scene, 1);
	CHECK(cuModuleLoadData(&module, faulty));
	CHECK(cuModuleGetFunction(&fault, module, "fault"));
	give(get(4096));
	p = get(4096);
	CHECK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, scene.s, args, NULL));
	must_say(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize(), "synchronise");
	must_say(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&q, 4096), "malloc");
	must_say(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(p), "free");
	must_say(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFreeAsync(p, scene.s), "free async");
}

/* ---- limits ---- */

void scenario_memory_limit(void)
{
	struct scene scene;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	p = get(40 * MIB);
	must_say(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, 40 * MIB), "past the limit");
	must_say(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&q, 40 * MIB, scene.s),
		 "past the limit, which is of the device and not of each heap");
	give(p);
	CHECK(cuStreamSynchronize(scene.s));
	give(get_async(50 * MIB, scene.s));
	give(get(50 * MIB));
	give(get(30 * MIB));
}

void scenario_fraction_by_call(void)
{
	struct scene scene;
	CUdeviceptr q;

	scene_open(&scene, 1);
	give(get(40 * MIB));
	must(!gpumem_set_per_process_memory_fraction(0.01, 0), "the fraction is refused");
	give(get(40 * MIB));
	must_say(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, 100 * MIB), "past the fraction");
	must(gpumem_set_per_process_memory_fraction(2, 0) == -EINVAL, "twice the device");
	must(!gpumem_set_per_process_memory_fraction(1, 0), "the whole is refused");
	give(get(100 * MIB));
}

/* ---- what memory holds ---- */

static void must_be_filled(uint32_t word)
{
	struct scene scene;
	CUdeviceptr p;

	scene_open(&scene, 1);
	p = get(2 * MIB);
	expect_words(scene.s, p, word);
	fill(&scene, scene.s, p, 7);
	give(p);
	p = get(2 * MIB);
	expect_words(scene.s, p, word);
	fill(&scene, scene.t, p, 7);
	give(p);
	p = get_async(2 * MIB, scene.s);
	expect_words(scene.s, p, word);
	fill(&scene, scene.s, p, 7);
	give_async(p, scene.s);
	p = get_async(2 * MIB, scene.s);
	expect_words(scene.s, p, word);
}

void scenario_fill_zero(void)
{
	must_be_filled(0);
}

void scenario_fill_poison(void)
{
	must_be_filled(0xa5a5a5a5);
}

/* ---- the library's own functions ---- */

void scenario_torch_allocator(void)
{
	struct scene scene;
	CUdeviceptr base, p;
	size_t bytes;
	void *a, *b;

	scene_open(&scene, 1);
	fill(&scene, scene.t, get(4096), 1);	/* a second stream gets work */
	a = gpumem_torch_malloc(3000000, 0, scene.s);
	must(a != NULL, "no memory");
	p = (uintptr_t)a;
	CHECK(cuMemGetAddressRange(&base, &bytes, p + 100));
	must(base == p && bytes == 3000000, "%zu bytes at %llx", bytes, (unsigned long long)base);
	fill(&scene, scene.s, p, 1);
	gpumem_torch_free(a, 3000000, 0, scene.s);
	b = gpumem_torch_malloc(3000000, 0, scene.s);
	must(a == b, "not handed out again in the order of its stream");
	fill(&scene, scene.s, p, 2);
	expect_words(scene.s, p, 2);
	gpumem_torch_free(b, 3000000, 0, scene.s);
	CHECK(cuCtxSynchronize());
	must(gpumem_memory_reserved(0) > 0, "nothing is cached");
	/* A large segment as PyTorch's, or just its pages. */
	must(gpumem_empty_cache() >= (int64_t)((getenv("GPUMEM_EXPANDABLE_SEGMENTS") ? 4 : 20) * MIB), "nothing was given back");
}

void scenario_empty_cache(void)
{
	size_t before, during, after, total;
	struct scene scene;

	scene_open(&scene, 1);
	CHECK(cuMemGetInfo(&before, &total));
	give(get(100 * MIB));
	CHECK(cuMemGetInfo(&during, &total));
	must(during >= before, "the cache shows: %zu, %zu", before, during);
	must(gpumem_memory_reserved(0) >= (int64_t)(100 * MIB), "it was not cached");
	must(gpumem_empty_cache() == (int64_t)(100 * MIB), "not all of it was given back");
	CHECK(cuMemGetInfo(&after, &total));
	must(after >= before && gpumem_memory_reserved(0) == 0, "%zu, %zu", before, after);
}

/* ---- out of memory ---- */

static int observed;

static void observer(void *arg, int device, uint64_t requested, uint64_t total, uint64_t free_bytes)
{
	(void)arg;
	(void)free_bytes;
	must(device == 0 && requested == 100 * MIB && total == 64 * MIB, "told %d %llu %llu", device,
	     (unsigned long long)requested, (unsigned long long)total);
	observed++;
}

/* test_scenarios.py checks the report. */
void scenario_oom_report(void)
{
	CUdeviceptr keep, pieces[3], q;
	struct scene scene;

	scene_open(&scene, 1);
	fill(&scene, scene.t, get(4096), 1);
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < 3; i++)
		pieces[i] = get(5 * MIB);
	keep = get(11 * MIB);
	slow_from_here();
	fill(&scene, scene.s, pieces[2], 1);
	give_async(pieces[2], scene.s);
	fill(&scene, scene.s, keep, 1);
	gpumem_register_oom_observer(observer, NULL);
	must_say(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, 100 * MIB), "more than there is");
	must(observed == 1, "the observer was called %d times", observed);
	fill(&scene, scene.s, pieces[0], 9);
	expect_words(scene.s, pieces[0], 9);
	give(get(6 * MIB));
}

static int oom_snapshots(void)
{
	char path[4096];
	int count = 0;
	DIR *directory;

	snprintf(path, sizeof(path), "%s/out", getenv("SCENARIO_ROOM"));
	directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		count += strstr(entry->d_name, "oom") != NULL;
	if (directory)
		closedir(directory);
	return count;
}

/* The program probes for memory. Every answer must be the driver's, few files are written, and nothing is lost. */
void scenario_oom_storm(void)
{
	CUdeviceptr block[64], q;
	struct scene scene;
	int count = 0;

	scene_open(&scene, 1);
	for (int i = 0; i < 400; i++)
		must_say(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&q, 65 * MIB + (size_t)i), "too much");
	for (; count < 64 && !cuMemAlloc(&block[count], 4 * MIB); count++)
		fill(&scene, scene.s, block[count], (uint32_t)count + 1);
	must(count >= 15, "only %d blocks of 4 MiB", count);
	for (int i = 0; i < count; i++)
		expect_words(scene.s, block[i], (uint32_t)i + 1);
	for (int i = 0; i < count; i++)
		CHECK(cuMemFree(block[i]));
	for (int i = 0; cached() && !oom_snapshots() && i < 2000; i++)
		usleep(5000);			/* another thread writes the files */
	must(!cached() || (oom_snapshots() >= 1 && oom_snapshots() <= 4), "%d snapshots", oom_snapshots());
}

/* ---- ends ---- */

void scenario_context_destroyed(void)
{
	CUctxCreateParams params = { 0 };
	size_t before, after, total;
	CUdeviceptr p, live;
	struct scene scene;
	CUcontext context;

	scene_open(&scene, 1);
	live = get(2 * MIB);
	fill(&scene, scene.s, live, 4);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 3; i++) {
		CUstream stream;

		CHECK(cuCtxCreate(&context, &params, 0, 0));
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		p = get(3 * MIB);
		give(get(40 * MIB));			/* cached */
		CHECK(cuMemsetD32Async(p, 1, 1024, stream));
		give_async(p, stream);			/* in limbo */
		p = get(3 * MIB);			/* live */
		CHECK(cuCtxDestroy(context));
		CHECK(cuCtxSetCurrent(scene.context[0]));
		must_say(CUDA_ERROR_INVALID_VALUE, cuMemFree(p), "memory of a context that is gone");
	}
	CHECK(cuMemGetInfo(&after, &total));
	must(after + 4 * MIB >= before, "%zu bytes are lost", before - after);
	expect_words(scene.s, live, 4);
	give(live);
	give(get(100 * MIB));
}

/* Stream-ordered memory outlives a reset; cudaMalloc memory does not. */
void scenario_device_reset(void)
{
	CUdeviceptr p, ordered;
	struct scene scene;

	scene_open(&scene, 1);
	p = get(2 * MIB);
	give(get(5 * MIB));
	ordered = get_async(2 * MIB, scene.s);
	fill(&scene, scene.s, ordered, 6);
	CHECK(cuCtxSynchronize());
	CHECK(cuDevicePrimaryCtxReset(0));
	CHECK(cuDevicePrimaryCtxRetain(&scene.context[0], 0));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	must_say(CUDA_ERROR_INVALID_VALUE, cuMemFree(p), "memory from before the reset");
	CHECK(cuStreamCreate(&scene.s, CU_STREAM_NON_BLOCKING));
	expect_words(scene.s, ordered, 6);
	give_async(ordered, scene.s);
	CHECK(cuCtxSynchronize());
	give(get(2 * MIB));
}

void scenario_fork_with_a_full_cache(void)
{
	CUdeviceptr live, p;
	struct scene scene;
	int status;
	pid_t pid;

	scene_open(&scene, 1);
	live = get(2 * MIB);
	fill(&scene, scene.s, live, 8);
	for (int i = 0; i < 20; i++)
		give(get((size_t)(i + 1) * MIB));
	pid = fork();
	if (!pid) {
		must_say(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 4096), "malloc in a child");
		must_say(CUDA_ERROR_NOT_INITIALIZED, cuMemFree(live), "free in a child");
		must_say(CUDA_ERROR_NOT_INITIALIZED, cuMemAllocAsync(&p, 4096, scene.s), "async in a child");
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && !status, "the child: %d", status);
	expect_words(scene.s, live, 8);
	give(live);
	give(get(2 * MIB));
}
