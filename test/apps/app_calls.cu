/* app_calls.cu - which driver entry points each runtime call makes, seen by the fake driver.
 *
 * A line "call: cuName cuName*2 ..." for each, names in the order of queries.def, without those
 * that a runtime asks about itself at start. test_runtime.py compares them with what NVIDIA's
 * runtime was recorded to call. On a real GPU nobody counts, and it says so.
 */
#include "test/apps/app.h"

static const char *const names[] = {
#define CUDART_QUERY(name, version, flags) #name,
#include "test/fakecuda/cudart/queries.def"
#undef CUDART_QUERY
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static decltype(&fakecuda_calls) calls;
static uint64_t before[NAMES];

static void begin(void)
{
	for (size_t i = 0; i < NAMES; i++)
		before[i] = calls(names[i]);
}

static void end(const char *what, cudaError_t error)
{
	printf("%s [%d]:", what, (int)error);
	for (size_t i = 0; i < NAMES; i++) {
		uint64_t made = calls(names[i]) - before[i];
		bool seen = false;

		for (size_t j = 0; j < i && !seen; j++)	/* asked in several versions */
			seen = !strcmp(names[i], names[j]);
		if (made == 1 && !seen)
			printf(" %s", names[i]);
		else if (made && !seen)
			printf(" %s*%llu", names[i], (unsigned long long)made);
	}
	putchar('\n');
	fflush(stdout);
	cudaGetLastError();
}

#define CALL(call)                                                                             \
	do {                                                                                   \
		cudaError_t call_error;                                                        \
		begin();                                                                       \
		call_error = (call);                                                           \
		end(#call, call_error);                                                        \
	} while (0)

#define LAUNCH(what, launch)                                                                   \
	do {                                                                                   \
		begin();                                                                       \
		launch;                                                                        \
		end(what, cudaGetLastError());                                                 \
	} while (0)

static void memory(void)
{
	struct cudaPointerAttributes attributes;
	cudaIpcMemHandle_t handle;
	size_t pitch, free_bytes, total_bytes;
	cudaPitchedPtr box;
	static char b[65536];
	void *p, *q, *h;

	CALL(cudaMemGetInfo(&free_bytes, &total_bytes));
	CALL(cudaMalloc(&p, 1 << 20));
	CALL(cudaMalloc(&q, 0));
	CALL(cudaMemset(p, 1, 100));
	CALL(cudaMemcpy(p, b, 100, cudaMemcpyHostToDevice));
	CALL(cudaMemcpy(p, b, 65536, cudaMemcpyHostToDevice));
	CALL(cudaMemcpy(b, p, 100, cudaMemcpyDeviceToHost));
	CALL(cudaMemcpy((char *)p + 4096, p, 100, cudaMemcpyDeviceToDevice));
	CALL(cudaMemcpy(b, p, 100, cudaMemcpyDefault));
	CALL(cudaPointerGetAttributes(&attributes, p));
	CALL(cudaPointerGetAttributes(&attributes, b));
	CALL(cudaIpcGetMemHandle(&handle, p));
	CALL(cudaFree(p));
	CALL(cudaMallocPitch(&p, &pitch, 1000, 10));
	CALL(cudaMemset2D(p, pitch, 1, 1000, 10));
	CALL(cudaFree(p));
	CALL(cudaMalloc3D(&box, make_cudaExtent(100, 4, 4)));
	CALL(cudaFree(box.ptr));
	CALL(cudaMallocHost(&h, 4096));
	CALL(cudaFreeHost(h));
	CALL(cudaHostAlloc(&h, 4096, 0));
	CALL(cudaFreeHost(h));
	CALL(cudaMallocManaged(&p, 4096));
	CALL(cudaFree(p));
}

static void arrays(void)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	static char b[256 * 8];
	cudaArray_t a;

	CALL(cudaMallocArray(&a, &format, 64, 8));
	CALL(cudaMemcpy2DToArray(a, 0, 0, b, 256, 256, 8, cudaMemcpyHostToDevice));
	CALL(cudaFreeArray(a));
}

static void streams(cudaStream_t s, cudaStream_t s2)
{
	uint64_t u = 1 << 20;
	static char b[100];
	cudaMemPool_t pool;
	cudaEvent_t e;
	void *p;

	CALL(cudaEventCreate(&e));
	CALL(cudaEventDestroy(e));
	CALL(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CALL(cudaEventRecord(e, s));
	CALL(cudaEventSynchronize(e));
	CALL(cudaEventQuery(e));
	CALL(cudaStreamWaitEvent(s2, e, 0));
	CALL(cudaStreamSynchronize(s));
	CALL(cudaStreamQuery(s));
	CALL(cudaMallocAsync(&p, 1 << 20, s));
	CALL(cudaMemsetAsync(p, 1, 100, s));
	CALL(cudaMemcpyAsync(p, b, 100, cudaMemcpyHostToDevice, s));
	LAUNCH("first launch", (fill<<<1, 1, 0, s>>>((uint32_t *)p, 1u, 1u)));
	LAUNCH("second launch", (fill<<<1, 1, 0, s>>>((uint32_t *)p, 1u, 1u)));
	CALL(cudaFreeAsync(p, s));
	CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
	CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &u));
	CALL(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &u));
	CALL(cudaMemPoolTrimTo(pool, 0));
	CALL(cudaEventDestroy(e));
}

static void graphs(cudaStream_t s)
{
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaStreamCaptureStatus status;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	void *kept;

	CHECK(cudaMalloc(&kept, 4096));
	CALL(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	CALL(cudaStreamIsCapturing(s, &status));
	LAUNCH("captured launch", (fill<<<1, 1, 0, s>>>((uint32_t *)kept, 1u, 1u)));
	CALL(cudaStreamEndCapture(s, &graph));
	CALL(cudaGraphInstantiate(&exec, graph, 0));
	CALL(cudaGraphLaunch(exec, s));
	CALL(cudaStreamSynchronize(s));
	CALL(cudaGraphExecDestroy(exec));
	CALL(cudaGraphDestroy(graph));
	CALL(cudaThreadExchangeStreamCaptureMode(&mode));
	CALL(cudaThreadExchangeStreamCaptureMode(&mode));
	CHECK(cudaFree(kept));
}

int main(void)
{
	struct cudaDeviceProp prop;
	cudaStream_t s, s2;
	int count;
	void *p;

	/* Loads the driver and no more, so that its counters can be found before the first call. */
	CHECK(cudaDriverGetVersion(&count));
	calls = FAKE(fakecuda_calls);
	if (!calls) {
		say("skip: no fake device");
		return 0;
	}
	CALL(cudaGetDeviceCount(&count));
	CALL(cudaSetDevice(0));
	CALL(cudaFree(0));
	CALL(cudaGetDeviceProperties(&prop, 0));
	memory();
	arrays();
	CALL(cudaStreamCreate(&s));
	CALL(cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking));
	streams(s, s2);
	graphs(s);
	CALL(cudaStreamDestroy(s));
	CALL(cudaDeviceSynchronize());
	CALL(cudaMalloc(&p, 1ull << 50));
	CALL(cudaDeviceReset());
	CALL(cudaMalloc(&p, 100));
	say("app_calls: done");
	return 0;
}
