/*
 * scenarios_pool.c - stream-ordered memory on a device that is short of it: memory is freed on one stream and
 * requested on another (see scenario.h). The device has 96 MiB.
 *
 * Thread context: one thread, except in growth_beside_flag.
 */
#include <pthread.h>
#include <unistd.h>

#include "test/model/scenario.h"

#define FIRST (60 * MIB)
#define SECOND (56 * MIB)		/* the device has no room for both blocks */
#define SMALL 60u			/* blocks of 1 MiB in place of the first block */

/* Let the pool keep its memory at a synchronise. */
static void keep_all(void)
{
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* Get the second block on stream t, whose work then ends the kernel that waits for @flag. */
static void second_sets(struct scene *scene, CUdeviceptr flag)
{
	CUdeviceptr q = get_async(SECOND, scene->t);

	fill(scene, scene->t, q, 2);
	CHECK(cuStreamWriteValue32(scene->t, flag, 1, 0));
	CHECK(cuStreamSynchronize(scene->t));
	expect_words(scene->t, q, 2);
	CHECK(cuCtxSynchronize());
}

static void used_and_freed(struct scene *scene, CUstream stream)
{
	CUdeviceptr p = get_async(FIRST, stream);

	fill(scene, stream, p, 1);
	give_async(p, stream);
}

static void freed_before_flag(struct scene *scene, CUstream stream)
{
	CUdeviceptr flag = flag_new();

	keep_all();
	used_and_freed(scene, stream);
	CHECK(cuStreamSynchronize(stream));
	flag_await(scene, 0, stream, flag);
	second_sets(scene, flag);
}

/* The work before the free is complete. Later work of the stream waits for the user of the second block. */
void scenario_freed_before_flag(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	freed_before_flag(&scene, scene.s);
}

/* The same when the device was never short of memory before. */
void scenario_freed_before_flag_half(void)
{
	CUdeviceptr flag, q;
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	keep_all();
	q = get_async(24 * MIB, scene.s);
	fill(&scene, scene.s, q, 1);
	give_async(q, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	flag_await(&scene, 0, scene.s, flag);
	q = get_async(76 * MIB, scene.t);
	fill(&scene, scene.t, q, 2);
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	CHECK(cuStreamSynchronize(scene.t));
	expect_words(scene.t, q, 2);
	CHECK(cuCtxSynchronize());
}

void scenario_freed_before_flag_default(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	freed_before_flag(&scene, CU_STREAM_LEGACY);
}

/* The legacy stream waits for these streams, and they wait for it, so the library must give it no work of its own.
 * @pending: the legacy stream's own work is pending. */
static void legacy_left_alone(bool pending)
{
	CUdeviceptr flag, other, p;
	struct scene scene;
	CUstream a, b;

	scene_open(&scene, 1);
	keep_all();
	flag = flag_new();
	other = flag_new();
	CHECK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
	CHECK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
	p = get_async(4096, CU_STREAM_LEGACY);
	fill(&scene, CU_STREAM_LEGACY, p, 1);
	if (pending)
		flag_await(&scene, 0, CU_STREAM_LEGACY, other);
	give_async(p, CU_STREAM_LEGACY);
	if (pending)
		flag_set(&scene, other);
	else
		CHECK(cuCtxSynchronize());
	flag_await(&scene, 0, a, flag);
	p = get_async(40 * MIB, b);		/* the heap grows */
	fill(&scene, b, p, 2);
	CHECK(cuStreamWriteValue32(b, flag, 1, 0));
	expect_words(b, p, 2);
	give_async(p, b);
	CHECK(cuCtxSynchronize());
}

void scenario_legacy_left_alone(void)
{
	legacy_left_alone(false);
}

void scenario_legacy_left_alone_pending(void)
{
	legacy_left_alone(true);
}

/* The same after a capture prevented the event of an earlier free from being recorded. */
void scenario_freed_before_flag_captured(void)
{
	struct scene scene;
	CUgraph graph;
	CUdeviceptr p;

	scene_open(&scene, 1);
	keep_all();
	p = get_async(FIRST, CU_STREAM_LEGACY);
	CHECK(cuStreamBeginCapture(scene.u, CU_STREAM_CAPTURE_MODE_RELAXED));
	give_async(p, CU_STREAM_LEGACY);
	CHECK(cuStreamEndCapture(scene.u, &graph));
	freed_before_flag(&scene, CU_STREAM_LEGACY);
}

void scenario_freed_before_flag_thread(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	freed_before_flag(&scene, CU_STREAM_PER_THREAD);
}

/* The same with a stream that had memory once, but none when the device first became more than half full. */
void scenario_freed_before_flag_again(void)
{
	CUdeviceptr flag, p;
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	give_async(get_async(MIB, scene.s), scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	used_and_freed(&scene, scene.u);
	CHECK(cuStreamSynchronize(scene.u));
	p = get_async(FIRST, scene.s);
	fill(&scene, scene.s, p, 1);
	CHECK(cuStreamSynchronize(scene.s));
	give(p);
	flag_await(&scene, 0, scene.s, flag);
	second_sets(&scene, flag);
}

void scenario_freed_before_flag_small(void)
{
	CUdeviceptr flag, p[SMALL];
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	keep_all();
	for (unsigned int i = 0; i < SMALL; i++)
		p[i] = get_async(MIB, scene.s);
	for (unsigned int i = 0; i < SMALL; i++)
		give_async(p[i], scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	flag_await(&scene, 0, scene.s, flag);
	second_sets(&scene, flag);
}

/* The host reads the second block into its own memory, which is not pinned. */
void scenario_freed_before_flag_read(void)
{
	CUdeviceptr flag, q;
	struct scene scene;
	uint32_t word = 0;

	scene_open(&scene, 1);
	flag = flag_new();
	keep_all();
	used_and_freed(&scene, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	flag_await(&scene, 0, scene.s, flag);
	q = get_async(SECOND, scene.t);
	fill(&scene, scene.t, q, 2);
	CHECK(cuMemcpyDtoHAsync(&word, q, sizeof(word), scene.t));
	CHECK(cuStreamSynchronize(scene.t));
	must(word == 2, "read %u", word);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
}

/* Synchronising another stream gives idle memory back, but must not do so behind the waiting kernel. */
void scenario_synchronise_before_flag(void)
{
	CUdeviceptr flag;
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	used_and_freed(&scene, scene.s);
	flag_await(&scene, 0, scene.s, flag);
	fill(&scene, scene.u, flag + 2048, 1);
	CHECK(cuStreamSynchronize(scene.u));
	second_sets(&scene, flag);
}

/* The same with cudaMalloc, which has no stream order. */
void scenario_freed_before_flag_malloc(void)
{
	CUdeviceptr flag, q;
	struct scene scene;

	scene_open(&scene, 1);
	flag = flag_new();
	used_and_freed(&scene, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	flag_await(&scene, 0, scene.s, flag);
	q = get(SECOND);
	fill(&scene, scene.t, q, 2);
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	CHECK(cuStreamSynchronize(scene.t));
	expect_words(scene.t, q, 2);
}

/* Memory is freed in stream order while a stream captures. The same stream gets it at once, another stream when the
 * free is complete. */
void scenario_freed_while_capturing(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	CUgraph graph;

	scene_open(&scene, 1);
	keep_all();
	p = get_async(FIRST, scene.s);
	fill(&scene, scene.s, p, 1);
	CHECK(cuStreamBeginCapture(scene.u, CU_STREAM_CAPTURE_MODE_RELAXED));
	give_async(p, scene.s);
	p = get_async(FIRST, scene.s);
	fill(&scene, scene.s, p, 2);
	expect_words(scene.s, p, 2);
	give_async(p, scene.s);
	q = get_async(SECOND, scene.t);
	fill(&scene, scene.t, q, 3);
	expect_words(scene.t, q, 3);
	CHECK(cuStreamEndCapture(scene.u, &graph));
	give_async(q, scene.t);
}

static void freed_and_wanted(bool gone)
{
	struct scene scene;
	CUdeviceptr q;

	scene_open(&scene, 1);
	slow_from_here();
	used_and_freed(&scene, scene.s);
	if (gone)
		CHECK(cuStreamDestroy(scene.s));
	q = get_async(SECOND, scene.t);
	fill(&scene, scene.t, q, 2);
	expect_words(scene.t, q, 2);
}

/* The free is not complete when another stream requests the memory: the driver makes that stream wait, on the
 * device. */
void scenario_freed_and_wanted(void)
{
	freed_and_wanted(false);
}

/* The same when the freeing stream has been destroyed. */
void scenario_freed_and_wanted_gone(void)
{
	freed_and_wanted(true);
}

/* Memory that PyTorch's pluggable interface freed in stream order must not go back to the driver while it is in use. */
void scenario_torch_freed_in_use(void)
{
	void *(*torch_malloc)(ssize_t, int, CUstream) =
		(void *(*)(ssize_t, int, CUstream))dlsym(RTLD_DEFAULT, "gpumem_torch_malloc");
	void (*torch_free)(void *, ssize_t, int, CUstream) =
		(void (*)(void *, ssize_t, int, CUstream))dlsym(RTLD_DEFAULT, "gpumem_torch_free");
	void (*empty)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gpumem_empty_cache");
	struct scene scene;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	slow_from_here();
	p = (CUdeviceptr)(uintptr_t)torch_malloc((ssize_t)FIRST, 0, scene.s);
	fill(&scene, scene.s, p, 1);
	torch_free((void *)(uintptr_t)p, (ssize_t)FIRST, 0, scene.s);
	empty();
	if (!cuMemAlloc(&q, SECOND)) {
		fill(&scene, scene.t, q, 2);
		expect_words(scene.t, q, 2);
	}
	CHECK(cuCtxSynchronize());
	q = get(SECOND);
	fill(&scene, scene.t, q, 3);
	expect_words(scene.t, q, 3);
}

struct other { struct scene *scene; CUdeviceptr p; _Atomic(int) freeing; };

/* The driver would make this thread wait in its free, so it may wait in its next call. */
static void *frees_and_wants(void *arg)
{
	struct other *other = arg;

	CHECK(cuCtxSetCurrent(other->scene->context[0]));
	other->freeing = 1;
	give(other->p);
	give(get(SECOND));
	return NULL;
}

/* A thread that is short of memory waits for a flag. The thread that sets the flag needs memory first, of which
 * there is enough. */
void scenario_growth_beside_flag(void)
{
	struct other other = { 0 };
	struct scene scene;
	CUdeviceptr flag, q;
	pthread_t thread;

	scene_open(&scene, 1);
	flag = flag_new();
	fill(&scene, scene.t, flag + 2048, 1);
	CHECK(cuCtxSynchronize());
	other.scene = &scene;
	other.p = get(FIRST);
	flag_await(&scene, 0, scene.s, flag);
	pthread_create(&thread, NULL, frees_and_wants, &other);
	while (!other.freeing)
		usleep(1000);
	usleep(50000);
	q = get(25 * MIB);
	fill(&scene, scene.t, q, 2);
	CHECK(cuStreamWriteValue32(scene.t, flag, 1, 0));
	pthread_join(thread, NULL);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}
