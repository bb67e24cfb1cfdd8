/* app_oom.cu - finds out how much memory there is by asking for too much and halving, fills the
 * device, meets out-of-memory in each way of allocating, and recovers.
 *
 * On a real GPU it takes all memory for a moment, in pieces of at least 64 MiB.
 */
#include <vector>

#include "test/apps/app.h"

#define SMALLEST ((size_t)64 << 20)

/* Halve until it fits, as programs do that take all they can get. */
static void probe(void)
{
	size_t free_bytes, total_bytes, size;
	int failures = 0;
	void *ptr = NULL;

	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	for (size = 2 * total_bytes; cudaMalloc(&ptr, size) != cudaSuccess; size /= 2) {
		if (cudaGetLastError() != cudaErrorMemoryAllocation)
			DIE("a failure that is not out of memory");
		failures++;
	}
	expect(failures >= 1 && size <= total_bytes && size >= total_bytes / 8,
	       "probing by halving");
	CHECK(cudaFree(ptr));
}

static std::vector<void *> fill_up(void)
{
	std::vector<void *> all;
	size_t free_bytes, total_bytes;
	void *ptr;

	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	for (size_t size = free_bytes / 2; size >= SMALLEST;) {
		if (cudaMalloc(&ptr, size) == cudaSuccess)
			all.push_back(ptr);
		else
			size /= 2;
	}
	expect(cudaGetLastError() == cudaErrorMemoryAllocation, "the device is full");
	return all;
}

/* Each way of allocating says the same, and none of them leaves anything broken. */
static void fail_in_each_way(void)
{
	size_t size = 2 * SMALLEST, pitch;
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
	cudaPitchedPtr box;
	cudaArray_t array;
	void *ptr;

	expect(cudaMalloc(&ptr, size) == cudaErrorMemoryAllocation, "cudaMalloc");
	expect(cudaMallocPitch(&ptr, &pitch, 1 << 20, 2 * SMALLEST >> 20) ==
	       cudaErrorMemoryAllocation, "cudaMallocPitch");
	expect(cudaMalloc3D(&box, make_cudaExtent(1 << 20, 2 * SMALLEST >> 20, 1)) ==
	       cudaErrorMemoryAllocation, "cudaMalloc3D");
	expect(cudaMallocAsync(&ptr, size, 0) == cudaErrorMemoryAllocation, "cudaMallocAsync");
	expect(cudaMallocArray(&array, &format, 8192, 1024) == cudaErrorMemoryAllocation,
	       "cudaMallocArray");
	expect(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess,
	       "the last error, once");
	CHECK(cudaDeviceSynchronize());
	say("not sticky: ok");
}

int main(void)
{
	std::vector<void *> all;
	void *ptr;

	CHECK(cudaSetDevice(0));
	probe();
	all = fill_up();
	checkpoint("full");
	fail_in_each_way();
	checkpoint("after the failures");
	CHECK(cudaFree(all.back()));
	all.pop_back();
	for (void *one : all)
		CHECK(cudaFree(one));
	CHECK(cudaMalloc(&ptr, 2 * SMALLEST));
	CHECK(cudaMemset(ptr, 3, 2 * SMALLEST));
	expect(holds_byte(ptr, 3, 2 * SMALLEST), "recovered");
	CHECK(cudaFree(ptr));
	checkpoint("all freed");
	say("app_oom: done");
	return 0;
}
