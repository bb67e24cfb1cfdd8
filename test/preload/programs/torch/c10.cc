/* c10.cc - a stand-in for libc10.so: it counts what reaches it. See c10.h. */
#include "test/preload/programs/torch/c10.h"

#include <mutex>
#include <thread>
#include <vector>

static std::mutex mutex;
static struct reports seen;

namespace c10 {

void reportMemoryUsageToProfiler(void *block, int64_t bytes, size_t allocated, size_t reserved,
				 Device device)
{
	std::lock_guard<std::mutex> lock(mutex);

	(void)block;
	seen.calls++;
	seen.bytes += bytes;
	seen.allocated = (int64_t)allocated;
	seen.reserved = (int64_t)reserved;
	seen.device_type = device.type;
	seen.device_index = device.index;
}

void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device)
{
	std::lock_guard<std::mutex> lock(mutex);

	(void)bytes;
	(void)allocated;
	(void)reserved;
	(void)device;
	seen.ooms++;
}

}

void c10_reports(struct reports *ret)
{
	std::lock_guard<std::mutex> lock(mutex);

	*ret = seen;
}

/* A step of backward, called as PyTorch's generated ones are. */
namespace torch::autograd::generated {
struct AddmmBackward0 {
	void *apply(std::vector<void *> &&grads);
	void *(*alloc)(size_t bytes);
	size_t bytes;
};

__attribute__((noinline)) void *AddmmBackward0::apply(std::vector<void *> &&grads)
{
	grads.push_back(alloc(bytes));
	return grads.back();
}
}

void *c10_backward(void *(*alloc)(size_t bytes), size_t bytes)
{
	torch::autograd::generated::AddmmBackward0 step = { alloc, bytes };
	void *ret = nullptr;

	std::thread([&] { ret = step.apply({}); }).join();
	return ret;
}
