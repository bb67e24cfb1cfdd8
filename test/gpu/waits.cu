/* waits.cu - a kernel waits for a word that another thread's call sets while this one frees memory,
 * or that comes after memory which the device is short of. Which such programs end alone is the
 * driver's to say; all of those have to end under the library.
 *
 * usage: waits CASE
 *   stream   the other thread's work is on a second stream of the same context
 *   used     the same, and that stream had work before
 *   green    on a stream of a green context
 *   context  a copy from another context of the device to this one
 *   peer     a kernel of the second device, whose context was made before
 *   later    the same, the context is made while the free waits (docs/limits.md)
 *   pool     40% of the device freed in stream order before the kernel, 85% wanted on a second stream,
 *            whose work sets the word
 * Prints "CASE: ended" or "CASE: hung": the kernel gave up after three seconds. Or
 * "skip: REASON".
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include "wait.cuh"

static CUcontext here, there;
static CUdeviceptr word, late, one;	/* one: a word that is 1, in the context of who sets */
static cudaStream_t a;
static CUstream b;
static std::atomic<bool> reused;

__global__ void set(int *word)
{
	*word = 1;
}

static bool is(const char *name)
{
	return !strcmp(which, name);
}

static void launch_wait()
{
	wait<<<1, 1, 0, a>>>((volatile int *)word, (int *)late, 3);
	CHECK(cudaGetLastError());
}

/* Of the second device, which may write to this one's memory. */
static void make_peer()
{
	cudaFuncAttributes attributes;
	int devices;

	CHECK(cuDeviceGetCount(&devices));
	if (devices < 2) {
		puts("skip: 2 devices wanted");
		exit(0);
	}
	CHECK(cuDevicePrimaryCtxRetain(&there, 1));
	CHECK(cuCtxSetCurrent(there));
	CHECK(cuCtxEnablePeerAccess(here, 0));
	CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cudaFuncGetAttributes(&attributes, set));		/* loaded, but no work yet */
	CHECK(cuCtxSetCurrent(here));
}

/* Another context on the device, or another that works in this one; its stream, its word. */
static void make_context()
{
	if (is("peer") || is("later")) {
		make_peer();
		return;
	}
	if (is("green")) {
		CUdevResource all, part;
		CUdevResourceDesc desc;
		unsigned int groups = 1;
		CUgreenCtx green;

		CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
		CHECK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
		CHECK(cuDevResourceGenerateDesc(&desc, &part, 1));
		CHECK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
		CHECK(cuCtxFromGreenCtx(&there, green));
		CHECK(cuGreenCtxStreamCreate(&b, green, CU_STREAM_NON_BLOCKING, 0));
		return;
	}
	CHECK(cuCtxCreate(&there, NULL, 0, 0));
	CHECK(cuMemAlloc(&one, 4));
	CHECK(cuMemsetD32(one, 1, 1));
	CHECK(cuCtxSynchronize());
	CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxSetCurrent(here));
}

static void set_word()
{
	for (int i = 0; !reused && i < 50; i++)
		usleep(10000);			/* natively the free is waiting by then */
	if (is("later"))
		make_context();
	CHECK(cuCtxSetCurrent(there));
	if (is("context"))
		CHECK(cuMemcpyPeerAsync(word, here, one, there, 4, b));
	else if (is("peer") || is("later"))
		set<<<1, 1, 0, b>>>((int *)word);
	else
		CHECK(cuMemsetD32Async(word, 1, 1, b));
}

static void free_and_reuse()
{
	void *p, *q;

	CHECK(cudaMalloc(&p, 8 << 20));
	CHECK(cudaMemsetAsync(p, 0, 8 << 20, a));
	CHECK(cudaStreamSynchronize(a));
	launch_wait();

	std::thread other(set_word);

	CHECK(cudaFree(p));
	CHECK(cudaMalloc(&q, 8 << 20));
	CHECK(cudaMemsetAsync(q, 1, 8 << 20, a));
	reused = true;
	other.join();
	CHECK(cudaStreamSynchronize(a));
}

static void free_in_order()
{
	size_t free_bytes, total_bytes;
	void *p, *q;

	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	CHECK(cudaMallocAsync(&p, total_bytes / 5 * 2, a));
	CHECK(cudaMemsetAsync(p, 0, 64, a));
	CHECK(cudaFreeAsync(p, a));
	launch_wait();
	usleep(100000);
	CHECK(cudaMallocAsync(&q, total_bytes / 20 * 17, b));
	CHECK(cudaMemsetAsync(q, 1, 64, b));
	CHECK(cuMemsetD32Async(word, 1, 1, b));
	CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
	int gave_up = 0;

	if (argc != 2)
		return 2;
	which = argv[1];
	CHECK(cudaSetDevice(0));
	CHECK(cudaFree(NULL));
	CHECK(cuCtxGetCurrent(&here));
	there = here;
	if (is("green") || is("context") || is("peer"))
		make_context();
	CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	if (!b && !is("later"))
		CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&word, 4));
	CHECK(cuMemAlloc(&late, 4));
	CHECK(cuMemsetD32Async(late, 0, 1, a));
	CHECK(cuMemsetD32Async(word, 1, 1, a));
	launch_wait();				/* loaded from here on */
	CHECK(cuMemsetD32Async(word, 0, 1, a));
	CHECK(cudaStreamSynchronize(a));
	if (is("used"))
		CHECK(cuMemsetD32Async(word, 0, 1, b));
	CHECK(cudaDeviceSynchronize());
	if (is("pool"))
		free_in_order();
	else
		free_and_reuse();
	CHECK(cudaMemcpyAsync(&gave_up, (void *)late, 4, cudaMemcpyDeviceToHost, a));
	CHECK(cudaStreamSynchronize(a));
	printf("%s: %s\n", which, gave_up ? "hung" : "ended");
	return 0;
}
