/* full.cu - a device without room, and memory that was freed while the GPU still uses it: what the
 * driver serves is served, whoever freed it and whoever asks.
 *
 * usage: full CASE [ROUNDS]
 *   threads   another thread calls cudaFree, this one calls cudaMalloc
 *   same      the same in one thread
 *   async     another thread calls cudaFree, this one calls cudaMallocAsync
 *   pitched   another thread calls cudaFree, this one calls cudaMallocPitch
 *   long      as threads, with kernels of three seconds in all
 *   late      one stream has all work, nine seconds of kernels; then this thread frees both and asks for one larger block
 *   ordered   another thread calls cudaFreeAsync, this one calls cudaMalloc: the driver refuses it
 *   ordered-async   the same, and this one calls cudaMallocAsync on the other stream
 *   probe     nothing is freed: refused requests, and on stderr what one takes
 *
 * Two streams take turns; the device is filled but for a little more than two blocks of 1 GiB. Each
 * round has kernels on a stream that write to both blocks in their last moment, frees them, asks for
 * two more and looks whether those keep their contents. Prints lines that do not depend on who
 * serves the memory.
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t check_error = (call);                                              \
		if (check_error) {                                                             \
			printf("%s: %s\n", #call, cudaGetErrorString(check_error));            \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

static const size_t GIB = (size_t)1 << 30, MIB = (size_t)1 << 20;
static const size_t BLOCK = GIB, LEFT = 2 * GIB + 300 * MIB, WORDS = BLOCK / 8;

/* Busy for @ns, then every word of both is written. */
__global__ void use(uint64_t *p, uint64_t *r, size_t n, uint64_t ns, uint64_t value)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - begin < ns);
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		p[i] = value ^ i;
		r[i] = ~value ^ i;
	}
}

__global__ void check(const uint64_t *p, size_t n, uint64_t value, unsigned long long *wrong)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		if (p[i] != (value ^ i))
			atomicAdd(wrong, 1ull);
}

static std::string name;
static cudaStream_t stream[2];
static unsigned long long *wrong;

static bool is(const char *other)
{
	return name == other;
}

static cudaError_t get(uint64_t **ret, int round)
{
	size_t pitch;

	if (is("async") || is("ordered-async"))
		return cudaMallocAsync(ret, BLOCK, stream[(round + 1) % 2]);
	if (is("pitched"))
		return cudaMallocPitch(ret, &pitch, 1 << 20, BLOCK >> 20);
	return cudaMalloc(ret, BLOCK);
}

static void give(uint64_t *p, uint64_t *r, cudaStream_t last)
{
	if (is("ordered") || is("ordered-async")) {
		CHECK(cudaFreeAsync(p, last));
		CHECK(cudaFreeAsync(r, last));
	} else {
		CHECK(cudaFree(p));
		CHECK(cudaFree(r));
	}
}

static void keep_contents(uint64_t *p, uint64_t *r, cudaStream_t on, uint64_t value)
{
	unsigned long long count = 0;

	use<<<256, 256, 0, on>>>(p, r, WORDS, 0, value);
	CHECK(cudaStreamSynchronize(on));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemset(wrong, 0, 8));
	check<<<256, 256>>>(p, WORDS, value, wrong);
	check<<<256, 256>>>(r, WORDS, ~value, wrong);
	CHECK(cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost));
	printf(", %llu words wrong", count);
	if (count)
		exit(1);
}

/* One round; @p and @r are used, freed, and replaced. */
static bool turn(int round, uint64_t *&p, uint64_t *&r)
{
	cudaStream_t busy = stream[round % 2], other = stream[(round + 1) % 2];
	int kernels = is("long") ? 10 : 3;
	uint64_t ns = is("long") ? 300000000 : 60000000;
	cudaError_t first, second;

	use<<<256, 256, 0, other>>>(p, r, 1024, 0, 1);
	CHECK(cudaStreamSynchronize(other));
	for (int i = 0; i < kernels; i++)
		use<<<256, 256, 0, busy>>>(p, r, WORDS, ns, 1000 + round);
	CHECK(cudaGetLastError());
	if (is("same"))
		give(p, r, busy);
	else
		std::thread([&] { give(p, r, busy); }).join();
	first = get(&p, round);
	second = first ? first : get(&r, round);
	printf("round %d: %s, %s", round, cudaGetErrorName(first), cudaGetErrorName(second));
	if (first || second) {
		printf("\n");
		return false;
	}
	keep_contents(p, r, other, 77 + round);
	printf("\n");
	if (is("async")) {		/* a cudaFree of stream-ordered memory waits for nothing */
		CHECK(cudaFree(p));
		CHECK(cudaFree(r));
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMalloc(&p, BLOCK));
		CHECK(cudaMalloc(&r, BLOCK));
	}
	return true;
}

static void late()
{
	uint64_t *p, *r;
	cudaError_t error;

	CHECK(cudaMalloc(&p, BLOCK));
	CHECK(cudaMalloc(&r, BLOCK));
	for (int i = 0; i < 30; i++)
		use<<<256, 256, 0, stream[0]>>>(p, r, WORDS, 300000000, 1000);
	CHECK(cudaGetLastError());
	CHECK(cudaFree(p));
	CHECK(cudaFree(r));
	error = cudaMalloc(&p, 2 * BLOCK + 128 * MIB);
	printf("one larger block: %s", cudaGetErrorName(error));
	if (!error)
		keep_contents(p, p + WORDS, stream[0], 5);
	printf("\n");
}

static void probe()
{
	for (int i = 0; i < 5; i++) {
		auto begin = std::chrono::steady_clock::now();
		void *p;
		cudaError_t error = cudaMalloc(&p, (size_t)4 << 40);
		double us = std::chrono::duration<double, std::micro>(
			std::chrono::steady_clock::now() - begin).count();

		cudaGetLastError();
		printf("probe %d: %s\n", i, cudaGetErrorName(error));
		fprintf(stderr, "probe %d: %.0f us\n", i, us);
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 8;
	size_t free_bytes, total_bytes;
	std::vector<void *> filling;
	uint64_t *p, *r;

	name = argc > 1 ? argv[1] : "threads";
	CHECK(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking));
	CHECK(cudaMalloc(&wrong, 8));
	use<<<256, 256, 0, stream[0]>>>((uint64_t *)wrong, (uint64_t *)wrong, 1, 0, 0);
	check<<<1, 1, 0, stream[!is("late")]>>>((uint64_t *)wrong, 1, 0, wrong);
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	for (size_t left = free_bytes; left > LEFT + GIB; left -= GIB) {
		void *block;

		CHECK(cudaMalloc(&block, GIB));
		filling.push_back(block);
	}
	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	if (free_bytes > LEFT + 2 * MIB) {
		void *block;

		CHECK(cudaMalloc(&block, (free_bytes - LEFT) / (2 * MIB) * (2 * MIB)));
		filling.push_back(block);
	}
	if (is("probe")) {
		probe();
	} else if (is("late")) {
		late();
	} else {
		bool ordered = is("ordered") || is("ordered-async");

		CHECK(ordered ? cudaMallocAsync(&p, BLOCK, stream[0]) : cudaMalloc(&p, BLOCK));
		CHECK(ordered ? cudaMallocAsync(&r, BLOCK, stream[0]) : cudaMalloc(&r, BLOCK));
		CHECK(cudaDeviceSynchronize());
		for (int i = 0; i < rounds; i++)
			if (!turn(i, p, r))
				return 1;
	}
	return 0;
}
