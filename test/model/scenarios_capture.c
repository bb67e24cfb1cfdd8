/*
 * scenarios_capture.c - memory while streams are being captured, and inside host functions (see
 * scenario.h).
 *
 * Thread context: one thread, except in capture_meanwhile.
 */
#include <pthread.h>
#include <unistd.h>

#include "test/model/scenario.h"

static void begin(CUstream stream, CUstreamCaptureMode mode)
{
	CHECK(cuStreamBeginCapture(stream, mode));
}

static CUgraphExec end(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphDestroy(graph));
	return exec;
}

/* End the capture on stream t and launch it. It fills @other; stream u has filled @q meanwhile. */
static void launch_and_look(const struct scene *scene, CUdeviceptr q, CUdeviceptr other)
{
	CHECK(cuGraphLaunch(end(scene->t), scene->t));
	CHECK(cuCtxSynchronize());
	expect_words(scene->u, q, 2);
	expect_words(scene->t, other, 2);
}

/* The event of a free is due while another stream captures, and must not be recorded then. */
void scenario_capture_and_event(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;

	scene_open(&scene, 1);
	other = get(4096);
	fill(&scene, scene.s, other, 1);
	fill(&scene, scene.u, get(4096), 1);
	CHECK(cuCtxSynchronize());
	p = get(BIG);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	begin(scene.t, CU_STREAM_CAPTURE_MODE_RELAXED);
	fill(&scene, scene.t, other, 2);
	give(p);
	fill(&scene, scene.u, get(4096), 3);
	q = get(BIG);
	fill(&scene, scene.u, q, 2);
	launch_and_look(&scene, q, other);
}

/* The second stream gets its first work during a strict capture. Our queries of events must not invalidate the
 * capture. */
void scenario_capture_and_transition(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;

	scene_open(&scene, 1);
	other = get(4096);
	p = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(2 * MIB);
	must(!cached() || q == p, "not handed out again at once");
	begin(scene.t, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill(&scene, scene.t, other, 2);
	fill(&scene, scene.u, q, 2);
	launch_and_look(&scene, q, other);
}

/* In a strict capture the driver refuses the call and invalidates the capture; the cache must do the same. */
void scenario_capture_refuses(void)
{
	struct scene scene;
	CUdeviceptr p, q;
	CUgraph graph;
	CUresult result;

	scene_open(&scene, 1);
	p = get(2 * MIB);
	give(get(2 * MIB));
	begin(scene.t, CU_STREAM_CAPTURE_MODE_GLOBAL);
	result = cuMemAlloc(&q, 2 * MIB);
	must(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAlloc: %d", (int)result);
	result = cuStreamEndCapture(scene.t, &graph);
	must(result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the end: %d", (int)result);
	begin(scene.t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	result = cuMemFree(p);
	must(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemFree: %d", (int)result);
	result = cuStreamEndCapture(scene.t, &graph);
	must(result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the end: %d", (int)result);
	give(p);
}

/* Memory is freed in single-stream mode while no event can be recorded for which the second stream could wait. */
void scenario_free_while_capturing(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;

	scene_open(&scene, 1);
	other = get(4096);
	p = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	begin(scene.t, CU_STREAM_CAPTURE_MODE_RELAXED);
	fill(&scene, scene.t, other, 2);
	give(p);
	q = get(2 * MIB);
	fill(&scene, scene.u, q, 2);
	CHECK(cuGraphLaunch(end(scene.t), scene.t));
	CHECK(cuCtxSynchronize());
	expect_words(scene.u, q, 2);
}

/* Captured work does not run yet, so no wait may go into the graph. The launch of the graph is the work. */
void scenario_captured_work(void)
{
	struct scene scene;
	CUgraphExec exec;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	p = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	give(p);
	q = get(2 * MIB);
	must(!cached() || q == p, "not handed out again at once");
	begin(scene.t, CU_STREAM_CAPTURE_MODE_RELAXED);
	fill(&scene, scene.t, q, 2);
	exec = end(scene.t);
	CHECK(cuGraphLaunch(exec, scene.t));
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* A capturing stream is destroyed. Its memory goes back to the pool, and nothing else joins the lost capture. */
void scenario_stream_gone_capturing(void)
{
	struct scene scene;
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr p, q;

	scene_open(&scene, 1);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = get_async(20 * MIB, stream);
	q = get_async(30 * MIB, stream);
	fill(&scene, stream, p, 1);
	give_async(p, stream);
	begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	fill(&scene, stream, q, 2);
	CHECK(cuStreamDestroy(stream));
	give_async(q, scene.s);
	CHECK(cuStreamSynchronize(scene.s));
	CHECK(cuCtxSynchronize());
	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolTrimTo(pool, 0));
	CHECK(cuCtxSynchronize());
	p = get_async(30 * MIB, scene.t);
	fill(&scene, scene.t, p, 3);
	expect_words(scene.t, p, 3);
}

/* ---- captures on another thread, all the while ---- */

struct capturing { struct scene *scene; CUdeviceptr block; _Atomic(int) stop;
		   _Atomic(unsigned long) refused, captures, lost; };

/* Fill memory in a capture that may have been lost meanwhile. */
static void fill_captured(const struct capturing *capturing, uint32_t value)
{
	CUdeviceptr ptr = capturing->block;
	uint32_t words = WORDS;
	void *args[] = { &ptr, &value, &words };
	CUresult result = cuLaunchKernel(capturing->scene->fill[0], 1, 1, 1, 1, 1, 1, 0,
					 capturing->scene->t, args, NULL);

	must(!result || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "captured: %d", (int)result);
}

static void *capture_all_the_time(void *arg)
{
	static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						     CU_STREAM_CAPTURE_MODE_RELAXED,
						     CU_STREAM_CAPTURE_MODE_GLOBAL };
	struct capturing *capturing = arg;

	CHECK(cuCtxSetCurrent(capturing->scene->context[0]));
	for (unsigned int n = 0; !capturing->stop; n++) {
		CUstreamCaptureMode mode = modes[n % 3];
		unsigned long refused = capturing->refused;
		CUgraph graph = NULL;
		CUresult result;

		begin(capturing->scene->t, mode);
		fill_captured(capturing, n);
		sched_yield();
		fill_captured(capturing, n);
		result = cuStreamEndCapture(capturing->scene->t, &graph);
		/* The other thread notes its refused call a little later. */
		if (result && mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
			for (int i = 0; i < 2000 && capturing->refused == refused; i++)
				usleep(1000);
		must(!result || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
				   capturing->refused != refused),
		     "capture %u, mode %d, is lost: %d", n, (int)mode, (int)result);
		capturing->lost += result != 0;
		if (graph)
			CHECK(cuGraphDestroy(graph));
		capturing->captures++;
	}
	return NULL;
}

/* Only a capture in GLOBAL mode may make a call of this thread fail, and then the capture is lost. */
static bool allowed(struct capturing *capturing, CUresult result)
{
	if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		capturing->refused++;
	else
		must(!result, "beside a capture: CUresult %d", (int)result);
	return !result;
}

void scenario_capture_meanwhile(void)
{
	struct capturing capturing = { 0 };
	CUdeviceptr block[24] = { 0 }, scratch;
	bool asynchronous[24] = { 0 };
	struct scene scene;
	pthread_t thread;
	uint32_t draw = 1;

	scene_open(&scene, 1);
	capturing.scene = &scene;
	capturing.block = get(WORDS * 4);
	scratch = get(WORDS * 4);
	pthread_create(&thread, NULL, capture_all_the_time, &capturing);
	for (int n = 0; n < 6000 || capturing.captures < 300; n++) {
		unsigned int i = (draw = draw * 1664525 + 1013904223) >> 16, slot = i % 24;
		size_t bytes = 4096 + (size_t)(i % 97) * 200000;
		CUresult result;

		if (!block[slot]) {
			asynchronous[slot] = i % 5 == 0;
			result = asynchronous[slot] ? cuMemAllocAsync(&block[slot], bytes, scene.s)
						    : cuMemAlloc(&block[slot], bytes);
			if (!allowed(&capturing, result))
				block[slot] = 0;
			else
				fill(&scene, scene.s, block[slot], 1);
			continue;
		}
		result = asynchronous[slot] || i % 7 == 0 ? cuMemFreeAsync(block[slot], scene.s)
							   : cuMemFree(block[slot]);
		if (allowed(&capturing, result))
			block[slot] = 0;
		if (n % 64 == 0)
			allowed(&capturing, cuStreamSynchronize(scene.s));
		if (n % 32 == 0)
			fill(&scene, scene.u, scratch, 1);
	}
	capturing.stop = 1;
	pthread_join(thread, NULL);
	must(capturing.captures > capturing.lost, "every capture was lost");
}

/* ---- host functions ---- */

struct inside { CUdeviceptr ptr; CUresult alloc, free, free_async; };

static void CUDA_CB call_inside(void *arg)
{
	struct inside *inside = arg;
	CUdeviceptr ptr;

	inside->alloc = cuMemAlloc(&ptr, 4096);
	inside->free = cuMemFree(inside->ptr);
	inside->free_async = cuMemFreeAsync(inside->ptr, NULL);
}

static void must_have_refused(const struct inside *inside)
{
	must(inside->alloc == CUDA_ERROR_NOT_PERMITTED && inside->free == CUDA_ERROR_NOT_PERMITTED &&
	     inside->free_async == CUDA_ERROR_NOT_PERMITTED, "inside: %d %d %d", (int)inside->alloc,
	     (int)inside->free, (int)inside->free_async);
}

void scenario_host_function(void)
{
	struct inside inside = { 0 };
	struct scene scene;

	scene_open(&scene, 1);
	give(get(4096));
	inside.ptr = get(4096);
	CHECK(cuLaunchHostFunc(scene.s, call_inside, &inside));
	CHECK(cuStreamSynchronize(scene.s));
	must_have_refused(&inside);
	give(inside.ptr);
}

void scenario_host_node(void)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = call_inside };
	struct inside inside = { 0 };
	struct scene scene;
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	scene_open(&scene, 1);
	give(get(4096));
	inside.ptr = get(4096);
	params.userData = &inside;
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, scene.s));
	CHECK(cuStreamSynchronize(scene.s));
	must_have_refused(&inside);
	give(inside.ptr);
}
