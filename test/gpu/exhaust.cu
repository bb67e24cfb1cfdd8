/* exhaust.cu - a device filled to the last, with another process taking memory in between: nothing is
 * lost, every block keeps its contents, and after frees there is memory again.
 *
 * usage: exhaust            (starts itself as "exhaust taker BYTES" for the other process)
 * Prints lines that do not depend on who serves the memory.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <unistd.h>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t check_error = (call);                                              \
		if (check_error) {                                                             \
			printf("%s: %s\n", #call, cudaGetErrorString(check_error));            \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

__global__ void fill(uint64_t *p, size_t n, uint64_t value)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		p[i] = value ^ i;
}

__global__ void check(const uint64_t *p, size_t n, uint64_t value, unsigned long long *wrong)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		if (p[i] != (value ^ i))
			atomicAdd(wrong, 1ull);
}

struct block { uint64_t *p; size_t words; uint64_t value; };

static std::vector<block> blocks;
static uint64_t state = 42;
static unsigned long long *wrong;

static uint64_t draw()
{
	return (state = state * 6364136223846793005u + 1442695040888963407u) >> 20;
}

static bool make(size_t bytes)
{
	block b = { nullptr, bytes / 8, draw() };
	cudaError_t error = cudaMalloc(&b.p, bytes);

	if (error == cudaErrorMemoryAllocation) {
		cudaGetLastError();
		return false;
	}
	CHECK(error);
	fill<<<256, 256>>>(b.p, b.words, b.value);
	blocks.push_back(b);
	return true;
}

static void verify(const char *when)
{
	unsigned long long count = 0;

	CHECK(cudaMemset(wrong, 0, 8));
	for (const block &b : blocks)
		check<<<256, 256>>>(b.p, b.words, b.value, wrong);
	CHECK(cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost));
	printf("%s: %llu words wrong\n", when, count);
	if (count)
		exit(1);
}

static void drop(size_t keep)
{
	while (blocks.size() > keep) {
		size_t at = draw() % blocks.size();

		CHECK(cudaFree(blocks[at].p));
		blocks[at] = blocks.back();
		blocks.pop_back();
	}
}

/* Until not even 2 MiB can be had. */
static void fill_device(size_t largest)
{
	for (size_t bytes = largest; bytes >= (size_t)2 << 20; bytes /= 2)
		while (make(bytes))
			;
}

static int take(size_t bytes)
{
	void *p;
	cudaError_t error = cudaMalloc(&p, bytes);

	printf("taker %d\n", (int)error);
	fflush(stdout);
	getchar();
	return 0;
}

/* Another process has @bytes while @body runs. */
template <typename Body> static void with_taker(const char *self, size_t bytes, Body body)
{
	std::string command = std::string(self) + " taker " + std::to_string(bytes) + " >/dev/null";
	FILE *taker = popen(command.c_str(), "w");
	size_t free_before, free_now, total;

	CHECK(cudaMemGetInfo(&free_before, &total));
	for (int i = 0; i < 300; i++) {		/* until it has started, at most 30 s */
		CHECK(cudaMemGetInfo(&free_now, &total));
		if (free_now + bytes / 2 < free_before)
			break;
		usleep(100000);
	}
	body();
	fputc('\n', taker);
	pclose(taker);
}

int main(int argc, char **argv)
{
	size_t free_bytes, total;

	if (argc == 3 && !strcmp(argv[1], "taker"))
		return take(strtoull(argv[2], nullptr, 10));
	CHECK(cudaMalloc(&wrong, 8));
	CHECK(cudaMemGetInfo(&free_bytes, &total));
	for (int i = 0; i < 400; i++)
		make((draw() % (200 << 20)) + 8);
	verify("a few hundred");
	drop(100);
	with_taker(argv[0], (size_t)20 << 30, [] {
		for (int i = 0; i < 200; i++)
			make((draw() % (100 << 20)) + 8);
		verify("beside another process");
		fill_device((size_t)1 << 30);
		verify("full, beside another process");
		drop(50);
	});
	fill_device((size_t)4 << 30);
	verify("full");
	CHECK(cudaMemGetInfo(&free_bytes, &total));
	printf("at most 1%% is left: %s\n", free_bytes < total / 100 ? "yes" : "no");
	for (int i = 0; i < 100; i++)		/* a program that probes */
		if (make((size_t)8 << 30))
			printf("8 GiB more?\n");
	drop(20);
	for (int i = 0; i < 100; i++)
		if (!make((draw() % (64 << 20)) + 8))
			printf("no room after frees\n");
	verify("after frees");
	drop(0);
	CHECK(cudaMemGetInfo(&free_bytes, &total));
	if (free_bytes <= total / 100 * 98)
		fprintf(stderr, "free: %zu MiB of %zu\n", free_bytes >> 20, total >> 20);
	printf("98%% is free again: %s\n", free_bytes > total / 100 * 98 ? "yes" : "no");
	if (!make((size_t)((double)total * 0.95)))
		printf("no large block after all was freed\n");
	verify("one large block");
	return 0;
}
