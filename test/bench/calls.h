/*
 * calls.h - what allocations and frees cost an allocator: the same rows for each peer (calls.cu, calls_torch.cpp).
 *
 * Prints a line "ROW<TAB>NANOSECONDS" for each row. A pair is an allocation and its free.
 *
 *	pair SIZE	of one size, nothing else going on
 *	live N		so many blocks of up to 64 KiB are live; a random one is freed and another one made
 *	holes N		a pair of 1 KiB beside so many holes of 4 KiB between live blocks
 *	random N of M MiB	RMM's random allocations (random_allocations.cpp of its benchmarks): N of up to so many MiB, each size as
 *			likely; an allocation if nothing is live, or with a chance of 73% while not all are made and less than
 *			16,000 MiB would be live, else the free of a random one; of an operation. A peer that takes longer than
 *			a second is measured by the operations of that second.
 *	threads N	4 KiB from so many threads at once, each with pairs of its own: the time in which one pair is done
 *
 * Words of the command line choose rows by what they begin with.
 */
#ifndef GM_TEST_BENCH_CALLS_H
#define GM_TEST_BENCH_CALLS_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

/* A peer has: void *get(size_t bytes), void put(void *), void thread() at each thread's begin. */

inline double now_ns()
{
	return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct rows {
	int words;
	char **word;

	bool wanted(const std::string &name) const
	{
		for (int i = 0; i < words; i++)
			if (!name.compare(0, strlen(word[i]), word[i]))
				return true;
		return !words;
	}
};

inline void print_row(const std::string &name, double ns)
{
	printf("%s\t%.1f\n", name.c_str(), ns);
	fflush(stdout);
}

/* Of one @body, which warms up first: batches of a fifth of a millisecond, for 100 ms or 20 of them. What else runs on the
 * machine takes the processor away for longer, or half of its core: that spoils many batches, and only the first twentieth
 * of them counts. */
template <typename Body> double cost(Body body)
{
	std::vector<double> batches;
	double began = now_ns(), once;
	int count = 0;

	do {
		body();
		count++;
	} while (now_ns() - began < 3e6 && count < 5000);
	once = (now_ns() - began) / count;
	count = std::max(1, (int)(2e5 / once));
	for (double all = now_ns(); batches.size() < 20 || now_ns() - all < 100e6;) {
		if (batches.size() >= 4 && now_ns() - all > 300e6)
			break;
		began = now_ns();
		for (int i = 0; i < count; i++)
			body();
		batches.push_back((now_ns() - began) / count);
	}
	std::sort(batches.begin(), batches.end());
	return batches[batches.size() / 20];
}

struct draws {
	uint64_t state = 1;

	uint64_t operator()(uint64_t below)
	{
		state = state * 6364136223846793005u + 1442695040888963407u;
		return (state >> 33) % below;
	}
};

template <typename Peer> double cost_live(Peer &peer, size_t live)
{
	std::vector<void *> blocks(live);
	draws draw;
	double ns;

	for (auto &block : blocks)
		block = peer.get(1 + draw(65536));
	ns = cost([&] {
		void *&block = blocks[draw(live)];

		peer.put(block);
		block = peer.get(1 + draw(65536));
	});
	for (auto block : blocks)
		peer.put(block);
	return ns;
}

template <typename Peer> double cost_holes(Peer &peer, size_t holes)
{
	std::vector<void *> blocks(2 * holes);
	double ns;

	for (auto &block : blocks)
		block = peer.get(4096);
	for (size_t i = 0; i < blocks.size(); i += 2)
		peer.put(blocks[i]);
	ns = cost([&] { peer.put(peer.get(1024)); });
	for (size_t i = 1; i < blocks.size(); i += 2)
		peer.put(blocks[i]);
	return ns;
}

template <typename Peer> double cost_random(Peer &peer, size_t allocations, size_t most)
{
	struct block { void *at; size_t bytes; };
	std::vector<block> blocks;
	std::default_random_engine engine;
	std::uniform_int_distribution<size_t> sizes(1, most), places(0, allocations - 1);
	std::uniform_int_distribution<int> chances(0, 99);
	size_t made = 0, live = 0, operations = 0;
	double began = now_ns(), ns;

	for (; operations < 2 * allocations && (operations % 64 || now_ns() - began < 1e9); operations++) {
		size_t bytes = sizes(engine);

		if (blocks.empty() || (chances(engine) < 73 && made < allocations && live + bytes < (size_t)16000 << 20)) {
			blocks.push_back({ peer.get(bytes), bytes });
			made++;
			live += bytes;
		} else {
			block &one = blocks[places(engine) % blocks.size()];

			peer.put(one.at);
			live -= one.bytes;
			one = blocks.back();
			blocks.pop_back();
		}
	}
	ns = (now_ns() - began) / operations;
	for (auto &one : blocks)
		peer.put(one.at);
	return ns;
}

template <typename Peer> double cost_threads(Peer &peer, int count)
{
	std::atomic<int> ready { 0 };
	std::atomic<bool> end { false };
	std::atomic<long> pairs { 0 };
	std::vector<std::thread> threads;
	double began;

	for (int t = 0; t < count; t++)
		threads.emplace_back([&] {
			long done = 0;

			peer.thread();
			for (int i = 0; i < 2000; i++)
				peer.put(peer.get(4096));
			ready++;
			while (ready < count)
				std::this_thread::yield();
			for (; !end; done++)
				peer.put(peer.get(4096));
			pairs += done;
		});
	while (ready < count)
		std::this_thread::yield();
	began = now_ns();
	std::this_thread::sleep_for(std::chrono::milliseconds(100));
	end = true;
	began = now_ns() - began;
	for (auto &thread : threads)
		thread.join();
	return began / (double)std::max(1l, (long)pairs);
}

template <typename Peer> void print_rows(Peer &peer, const rows &rows)
{
	static const struct { const char *name; size_t bytes; } sizes[] = {
		{ "256 B", 256 }, { "4 KiB", 4096 }, { "64 KiB", 65536 }, { "2 MiB", 2 << 20 }, { "64 MiB", 64 << 20 }
	};
	static const struct { const char *name; size_t count; } lives[] = {
		{ "1,000", 1000 }, { "10,000", 10000 }, { "100,000", 100000 }
	}, holes[] = { { "4,096", 4096 }, { "16,384", 16384 }, { "65,536", 65536 } };

	for (auto &size : sizes)
		if (rows.wanted(std::string("pair ") + size.name))
			print_row(std::string("pair ") + size.name, cost([&] { peer.put(peer.get(size.bytes)); }));
	for (auto &live : lives)
		if (rows.wanted(std::string("live ") + live.name))
			print_row(std::string("live ") + live.name, cost_live(peer, live.count));
	for (auto &hole : holes)
		if (rows.wanted(std::string("holes ") + hole.name))
			print_row(std::string("holes ") + hole.name, cost_holes(peer, hole.count));
	for (auto &live : lives)
		for (size_t most : { 1, 4, 64, 256, 1024, 4096 }) {
			std::string name = std::string("random ") + live.name + " of " + std::to_string(most) + " MiB";

			if (rows.wanted(name))
				print_row(name, cost_random(peer, live.count, most << 20));
		}
	for (int threads = 1; threads <= 16; threads *= 2)
		if (rows.wanted("threads " + std::to_string(threads)))
			print_row("threads " + std::to_string(threads), cost_threads(peer, threads));
}

#endif
