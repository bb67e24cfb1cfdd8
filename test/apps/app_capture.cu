/* app_capture.cu - stream capture, with allocations inside, in each mode.
 *
 * What the driver refuses inside a capture it must refuse with an interposer too, with the same
 * error and the same consequence for the capture; what it allows must be allowed.
 */
#include <pthread.h>

#include "test/apps/app.h"

static const struct {
	cudaStreamCaptureMode mode;
	const char *name;
} modes[] = {
	{ cudaStreamCaptureModeGlobal, "global" },
	{ cudaStreamCaptureModeThreadLocal, "thread-local" },
	{ cudaStreamCaptureModeRelaxed, "relaxed" },
};

/* A graph that fills memory of its own and of the program's, launched three times. */
static void captured_work(cudaStreamCaptureMode mode, const char *name)
{
	uint32_t *kept, *inside;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraph_t graph;
	bool right = true;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc(&kept, 40000));
	CHECK(cudaMemset(kept, 0, 40000));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaStreamBeginCapture(stream, mode));
	CHECK(cudaMallocAsync(&inside, 40000, stream));
	fill<<<blocks_for(10000), 256, 0, stream>>>(inside, 5u, 10000u);
	add<<<blocks_for(10000), 256, 0, stream>>>(kept, 1u, 10000u);
	CHECK(cudaGetLastError());
	CHECK(cudaFreeAsync(inside, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (uint32_t i = 1; i <= 3; i++) {
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		right = right && holds_word(kept, i, 10000);
	}
	say("%s: a graph launched three times: %s", name, right ? "ok" : "wrong");
	if (!right)
		exit(1);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDeviceGraphMemTrim(0));
	CHECK(cudaFree(kept));
	CHECK(cudaStreamDestroy(stream));
}

/* cudaMalloc, or cudaFree of @victim when it is given, while a stream is being captured. */
static void inside_capture(cudaStreamCaptureMode mode, const char *name, bool free_it)
{
	void *victim, *ptr = NULL;
	cudaStream_t stream;
	cudaGraph_t graph = NULL;
	cudaError_t error, end;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc(&victim, 1000));
	CHECK(cudaStreamBeginCapture(stream, mode));
	error = free_it ? cudaFree(victim) : cudaMalloc(&ptr, 1000);
	end = cudaStreamEndCapture(stream, &graph);
	say("%s: %s returns %d, the capture's end %d, a graph: %s", name,
	    free_it ? "cudaFree" : "cudaMalloc", (int)error, (int)end, graph ? "yes" : "no");
	cudaGetLastError();
	if (graph)
		CHECK(cudaGraphDestroy(graph));
	if (!free_it || error != cudaSuccess)
		CHECK(cudaFree(victim));
	if (ptr)
		CHECK(cudaFree(ptr));
	CHECK(cudaStreamDestroy(stream));
}

struct other_thread {
	bool relax;
	cudaError_t error;
	void *ptr;
};

static void *allocate_elsewhere(void *arg)
{
	struct other_thread *other = (struct other_thread *)arg;
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

	if (other->relax)
		CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
	other->error = cudaMalloc(&other->ptr, 1000);
	cudaGetLastError();
	return NULL;
}

/* Another thread's cudaMalloc during a capture of this one. */
static void from_another_thread(cudaStreamCaptureMode mode, const char *name, bool relax)
{
	struct other_thread other = { relax, cudaSuccess, NULL };
	cudaGraph_t graph = NULL;
	cudaStream_t stream;
	pthread_t thread;
	cudaError_t end;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamBeginCapture(stream, mode));
	if (pthread_create(&thread, NULL, allocate_elsewhere, &other))
		DIE("pthread_create");
	pthread_join(thread, NULL);
	end = cudaStreamEndCapture(stream, &graph);
	say("%s: cudaMalloc of another thread%s returns %d, the capture's end %d", name,
	    relax ? ", relaxed," : "", (int)other.error, (int)end);
	cudaGetLastError();
	if (graph)
		CHECK(cudaGraphDestroy(graph));
	if (other.ptr)
		CHECK(cudaFree(other.ptr));
	CHECK(cudaStreamDestroy(stream));
}

/* A second stream drawn into the capture by an event, with an allocation on each. */
static void joined_streams(void)
{
	cudaStream_t first, second;
	cudaEvent_t fork_event, join_event;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	size_t nodes = 0;
	void *a, *b;

	CHECK(cudaStreamCreate(&first));
	CHECK(cudaStreamCreate(&second));
	CHECK(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
	CHECK(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
	CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	CHECK(cudaMallocAsync(&a, 1 << 20, first));
	CHECK(cudaEventRecord(fork_event, first));
	CHECK(cudaStreamWaitEvent(second, fork_event, 0));
	CHECK(cudaMallocAsync(&b, 1 << 20, second));
	CHECK(cudaMemsetAsync(b, 2, 1 << 20, second));
	CHECK(cudaMemsetAsync(a, 1, 1 << 20, first));
	CHECK(cudaFreeAsync(b, second));
	CHECK(cudaEventRecord(join_event, second));
	CHECK(cudaStreamWaitEvent(first, join_event, 0));
	CHECK(cudaFreeAsync(a, first));
	CHECK(cudaStreamEndCapture(first, &graph));
	CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
	expect(nodes == 6, "two streams in one capture, six nodes");
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, first));
	CHECK(cudaStreamSynchronize(first));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDeviceGraphMemTrim(0));
	CHECK(cudaEventDestroy(fork_event));
	CHECK(cudaEventDestroy(join_event));
	CHECK(cudaStreamDestroy(first));
	CHECK(cudaStreamDestroy(second));
}

/* A kernel's first launch loads its module, which a capture may refuse. */
static void warm_up(void)
{
	uint32_t *word;

	CHECK(cudaMalloc(&word, sizeof(*word)));
	fill<<<1, 1>>>(word, 1u, 1u);
	add<<<1, 1>>>(word, 1u, 1u);
	CHECK(cudaDeviceSynchronize());
	expect(holds_word(word, 2, 1), "kernels");
	CHECK(cudaFree(word));
}

int main(void)
{
	warm_up();
	for (auto &mode : modes) {
		captured_work(mode.mode, mode.name);
		inside_capture(mode.mode, mode.name, false);
		inside_capture(mode.mode, mode.name, true);
		from_another_thread(mode.mode, mode.name, false);
		from_another_thread(mode.mode, mode.name, true);
	}
	joined_streams();
	checkpoint("all freed");
	say("app_capture: done");
	return 0;
}
