/* calls.cu - the rows of calls.h for the CUDA runtime, and so for whatever is preloaded, on a GPU and on the fake driver.
 *
 *	calls malloc|async [ROW...]		cudaMalloc and cudaFree, or cudaMallocAsync and cudaFreeAsync
 *	calls malloc|async [--bytes B] --count N	N pairs of B bytes (4 KiB) and nothing else: for counting instructions
 *
 * Rows more, which are run only where they are named: of cudaMallocAsync "memset", a pair of 4 KiB with a cudaMemsetAsync
 * between, and "held", a pair of 4 KiB while 1 GiB more is stream-ordered; and "streams N", RMM's
 * multi_stream_allocations_bench.cu: four kernels of a million clocks, one stream of N after the other, and for each
 * kernel 8 bytes that are allocated before and freed after it; nanoseconds until the device has done all. "streams N
 * prewarmed": each stream had 8 bytes before, all at a time. "first" is a block of 64 MiB, of 160 that a program has at first;
 * "turn", of cudaMallocAsync, 16 of them that are freed before a synchronisation at which the pool gives back what is
 * idle, as it does where nothing else was said.
 */
#include "test/bench/calls.h"

#include <cuda_runtime.h>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t error = (call);                                                    \
		if (error) {                                                                   \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));         \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

__global__ void spin(long long clocks)
{
	long long began = clock64();

	while (clock64() - began < clocks)
		;
}

struct by_malloc {
	void *get(size_t bytes, cudaStream_t = nullptr)
	{
		void *p;

		CHECK(cudaMalloc(&p, bytes));
		return p;
	}
	void put(void *p, cudaStream_t = nullptr) { CHECK(cudaFree(p)); }
	void thread() { CHECK(cudaSetDevice(0)); }
};

/* On one stream that waits for no other, if nothing else is said. */
struct by_async {
	cudaStream_t own = nullptr;

	void *get(size_t bytes, cudaStream_t stream = nullptr)
	{
		void *p;

		CHECK(cudaMallocAsync(&p, bytes, stream ? stream : own));
		return p;
	}
	void put(void *p, cudaStream_t stream = nullptr) { CHECK(cudaFreeAsync(p, stream ? stream : own)); }
	void thread() { CHECK(cudaSetDevice(0)); }
};

template <typename Peer> double cost_streams(Peer &peer, int count, bool prewarm)
{
	std::vector<cudaStream_t> streams(count);
	std::vector<void *> first;
	double ns;

	for (auto &stream : streams)
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int i = 0; prewarm && i < count; i++)
		first.push_back(peer.get(8, streams[i]));
	for (size_t i = 0; i < first.size(); i++)
		peer.put(first[i], streams[i]);
	ns = cost([&] {
		for (int k = 0; k < 4; k++) {
			cudaStream_t stream = streams[k % count];
			void *p = peer.get(8, stream);

			spin<<<1, 1, 0, stream>>>(1000000);
			peer.put(p, stream);
		}
		CHECK(cudaDeviceSynchronize());
	});
	for (auto stream : streams)
		CHECK(cudaStreamDestroy(stream));
	return ns;
}

template <typename Peer> double cost_first(Peer &peer)
{
	std::vector<void *> blocks;
	double ns = now_ns();

	for (int i = 0; i < 160; i++)
		blocks.push_back(peer.get(64 << 20));
	ns = (now_ns() - ns) / 160;
	for (auto block : blocks)
		peer.put(block);
	return ns;
}

static void keep(unsigned long long bytes)
{
	cudaMemPool_t pool;

	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
}

static double cost_turn(by_async &peer)
{
	double ns;

	keep(0);
	ns = cost([&] {
		void *blocks[16];

		for (auto &block : blocks)
			block = peer.get(64 << 20);
		for (auto block : blocks)
			peer.put(block);
		CHECK(cudaStreamSynchronize(peer.own));
	});
	keep(~0ull);
	return ns;
}

static void print_more_rows(by_malloc &, const rows &) { }

static void print_more_rows(by_async &peer, const rows &rows)
{
	void *held;

	if (rows.wanted("memset"))
		print_row("memset", cost([&] {
			void *p = peer.get(4096);

			CHECK(cudaMemsetAsync(p, 0, 4096, peer.own));
			peer.put(p);
		}));
	if (rows.wanted("turn"))
		print_row("turn", cost_turn(peer));
	if (!rows.wanted("held"))
		return;
	held = peer.get((size_t)1 << 30);
	print_row("held", cost([&] { peer.put(peer.get(4096)); }));
	peer.put(held);
}

template <typename Peer> int run(Peer peer, int argc, char **argv)
{
	rows rows = { argc - 2, argv + 2 };
	by_malloc held;

	held.get(4096);			/* so that a free gives nothing back to the driver */
	held.get(4 << 20);
	if (argc >= 4 && !strcmp(argv[argc - 2], "--count")) {
		size_t bytes = argc == 6 && !strcmp(argv[2], "--bytes") ? strtoull(argv[3], nullptr, 10) : 4096;

		for (long n = atol(argv[argc - 1]); n > 0; n--)
			peer.put(peer.get(bytes));
		return 0;
	}
	if (argc > 2 && rows.wanted("first"))
		print_row("first", cost_first(peer));
	print_rows(peer, rows);
	if (argc > 2)
		print_more_rows(peer, rows);
	for (int streams = 1; streams <= 4; streams *= 2)
		for (bool prewarm : { false, true }) {
			std::string name = "streams " + std::to_string(streams) + (prewarm ? " prewarmed" : "");

			if (argc > 2 && rows.wanted(name))
				print_row(name, cost_streams(peer, streams, prewarm));
		}
	return 0;
}

int main(int argc, char **argv)
{
	by_async async;

	if (argc < 2 || (strcmp(argv[1], "malloc") && strcmp(argv[1], "async"))) {
		fprintf(stderr, "usage: calls malloc|async [ROW...|[--bytes B] --count N]\n");
		return 2;
	}
	CHECK(cudaFree(0));
	if (!strcmp(argv[1], "malloc"))
		return run(by_malloc(), argc, argv);
	keep(~0ull);
	CHECK(cudaStreamCreateWithFlags(&async.own, cudaStreamNonBlocking));
	return run(async, argc, argv);
}
