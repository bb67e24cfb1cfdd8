/* calls.cu - what one pair of calls costs: cudaMalloc + cudaFree and their stream-ordered kin, by the
 * runtime, through whatever is preloaded. Prints "NAME SIZE: N ns" lines, medians of 15 batches.
 *
 * usage: calls [threads]    with a number: pairs a second of that many threads together
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t error = (call);                                                    \
		if (error) {                                                                   \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));         \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

static double now()
{
	return std::chrono::duration<double, std::nano>(
		std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Pair> static double median(Pair pair, int pairs)
{
	std::vector<double> batches;

	for (int i = 0; i < pairs; i++)
		pair();
	for (int b = 0; b < 15; b++) {
		double began = now();

		for (int i = 0; i < pairs; i++)
			pair();
		batches.push_back((now() - began) / pairs);
	}
	std::sort(batches.begin(), batches.end());
	return batches[batches.size() / 2];
}

static void sync_pair(size_t bytes)
{
	void *p;

	CHECK(cudaMalloc(&p, bytes));
	CHECK(cudaFree(p));
}

static void async_pair(size_t bytes, cudaStream_t stream, bool used = false)
{
	void *p;

	CHECK(cudaMallocAsync(&p, bytes, stream));
	if (used)
		CHECK(cudaMemsetAsync(p, 0, bytes, stream));
	CHECK(cudaFreeAsync(p, stream));
}

/* Random sizes with @live blocks alive: one freed and one made, a pair. */
static double random_sizes(int live, int pairs)
{
	std::vector<void *> blocks(live);
	unsigned long long state = 1;
	auto draw = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };

	for (auto &block : blocks)
		CHECK(cudaMalloc(&block, 512 + draw() % 200000));
	double took = median([&] {
		void *&block = blocks[draw() % live];

		CHECK(cudaFree(block));
		CHECK(cudaMalloc(&block, 512 + draw() % 200000));
	}, pairs);
	for (auto block : blocks)
		CHECK(cudaFree(block));
	return took;
}

/* The first pairs of each thread, its creation and first call among them, while the history fills; then
 * what it comes to; and what the machine gives to that many threads that have nothing in common: a rate of
 * several threads is to be held against that. */
static void from_threads(int count)
{
	enum { FIRST = 20000, STEPS = 1000 };
	std::atomic<int> begun { 0 }, phase { 0 };
	std::atomic<long> pairs { 0 }, steps { 0 };
	auto body = [&](int first) {
		volatile unsigned long long sink = 1;
		unsigned long long x[4] = { sink, sink + 1, sink + 2, sink + 3 };
		long done = 0;

		CHECK(cudaSetDevice(0));
		for (int i = 0; i < first; i++)
			sync_pair(4096);
		begun++;
		while (phase == 0)
			std::this_thread::yield();
		for (; phase == 1; done++)
			sync_pair(4096);
		pairs += done;
		for (done = 0; phase == 2; done++)
			for (int i = 0; i < STEPS; i++)
				for (auto &one : x)	/* as many as keep a core busy */
					one = one * 6364136223846793005u + 1442695040888963407u;
		sink = x[0] ^ x[1] ^ x[2] ^ x[3];
		steps += done;
	};
	auto begin = [&](int next) {
		double at = now();

		phase = next;
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
		return at;
	};
	std::vector<std::thread> threads;
	double began, steps_began, ended;

	for (int i = 0; i < 1000; i++)
		sync_pair(4096);
	began = now();
	for (int t = 0; t < count; t++)
		threads.emplace_back(body, FIRST);
	while (begun < count)
		std::this_thread::yield();
	printf("%d threads, the first %d each: %.2f million pairs a second\n", count, FIRST,
	       1e3 * FIRST * count / (now() - began));
	began = begin(1);
	steps_began = begin(2);
	ended = now();
	phase = 3;
	for (auto &thread : threads)
		thread.join();
	printf("%d threads, then: %.2f million pairs a second\n", count,
	       1e3 * (double)pairs / (steps_began - began));
	printf("%d threads, of the machine: %.0f million steps a second\n", count,
	       1e3 * STEPS * (double)steps / (ended - steps_began));
}

int main(int argc, char **argv)
{
	void *held, *held_large;
	cudaStream_t stream;
	cudaMemPool_t pool;
	unsigned long long keep = ~0ull;

	CHECK(cudaFree(0));
	CHECK(cudaMalloc(&held, 4096));
	CHECK(cudaMalloc(&held_large, 4 << 20));
	if (argc > 1) {
		from_threads(atoi(argv[1]));
		return 0;
	}
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	for (size_t bytes : { (size_t)4096, (size_t)2 << 20, (size_t)64 << 20 }) {
		printf("cudaMalloc+cudaFree %zu: %.0f ns\n", bytes,
		       median([&] { sync_pair(bytes); }, bytes > 1 << 20 ? 500 : 5000));
		printf("cudaMallocAsync+cudaFreeAsync %zu: %.0f ns\n", bytes,
		       median([&] { async_pair(bytes, stream); }, 5000));
		CHECK(cudaDeviceSynchronize());
	}
	printf("random sizes, 1000 live: %.0f ns\n", random_sizes(1000, 2000));
	/* From some amount on the library records an event at each such free. */
	CHECK(cudaMallocAsync(&held, (size_t)1 << 30, stream));
	printf("cudaMallocAsync+cudaFreeAsync 4096, 1 GiB held: %.0f ns\n",
	       median([&] { async_pair(4096, stream); }, 5000));
	printf("cudaMallocAsync+cudaFreeAsync 4096, a memset between: %.0f ns\n",
	       median([&] { async_pair(4096, stream, true); }, 5000));
	return 0;
}
