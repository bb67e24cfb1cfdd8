/* calls_torch.cpp - the rows of calls.h for PyTorch's own caching allocator, called from C++. Built against an installed
 * PyTorch (scripts/gpu-bench.sh); PYTORCH_CUDA_ALLOC_CONF chooses its settings. */
#include "test/bench/calls.h"

#include <c10/cuda/CUDACachingAllocator.h>

namespace cache = c10::cuda::CUDACachingAllocator;

struct by_torch {
	void *get(size_t bytes) { return cache::raw_alloc_with_stream(bytes, nullptr); }
	void put(void *p) { cache::raw_delete(p); }
	void thread() { }
};

int main(int argc, char **argv)
{
	by_torch peer;

	cache::init(1);
	peer.get(4096);
	peer.get(4 << 20);
	print_rows(peer, { argc - 1, argv + 1 });
	return 0;
}
