/*
 * scenarios_many.c - thousands of contexts, streams and threads begin and end (see scenario.h).
 *
 * Thread context: one thread, and others for which it waits.
 */
#include <pthread.h>

#include "test/model/scenario.h"

#define CONTEXTS 4200u
#define STREAMS 3000u
#define RESETS 300u
#define THREADS 300u
#define HOMES 300u
#define AT_ONCE 1300u
#define LITTLE (48 * MIB)		/* room for a few segments, not for one each */

static size_t charged(void)
{
	return ((uint64_t (*)(int))control("fakecuda_charged_bytes"))(0);
}

static void holds_little(const char *what)
{
	must(charged() <= LITTLE, "%s: the device has %zu MiB less", what, charged() / MIB);
}

static void keep_all(void)
{
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* Return how many KiB of anonymous memory the process has in use. */
static long anonymous_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "RssAnon:", 8))
			kib = strtol(line + 8, NULL, 10);
	if (status)
		fclose(status);
	return kib;
}

void scenario_many_contexts(void)
{
	long before = 0, grown;
	CUctxCreateParams params = { 0 };
	struct scene scene;
	CUcontext context;
	CUdeviceptr p;

	scene_open(&scene, 1);
	for (unsigned int i = 0; i < CONTEXTS; i++) {
		if (i == CONTEXTS / 2)
			before = anonymous_kib();
		CHECK(cuCtxCreate(&context, &params, 0, 0));
		CHECK(cuMemAlloc(&p, 4096));
		CHECK(cuCtxDestroy(context));
	}
	grown = anonymous_kib() - before;
	if (getenv("SCENARIO_TELL"))
		fprintf(stderr, "grown %ld KiB\n", grown);
	must(grown < 1500, "%ld KiB more after %u more contexts", grown, CONTEXTS / 2);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	slow_from_here();
	fill(&scene, scene.t, flag_new(), 1);
	p = get(60 * MIB);
	fill(&scene, scene.s, p, 1);
	give(p);
	p = get(56 * MIB);
	fill(&scene, scene.t, p, 2);
	expect_words(scene.t, p, 2);
}

/* Only the driver could reuse the memory that a destroyed stream leaves. */
void scenario_many_streams(void)
{
	uint64_t (*calls)(const char *) = (uint64_t (*)(const char *))control("fakecuda_calls");
	uint64_t before = 0;
	struct scene scene;

	scene_open(&scene, 1);
	keep_all();
	for (unsigned int i = 0; i < STREAMS; i++) {
		CUstream stream;
		CUdeviceptr p;

		if (i == STREAMS - 100)
			before = calls(NULL);
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		p = get_async(MIB, stream);
		fill(&scene, stream, p, i);
		give_async(p, stream);
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuStreamDestroy(stream));
		holds_little("streams");
	}
	must(calls(NULL) - before < 100 * 100, "%llu calls for a stream",
	     (unsigned long long)(calls(NULL) - before) / 100);
}

void scenario_many_resets(void)
{
	struct scene scene;

	scene_open(&scene, 1);
	keep_all();
	for (unsigned int i = 0; i < RESETS; i++) {
		CUdeviceptr p = get_async(MIB, CU_STREAM_LEGACY);

		CHECK(cuMemsetD32Async(p, i, 1024, CU_STREAM_LEGACY));
		give_async(p, CU_STREAM_LEGACY);
		CHECK(cuDevicePrimaryCtxReset(0));
		CHECK(cuDevicePrimaryCtxRetain(&scene.context[0], 0));
		CHECK(cuCtxSetCurrent(scene.context[0]));
		holds_little("resets");
	}
}

static void given_back(void)
{
	CUdeviceptr p = get_async(MIB, CU_STREAM_LEGACY);

	CHECK(cuMemsetD32Async(p, 1, 1024, CU_STREAM_LEGACY));
	give_async(p, CU_STREAM_LEGACY);
	CHECK(cuCtxSynchronize());
}

/* Each release may end the primary context. The pool's heap keeps its streams for the case that it does not. */
void scenario_many_releases(void)
{
	uint64_t (*calls)(const char *) = (uint64_t (*)(const char *))control("fakecuda_calls");
	CUctxCreateParams params = { 0 };
	CUcontext context, primary;
	uint64_t before;
	struct scene scene;

	scene_open(&scene, 1);
	given_back();
	before = calls("cuStreamCreate");
	for (unsigned int i = 0; i < RESETS; i++) {
		CHECK(cuCtxCreate(&context, &params, 0, 0));
		CHECK(cuCtxSetCurrent(scene.context[0]));
		given_back();
		CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
		CHECK(cuDevicePrimaryCtxRelease(0));
		given_back();
		CHECK(cuCtxDestroy(context));
	}
	must(calls("cuStreamCreate") - before <= RESETS, "%llu streams",
	     (unsigned long long)(calls("cuStreamCreate") - before));
}

/* Make and end another context of the device. */
static void *in_its_own_context(void *arg)
{
	CUctxCreateParams params = { 0 };

	(void)arg;
	for (unsigned int i = 0; i < HOMES; i++) {
		CUcontext context;
		CUstream stream;
		CUdeviceptr p;

		CHECK(cuCtxCreate(&context, &params, 0, 1));
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		p = get_async(MIB, stream);
		CHECK(cuMemsetD32Async(p, i, 1024, stream));
		give_async(p, stream);
		CHECK(cuCtxSynchronize());	/* the pool keeps nothing */
		CHECK(cuCtxDestroy(context));
	}
	return NULL;
}

void scenario_pool_without_home(void)
{
	struct scene scene;
	pthread_t threads[2];

	scene_open(&scene, 1);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, in_its_own_context, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void *on_its_own_stream(void *arg)
{
	CUdeviceptr p;

	CHECK(cuCtxSetCurrent(arg));
	p = get_async(MIB, CU_STREAM_PER_THREAD);
	CHECK(cuMemsetD32Async(p, 1, 1024, CU_STREAM_PER_THREAD));
	give_async(p, CU_STREAM_PER_THREAD);
	CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return NULL;
}

void scenario_many_threads(void)
{
	struct scene scene;
	pthread_t thread;

	scene_open(&scene, 1);
	keep_all();
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_create(&thread, NULL, on_its_own_stream, scene.context[0]);
		pthread_join(thread, NULL);
		holds_little("threads");
	}
}

static pthread_barrier_t all_have;

static void *beside_the_others(void *arg)
{
	CUdeviceptr p;

	CHECK(cuCtxSetCurrent(arg));
	p = get_async(MIB, CU_STREAM_PER_THREAD);
	pthread_barrier_wait(&all_have);
	give_async(p, CU_STREAM_PER_THREAD);
	return NULL;
}

/* All threads run at once; afterwards the pool keeps nothing. */
void scenario_many_threads_at_once(void)
{
	pthread_t threads[AT_ONCE];
	pthread_attr_t small;
	struct scene scene;

	scene_open(&scene, 1);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 << 10);
	pthread_barrier_init(&all_have, NULL, AT_ONCE);
	for (unsigned int i = 0; i < AT_ONCE; i++)
		pthread_create(&threads[i], &small, beside_the_others, scene.context[0]);
	for (unsigned int i = 0; i < AT_ONCE; i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < 4; i++)
		CHECK(cuCtxSynchronize());
	holds_little("threads that were there at once");
}

/* A stream ends with its context, and leaves memory. The next stream gets its handle. */
void scenario_handle_after_context(void)
{
	CUdeviceptr p, left, other;
	struct scene scene;
	CUstream s;

	scene_open(&scene, 1);
	s = scene.s;
	p = get_async(4096, s);
	left = get_async(4096, s);
	give_async(p, s);
	CHECK(cuDevicePrimaryCtxRelease(0));
	scene_open(&scene, 1);
	must(scene.s == s || scene.t == s || scene.u == s, "the driver gave other handles: this shows nothing");
	other = get(4096);
	slow_from_here();
	fill(&scene, s, other, 1);
	p = get_async(4096, s);
	CHECK(cuMemsetD32Async(p, 1, WORDS, s));
	give_async(p, s);
	give_async(left, s);
	left = get(BIG);
	CHECK(cuStreamSynchronize(scene.s == s ? scene.t : scene.s));	/* the pool keeps nothing */
	CHECK(cuCtxSynchronize());
	give(left);
}
