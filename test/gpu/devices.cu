/* devices.cu - what two devices do to each other's memory, with contents that kernels check.
 *
 * usage: devices CASE [A B]
 *   first       peer access is enabled before any memory is allocated (the order of simpleP2P)
 *   later       peer access is enabled while memory is live
 *   copies      copies between the devices without peer access: plain, by cudaMemcpyPeerAsync, and freed while under way
 *   peercopies  the same with peer access
 *   pool        memory of cudaMallocAsync, opened to the other device by cudaMemPoolSetAccess
 *   persistent  a kernel waits on device B while memory of device A is allocated and freed
 * A and B: the devices, 0 and 1. With A = B the program runs on one device, without peer access: so the program itself can
 * be tried there. Prints "CASE: ROUNDS rounds, N wrong".
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#include "wait.cuh"

#define ROUNDS 40
static const size_t sizes[] = { 4096, 100000, 3 << 20, 7 << 20, 64 << 20 };
static int a = 0, b = 1;
static cudaStream_t streams[2];
static unsigned *wrong[2];		/* a counter on each device */

__global__ void fill(unsigned *block, size_t words, unsigned seed)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
		block[i] = seed + (unsigned)i;
}

/* Whether @block holds what fill() wrote with @seed; then @block has the contents of @next. */
__global__ void check(unsigned *block, size_t words, unsigned seed, unsigned next, unsigned *wrong)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
		if (block[i] != seed + (unsigned)i)
			atomicAdd(wrong, 1);
		block[i] = next + (unsigned)i;
	}
}

static void on(int which_device)
{
	CHECK(cudaSetDevice(which_device ? b : a));
}

static void filled(int device, void *block, size_t bytes, unsigned seed)
{
	on(device);
	fill<<<64, 256, 0, streams[device]>>>((unsigned *)block, bytes / 4, seed);
	CHECK(cudaGetLastError());
}

/* Device @device checks @block, wherever the memory lies, and writes @next. */
static void checked(int device, void *block, size_t bytes, unsigned seed, unsigned next)
{
	on(device);
	check<<<64, 256, 0, streams[device]>>>((unsigned *)block, bytes / 4, seed, next, wrong[device]);
	CHECK(cudaGetLastError());
}

static void done(int device)
{
	on(device);
	CHECK(cudaStreamSynchronize(streams[device]));
}

static void *block_on(int device, size_t bytes)
{
	void *block;

	on(device);
	CHECK(cudaMalloc(&block, bytes));
	return block;
}

static void enable()
{
	if (a == b)
		return;
	on(0);
	CHECK(cudaDeviceEnablePeerAccess(b, 0));
	on(1);
	CHECK(cudaDeviceEnablePeerAccess(a, 0));
}

static void prepare()
{
	for (int i = 0; i < 2; i++) {
		on(i);
		CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
		CHECK(cudaMalloc(&wrong[i], sizeof(unsigned)));
		CHECK(cudaMemset(wrong[i], 0, sizeof(unsigned)));
		CHECK(cudaDeviceSynchronize());
	}
}

/* A block of each device, each written by its own device and then checked and written by the other one. */
static void each_others(size_t bytes, unsigned round)
{
	void *blocks[2] = { block_on(0, bytes), block_on(1, bytes) };
	unsigned seed = round * 16;

	for (unsigned i = 0; i < 2; i++)
		filled((int)i, blocks[i], bytes, seed + i);
	done(0);
	done(1);
	for (unsigned i = 0; i < 2; i++)
		checked(!i, blocks[i], bytes, seed + i, seed + 2 + i);
	done(0);
	done(1);
	for (unsigned i = 0; i < 2; i++)
		checked((int)i, blocks[i], bytes, seed + 2 + i, 0);
	if (round % 2) {			/* a free with work pending on its own device, and one without */
		done(0);
		done(1);
	}
	for (int i = 0; i < 2; i++) {
		on((round / 2) % 2 ? !i : i);	/* a free from the other device, too */
		CHECK(cudaFree(blocks[i]));
	}
}

static void turnover()
{
	for (unsigned round = 0; round < ROUNDS; round++)
		for (size_t bytes : sizes)
			each_others(bytes, round);
}

/* What is copied is freed as soon as the copy was asked for: the copy has the old contents all the same. */
static void copy_and_free(size_t bytes, unsigned seed)
{
	void *from = block_on(0, bytes), *to = block_on(1, bytes), *next;

	filled(0, from, bytes, seed);
	on(0);
	if (seed % 2)
		CHECK(cudaMemcpyPeerAsync(to, b, from, a, bytes, streams[0]));
	else
		CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, streams[0]));
	CHECK(cudaFree(from));
	next = block_on(0, bytes);		/* may be the same memory */
	filled(0, next, bytes, ~seed);
	done(0);
	checked(1, to, bytes, seed, seed + 1);
	done(1);
	on(0);
	CHECK(cudaMemcpyPeer(next, a, to, b, bytes));
	on(1);
	CHECK(cudaDeviceSynchronize());
	checked(0, next, bytes, seed + 1, 0);
	done(0);
	CHECK(cudaFree(next));
	CHECK(cudaFree(to));
}

static void copies()
{
	for (unsigned round = 0; round < ROUNDS; round++)
		for (size_t bytes : sizes)
			copy_and_free(bytes, round);
}

static void pool()
{
	cudaMemPool_t pools[2];

	for (int i = 0; i < 2; i++) {
		cudaMemAccessDesc access = {};

		on(i);
		CHECK(cudaDeviceGetDefaultMemPool(&pools[i], i ? b : a));
		access.location.type = cudaMemLocationTypeDevice;
		access.location.id = i ? a : b;
		access.flags = cudaMemAccessFlagsProtReadWrite;
		CHECK(cudaMemPoolSetAccess(pools[i], &access, 1));
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (size_t bytes : sizes) {
			void *blocks[2];

			for (int i = 0; i < 2; i++) {
				on(i);
				CHECK(cudaMallocAsync(&blocks[i], bytes, streams[i]));
				filled(i, blocks[i], bytes, round + (unsigned)i);
			}
			done(0);
			done(1);
			for (int i = 0; i < 2; i++)
				checked(!i, blocks[i], bytes, round + (unsigned)i, round);
			done(0);
			done(1);
			for (int i = 0; i < 2; i++) {
				checked(i, blocks[i], bytes, round, 0);
				CHECK(cudaFreeAsync(blocks[i], streams[i]));
			}
		}
	}
}

static void persistent()
{
	int *word, *late, gave_up;

	on(1);
	CHECK(cudaMallocHost(&word, sizeof(int)));
	CHECK(cudaMalloc(&late, sizeof(int)));
	CHECK(cudaMemset(late, 0, sizeof(int)));
	CHECK(cudaDeviceSynchronize());
	*word = 0;
	on(0);
	CHECK(cudaDeviceSynchronize());
	filled(0, wrong[0], 0, 0);		/* loaded before the kernel waits: loading waits for the device */
	checked(0, wrong[0], 0, 0, 0);
	done(0);
	on(1);
	wait<<<1, 1, 0, streams[1]>>>(word, late, 20);
	CHECK(cudaGetLastError());
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (size_t bytes : sizes) {
			void *block;

			on(0);
			if (a == b) {		/* the driver's own cudaFree would wait for the kernel */
				CHECK(cudaMallocAsync(&block, bytes, streams[0]));
			} else {
				block = block_on(0, bytes);
			}
			filled(0, block, bytes, round);
			checked(0, block, bytes, round, 0);
			done(0);
			if (a == b)
				CHECK(cudaFreeAsync(block, streams[0]));
			else
				CHECK(cudaFree(block));
		}
	}
	*(volatile int *)word = 1;
	done(1);
	CHECK(cudaMemcpy(&gave_up, late, sizeof(int), cudaMemcpyDeviceToHost));
	if (gave_up) {
		printf("%s: the kernel gave up waiting\n", which);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned counts[2];
	int devices;

	if (argc != 2 && argc != 4)
		return 2;
	which = argv[1];
	if (argc == 4) {
		a = atoi(argv[2]);
		b = atoi(argv[3]);
	}
	CHECK(cudaGetDeviceCount(&devices));
	if (a >= devices || b >= devices) {
		printf("skip: needs 2 devices\n");
		return 0;
	}
	if (!strcmp(which, "first"))
		enable();
	prepare();
	if (!strcmp(which, "first")) {
		turnover();
	} else if (!strcmp(which, "later")) {
		void *early[2] = { block_on(0, 3 << 20), block_on(1, 3 << 20) };

		enable();
		for (int i = 0; i < 2; i++) {
			filled(i, early[i], 3 << 20, 5);
			done(i);
			checked(!i, early[i], 3 << 20, 5, 6);
			done(!i);
		}
		turnover();
	} else if (!strcmp(which, "copies")) {
		copies();
	} else if (!strcmp(which, "peercopies")) {
		enable();
		copies();
	} else if (!strcmp(which, "pool")) {
		pool();
	} else if (!strcmp(which, "persistent")) {
		persistent();
	} else {
		return 2;
	}
	for (int i = 0; i < 2; i++) {
		on(i);
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(&counts[i], wrong[i], sizeof(unsigned), cudaMemcpyDeviceToHost));
	}
	printf("%s: %d rounds, %u wrong\n", which, ROUNDS, counts[0] + counts[1]);
	return counts[0] + counts[1] != 0;
}
