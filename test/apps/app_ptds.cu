/* app_ptds.cu - compiled with -default-stream per-thread: the same calls under their _ptds and
 * _ptsz names, kernels on each thread's own default stream.
 */
#include <pthread.h>

#include "test/apps/app.h"

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "compile this with -default-stream per-thread"
#endif

#define THREADS 4
#define WORDS 50000u

static void *body(void *arg)
{
	uint32_t base = (uint32_t)(uintptr_t)arg * 100;
	uint32_t *device, *async, *out;
	bool right = true;

	CHECK(cudaMalloc(&device, WORDS * sizeof(*device)));
	CHECK(cudaHostAlloc(&out, WORDS * sizeof(*out), cudaHostAllocDefault));
	for (int round = 0; round < 20; round++) {
		CHECK(cudaMallocAsync(&async, WORDS * sizeof(*async), 0));
		fill<<<blocks_for(WORDS), 256>>>(async, base, WORDS);
		add<<<blocks_for(WORDS), 256>>>(async, (uint32_t)round, WORDS);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpyAsync(device, async, WORDS * sizeof(*device),
				      cudaMemcpyDeviceToDevice, 0));
		CHECK(cudaFreeAsync(async, 0));
		CHECK(cudaMemcpyAsync(out, device, WORDS * sizeof(*out), cudaMemcpyDeviceToHost,
				      cudaStreamPerThread));
		CHECK(cudaStreamSynchronize(0));
		for (uint32_t i = 0; i < WORDS; i++)
			right = right && out[i] == base + (uint32_t)round;
	}
	CHECK(cudaMemset(device, 0, WORDS * sizeof(*device)));
	CHECK(cudaMemcpy(out, device, WORDS * sizeof(*out), cudaMemcpyDeviceToHost));
	right = right && out[0] == 0 && out[WORDS - 1] == 0;
	CHECK(cudaFreeHost(out));
	CHECK(cudaFree(device));
	return right ? arg : NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	bool right = true;

	for (uintptr_t i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, body, (void *)(i + 1)))
			DIE("pthread_create");
	}
	for (uintptr_t i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		right = right && result == (void *)(i + 1);
	}
	expect(right, "per-thread default streams of 4 threads");
	expect(body((void *)9) != NULL, "and the main thread's");
	checkpoint("all freed");
	say("app_ptds: done");
	return 0;
}
