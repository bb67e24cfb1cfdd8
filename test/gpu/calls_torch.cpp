/* calls_torch.cpp - what a pair costs in PyTorch's own caching allocator, called from C++: the peer of
 * calls.cu. Built against an installed PyTorch (scripts/gpu-calls.sh). */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

static double now()
{
	return std::chrono::duration<double, std::nano>(
		std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main()
{
	namespace cache = c10::cuda::CUDACachingAllocator;

	cache::init(1);
	for (size_t bytes : { (size_t)4096, (size_t)2 << 20, (size_t)64 << 20 }) {
		std::vector<double> batches;

		for (int b = 0; b < 16; b++) {
			double began = now();

			for (int i = 0; i < 5000; i++)
				cache::raw_delete(cache::raw_alloc_with_stream(bytes, nullptr));
			batches.push_back((now() - began) / 5000);
		}
		std::sort(batches.begin(), batches.end());
		printf("PyTorch's cache %zu: %.0f ns\n", bytes, batches[8]);
	}
	return 0;
}
