/* idle.cu - memory that the program freed goes back to the driver while a kernel of the program waits for the host.
 *
 * usage: idle CASE
 *   malloc  4 GiB by cudaMalloc, freed before the kernel begins
 *   async   the same by cudaMallocAsync, with a release threshold of 0
 * Then a kernel waits for a word. Meanwhile, for 4 seconds, a second stream is given small kernels and is waited for, and
 * a new process, without the library, says how much of the device is free. Prints "CASE: back, ended, no call was held up",
 * or how it was instead: "kept": the freed memory was not free for the other process in the end; "hung": the kernel gave up;
 * "held up": a launch or a wait took longer than a second.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <cuda_runtime.h>

#include "wait.cuh"

#define BLOCKS 16
#define BYTES ((size_t)256 << 20)

__global__ void add(int *to)
{
	++*to;
}

static double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Bytes of the device that a process without the library could have. */
static long long free_elsewhere(const char *self)
{
	char command[512], line[64] = "";
	FILE *other;

	snprintf(command, sizeof(command), "env -u LD_PRELOAD %s look", self);
	other = popen(command, "r");
	if (!other || !fgets(line, sizeof(line), other))
		printf("%s: the other process says nothing\n", which);
	if (other)
		pclose(other);
	return atoll(line);
}

static void take_and_free(cudaStream_t stream)
{
	void *blocks[BLOCKS];
	bool async = !strcmp(which, "async");

	for (void *&block : blocks) {
		if (async)
			CHECK(cudaMallocAsync(&block, BYTES, stream));
		else
			CHECK(cudaMalloc(&block, BYTES));
		CHECK(cudaMemsetAsync(block, 0, BYTES, stream));
	}
	CHECK(cudaStreamSynchronize(stream));
	for (void *block : blocks) {
		if (async)
			CHECK(cudaFreeAsync(block, stream));
		else
			CHECK(cudaFree(block));
	}
}

int main(int argc, char **argv)
{
	cudaStream_t a, b;
	size_t free_bytes, total_bytes;
	long long before, after;
	int *word, *late, *sum, gave_up;
	double slowest = 0, end;

	which = argc == 2 ? argv[1] : "";
	if (!strcmp(which, "look")) {
		CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
		printf("%zu\n", free_bytes);
		return 0;
	}
	if (strcmp(which, "malloc") && strcmp(which, "async"))
		return 2;
	CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	CHECK(cudaMallocHost(&word, sizeof(int)));
	CHECK(cudaMalloc(&late, sizeof(int)));
	CHECK(cudaMalloc(&sum, sizeof(int)));
	CHECK(cudaMemset(late, 0, sizeof(int)));
	*word = 1;
	wait<<<1, 1, 0, a>>>(word, late, 20);		/* both kernels are loaded from here on */
	add<<<1, 1, 0, b>>>(sum);
	CHECK(cudaDeviceSynchronize());
	before = free_elsewhere(argv[0]);
	take_and_free(b);
	*word = 0;
	wait<<<1, 1, 0, a>>>(word, late, 20);
	CHECK(cudaGetLastError());
	for (end = now() + 4; now() < end; usleep(1000)) {
		double began = now();

		add<<<1, 1, 0, b>>>(sum);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamSynchronize(b));
		if (now() - began > slowest)
			slowest = now() - began;
	}
	after = free_elsewhere(argv[0]);
	*(volatile int *)word = 1;
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(&gave_up, late, sizeof(int), cudaMemcpyDeviceToHost));
	fprintf(stderr, "slowest %.1f ms, %lld MiB less are free\n", slowest * 1e3, (before - after) >> 20);
	printf("%s: %s, %s, %s\n", which, before - after < (long long)(BLOCKS * BYTES / 8) ? "back" : "kept",
	       gave_up ? "hung" : "ended", slowest < 1 ? "no call was held up" : "held up");
	return 0;
}
