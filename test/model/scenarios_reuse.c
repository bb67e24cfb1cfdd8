/*
 * scenarios_reuse.c - when memory may be used again: epochs, single-stream mode and its end, stream order (see
 * scenario.h).
 *
 * Thread context: one thread, except in other_threads_free and other_contexts_flag.
 */
#include <pthread.h>
#include <unistd.h>

#include "test/model/scenario.h"

/* Give both streams work, and complete all of it. */
static void many_streams(struct scene *scene)
{
	CUdeviceptr p = get(WORDS * 4);

	fill(scene, scene->s, p, 1);
	CHECK(cuCtxSynchronize());
	fill(scene, scene->t, p, 2);
	CHECK(cuCtxSynchronize());
	give(p);
}

/* ---- epochs ---- */

void scenario_limbo(void)
{
	struct scene scene;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	many_streams(&scene);
	p = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(2 * MIB);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* Free more than option `limbo` lets wait, behind work of stream s. All streams have had work. Returns a new flag. */
static CUdeviceptr free_pile_in_use(struct scene *scene)
{
	struct pile pile;
	CUdeviceptr flag;

	scene_open(scene, 1);
	flag = flag_new();
	many_streams(scene);
	get_pile(&pile);
	slow_from_here();
	fill(scene, scene->s, pile.block[0], 1);
	give_pile(&pile);
	return flag;
}

/* Free, a kernel that waits for a flag, malloc, set the flag. */
void scenario_free_flag_malloc(void)
{
	struct scene scene;
	CUdeviceptr flag, q;

	flag = free_pile_in_use(&scene);
	flag_await(&scene, 0, scene.t, flag);
	q = get(BIG);
	fill(&scene, scene.s, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}

/* The same when the event of the free could not be recorded in time. */
void scenario_late_event(void)
{
	void (*fail)(const char *, long, long, int) =
		(void (*)(const char *, long, long, int))dlsym(RTLD_DEFAULT, "fakecuda_fail");
	struct scene scene;
	CUdeviceptr flag, q;

	flag = free_pile_in_use(&scene);
	fail("cuCtxRecordEvent", 0, 1, CUDA_ERROR_UNKNOWN);
	flag_await(&scene, 0, scene.t, flag);
	fail(NULL, 0, 0, 0);
	fill(&scene, scene.u, flag + 2048, 1);
	q = get(BIG);
	flag_set(&scene, flag);
	fill(&scene, scene.s, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}

/* Frees in stream order never wait, so a malloc after them must not wait either. */
void scenario_async_frees_behind_flag(void)
{
	struct scene scene;
	struct pile pile;
	CUdeviceptr flag, q;

	scene_open(&scene, 1);
	flag = flag_new();
	many_streams(&scene);
	get_pile(&pile);
	flag_await(&scene, 0, scene.s, flag);
	for (unsigned int i = 0; i < PILE; i++)
		give_async(pile.block[i], scene.s);
	fill(&scene, scene.t, flag + 2048, 1);
	q = get(BIG);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
}

/* ---- another thread's free ---- */

struct freeing { struct scene *scene; struct pile *pile; _Atomic(int) begun, done; };

static void *free_pile(void *arg)
{
	struct freeing *freeing = arg;

	CHECK(cuCtxSetCurrent(freeing->scene->context[0]));
	freeing->begun = 1;
	give_pile(freeing->pile);
	freeing->done = 1;
	return NULL;
}

/* One thread's free waits for the GPU, and only the next calls of the other thread end that wait. */
void scenario_other_threads_free(void)
{
	struct scene scene;
	struct pile pile;
	struct freeing freeing = { .scene = &scene, .pile = &pile };
	CUdeviceptr flag, q;
	pthread_t thread;

	scene_open(&scene, 1);
	flag = flag_new();
	many_streams(&scene);
	get_pile(&pile);
	flag_await(&scene, 0, scene.s, flag);
	pthread_create(&thread, NULL, free_pile, &freeing);
	/* Without the library the free ends only after the next calls. Do not wait so long that this looks like a
	 * hang. */
	for (int i = 0; !freeing.done && i < (cached() ? 5000 : 5); i++)
		usleep(2000);
	fill(&scene, scene.t, flag + 2048, 1);
	q = get(BIG);
	fill(&scene, scene.t, q, 2);
	flag_set(&scene, flag);
	pthread_join(thread, NULL);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* ---- several contexts ---- */

/* A free of one device's memory waits only for that device. */
void scenario_other_devices_flag(void)
{
	struct scene scene;
	struct pile pile;
	CUdeviceptr flag, q;
	CUstream there;

	scene_open(&scene, 2);
	many_streams(&scene);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	flag = flag_new();
	flag_await(&scene, 1, there, flag);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	get_pile(&pile);
	fill(&scene, scene.s, pile.block[0], 1);
	give_pile(&pile);
	fill(&scene, scene.t, pile.block[0] ? get(3 * MIB) : 0, 1);
	q = get(BIG);
	fill(&scene, scene.s, q, 2);
	expect_words(scene.s, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuCtxSynchronize());
}

/* The only stream belongs to the first device. Memory of the second device is freed behind a kernel for which the
 * driver's free would not wait, so the next user of the memory must not wait for it either. */
void scenario_one_stream_elsewhere(void)
{
	struct scene scene;
	CUdeviceptr flag, p, q;
	CUstream there;

	scene_open(&scene, 2);
	flag = get(4096);
	flag_await(&scene, 0, scene.s, flag);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	p = get(2 * MIB);
	give(p);
	q = get(2 * MIB);
	fill_in(&scene, 1, there, q, 2);
	expect_words(there, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	CHECK(cuCtxSynchronize());
}

struct setting { struct scene *scene; CUstream stream; CUdeviceptr flag; _Atomic(int) reused; };

/* Set the flag. Without the library the other thread's free waits for it, so do not set it late. */
static void *set_from_there(void *arg)
{
	struct setting *setting = arg;

	for (int i = 0; !setting->reused && i < (cached() ? 5000 : 5); i++)
		usleep(2000);
	CHECK(cuCtxSetCurrent(setting->scene->context[1]));
	fill_in(setting->scene, 1, setting->stream, setting->flag, 1);
	return NULL;
}

/* While cudaFree waits, the driver lets calls in other contexts through. So the first work of another context must not
 * wait for what cudaFree would have waited for. */
void scenario_other_contexts_flag(void)
{
	struct scene scene;
	struct setting setting = { .scene = &scene };
	CUdeviceptr p, q;
	pthread_t thread;

	scene_open(&scene, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&setting.stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	setting.flag = get(4096);
	CHECK(cuMemsetD32Async(setting.flag, 0, 1024, scene.s));
	p = get(2 * MIB);
	fill(&scene, scene.s, p, 1);
	CHECK(cuCtxSynchronize());
	flag_await(&scene, 0, scene.s, setting.flag);
	pthread_create(&thread, NULL, set_from_there, &setting);
	give(p);
	q = get(2 * MIB);
	fill(&scene, scene.s, q, 2);
	setting.reused = 1;
	pthread_join(thread, NULL);
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}

/* With this driver only the wait inside a free tells that both streams are past it. */
void scenario_old_driver(void)
{
	size_t least = SIZE_MAX, left, total;
	struct scene scene;

	scene_open(&scene, 1);
	many_streams(&scene);
	slow_from_here();
	for (unsigned int i = 0; i < 40; i++) {
		CUdeviceptr p = get(2 * MIB);

		fill(&scene, i % 2 ? scene.s : scene.t, p, i);
		give(p);
		CHECK(cuMemGetInfo(&left, &total));
		least = left < least ? left : least;
	}
	must(least + BIG > total, "%zu of %zu MiB are left", least / MIB, total / MIB);
}

/* The events of a free must cover the work of every context, not only of the last one. */
void scenario_two_devices_work(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;
	CUstream there;

	scene_open(&scene, 2);
	many_streams(&scene);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	other = get(2 * MIB);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	p = get(BIG);
	fill_in(&scene, 1, there, other, 1);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamSynchronize(there));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	CHECK(cuMemsetD8Async(other, 1, 1, there));
	q = get(BIG);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* A peer's kernel writes to memory that is freed. The driver's free does not wait for the kernel (which is the
 * program's responsibility), but the kernel must not overwrite data of the memory's next owner. */
void scenario_peers_only_stream(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	CUstream there;

	scene_open(&scene, 2);
	CHECK(cuCtxEnablePeerAccess(scene.context[1], 0));
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	p = get(BIG);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(BIG);
	fill_in(&scene, 1, there, q, 2);
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[0]));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[1]));
	expect_words(there, q, 2);
}

/* ---- single-stream mode ---- */

/* Free a block, and get it again while the kernel runs. */
static CUdeviceptr reused_early(struct scene *scene)
{
	CUdeviceptr p = get(2 * MIB), q;

	slow_from_here();
	fill(scene, scene->s, p, 1);
	give(p);
	q = get(2 * MIB);
	must(!cached() || q == p, "not handed out again at once");
	return q;
}

void scenario_second_stream(void)
{
	struct scene scene;
	CUdeviceptr q;

	scene_open(&scene, 1);
	q = reused_early(&scene);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* A block is freed early, and not handed out before the second stream has begun. */
void scenario_freed_not_yet_reused(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;

	scene_open(&scene, 1);
	p = get(2 * MIB);
	other = get(4096);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	fill(&scene, scene.t, other, 3);
	q = get(2 * MIB);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

void scenario_third_stream(void)
{
	struct scene scene;
	CUdeviceptr q, other;

	scene_open(&scene, 1);
	other = get(4096);
	q = reused_early(&scene);
	fill(&scene, scene.t, other, 3);
	fill(&scene, scene.u, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.u, q, 2);
}

/* The second stream waits for work before the free, not for later work of the first stream. */
void scenario_second_stream_and_flag(void)
{
	struct scene scene;
	CUdeviceptr q, flag;

	scene_open(&scene, 1);
	flag = get(4096);
	CHECK(cuMemsetD32Async(flag, 0, 1024, scene.s));
	q = reused_early(&scene);
	flag_await(&scene, 0, scene.s, flag);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
}

/* The only stream is destroyed while it has work, and the next stream gets its handle. */
void scenario_stream_handle_again(void)
{
	struct scene scene;
	CUstream again, before;
	CUdeviceptr q;

	scene_open(&scene, 1);
	q = reused_early(&scene);
	before = scene.s;
	CHECK(cuStreamDestroy(scene.s));
	again = NULL;
	for (int i = 0; i < 64 && again != before; i++)
		CHECK(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
	fill(&scene, again, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(again, q, 2);
	must(again == before, "the driver gave another handle: this shows nothing");
}

/* ---- stream order ---- */

/* cudaFreeAsync on one stream behind a kernel that waits, then cudaMalloc for another. */
void scenario_async_free_then_malloc(void)
{
	struct scene scene;
	CUdeviceptr p, q, flag;

	scene_open(&scene, 1);
	flag = get(4096);
	p = get(2 * MIB);
	flag_await(&scene, 0, scene.s, flag);
	give_async(p, scene.s);
	q = get(2 * MIB);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
}

/* The same with a kernel that writes to the freed memory. */
void scenario_async_free_then_malloc_used(void)
{
	struct scene scene;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	many_streams(&scene);
	p = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give_async(p, scene.s);
	q = get(2 * MIB);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* Memory of one stream is freed on another stream, which still uses it, and requested on the first. */
void scenario_async_free_on_another(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	CUevent event;

	scene_open(&scene, 1);
	many_streams(&scene);
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	p = get_async(2 * MIB, scene.s);
	CHECK(cuEventRecord(event, scene.s));
	CHECK(cuStreamWaitEvent(scene.t, event, 0));
	slow_from_here();
	fill(&scene, scene.t, p, 1);
	give_async(p, scene.t);
	q = get_async(2 * MIB, scene.s);
	fill(&scene, scene.s, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}

/* A launch may begin before its predecessor ends. */
void scenario_programmatic(void)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
					.value = { .programmaticStreamSerializationAllowed = 1 } };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				  .blockDimY = 1, .blockDimZ = 1, .attrs = &attribute, .numAttrs = 1 };
	uint32_t value = 2, words = WORDS;
	struct scene scene;
	CUdeviceptr q;
	void *args[] = { &q, &value, &words };

	scene_open(&scene, 1);
	q = reused_early(&scene);
	config.hStream = scene.s;
	CHECK(cuLaunchKernelEx(&config, scene.fill[0], args, NULL));
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}

/* A writer that is no work of a stream writes to device memory: RDMA, GDRCopy. */
void scenario_other_writers(void)
{
	int (*write_past)(uint64_t, const void *, size_t) =
		(int (*)(uint64_t, const void *, size_t))dlsym(RTLD_DEFAULT, "fakecuda_write");
	void (*note)(uint64_t, size_t, int) =
		(void (*)(uint64_t, size_t, int))dlsym(RTLD_DEFAULT, "fakecuda_note_access");
	const char *library = getenv("SCENARIO_WRITERS");
	uint32_t words[WORDS];
	struct scene scene;
	CUdeviceptr p, q;

	if (library && !dlopen(library, RTLD_NOW))
		DIE("%s", dlerror());
	scene_open(&scene, 1);
	p = get(MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(MIB);
	for (unsigned int i = 0; i < WORDS; i++)
		words[i] = 2;
	note(q, sizeof(words), 1);
	write_past(q, words, sizeof(words));
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, q, 2);
}
