/*
 * c10.h - a stand-in for PyTorch's libc10 and libc10_cuda, as far as gpumem sees them: c10.cc defines the
 * functions that the CUDA allocator tells of its blocks, c10_cuda.cc is such an allocator.
 */
#ifndef TEST_C10_H
#define TEST_C10_H

#include <cstddef>
#include <cstdint>

namespace c10 {
struct Device {
	int8_t type, index;
};
void reportMemoryUsageToProfiler(void *block, int64_t bytes, size_t allocated, size_t reserved,
				 Device device);
void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device);
}

/* What reached the profiler. */
struct reports {
	uint64_t calls, ooms;
	int64_t bytes, allocated, reserved, device_type, device_index;
};
extern "C" void c10_reports(struct reports *ret);

/* What @alloc returns, called by a step of backward in a thread of its own, where no Python runs. */
extern "C" void *c10_backward(void *(*alloc)(size_t bytes), size_t bytes);

/* The allocator's own account. */
struct account {
	uint64_t allocations, frees, live, live_bytes, peak_bytes, segments, reserved_bytes, ooms;
};
extern "C" {
/* How it gets memory: 0 cuMemAlloc, 1 expandable segments; the most that it may reserve, bytes. */
void pool_begin(int device, int expandable, uint64_t limit);
void *pool_alloc(size_t bytes);		/* NULL: out of memory, which was told */
void *pool_backward(size_t bytes);	/* the same in a thread of backward */
void pool_free(void *block);
void pool_empty_cache(void);
void pool_account(struct account *ret);
/* Its segments and blocks into @path, as PyTorch's _snapshot() has them: "segment ADDRESS BYTES small|large" and
 * behind it "block ADDRESS BYTES active_allocated|inactive", in the order of addresses. 0: written. */
int pool_layout(const char *path);
/* Random allocations and frees in @threads threads, @steps each. At random moments, under the
 * allocator's lock, @look is asked whether it sees the same; returns how often it did not. With @log, a
 * file of 1 MiB, what is live is kept there (struct logged), as it was told. */
struct logged { uint64_t address, bytes; };
#define LOG_SLOTS 65535
struct log { uint64_t busy, reserved; struct logged slots[LOG_SLOTS]; };	/* @busy: slot + 1 under way */
typedef int look_fn(const struct account *account);
int pool_storm(int threads, int steps, unsigned int seed, look_fn *look, const char *log);
}

#endif
