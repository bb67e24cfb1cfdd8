/* app_ctx.c - contexts through the driver API: several on one device, the stack of current ones,
 * memory that dies with its context, the primary context reset with memory live.
 *
 * Thread context: one thread and one helper thread.
 */
#include <pthread.h>

#include "test/apps/drv.h"

static CUcontext make_context(CUdevice device)
{
	CUctxCreateParams params = { 0 };
	CUcontext context;

	CHECK(cuCtxCreate(&context, &params, 0, device));
	return context;
}

static void two_contexts(CUdevice device)
{
	CUcontext first = make_context(device), second = make_context(device), popped, current;
	CUdeviceptr in_first, in_second, base;
	size_t size;

	CHECK(cuMemAlloc(&in_second, 2 << 20));	/* the one created last is current */
	CHECK(cuCtxPopCurrent(&popped));
	expect(popped == second, "the newest context was on top");
	CHECK(cuCtxGetCurrent(&current));
	expect(current == first, "the older one below it");
	CHECK(cuMemAlloc(&in_first, 3 << 20));
	drv_context[0] = first;
	checkpoint(1, "memory in two contexts of one device");
	CHECK(cuMemGetAddressRange(&base, &size, in_second));
	expect(base == in_second && size == 2 << 20, "memory of a context that is not current");
	CHECK(cuMemFree(in_second));
	checkpoint(1, "freed from the other context");
	CHECK(cuCtxPushCurrent(second));
	CHECK(cuMemAlloc(&in_second, 5 << 20));
	CHECK(cuCtxDestroy(second));
	checkpoint(1, "a context destroyed with memory live");
	CHECK(cuCtxGetCurrent(&current));
	expect(current == first, "the one below is current again");
	CHECK(cuMemFree(in_first));
	CHECK(cuCtxDestroy(first));
	drv_context[0] = NULL;
	CHECK(cuCtxGetCurrent(&current));
	expect(current == NULL, "none is left");
	expect(cuMemAlloc(&in_first, 100) == CUDA_ERROR_INVALID_CONTEXT,
	       "nothing works without one");
}

static void reset_primary(CUdevice device)
{
	CUdeviceptr linear, async;
	unsigned int flags;
	int active;

	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	expect(!active, "the primary context before it is used");
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], device));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
	expect(active, "and after");
	CHECK(cuMemAlloc(&linear, 4 << 20));
	CHECK(cuMemAllocAsync(&async, 1 << 20, NULL));
	checkpoint(1, "memory in the primary context");
	CHECK(cuDevicePrimaryCtxReset(device));
	drv_context[0] = NULL;
	checkpoint(1, "reset: what was allocated is gone, what was pooled is not");
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], device));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	expect(cuMemFree(linear) == CUDA_ERROR_INVALID_VALUE, "a pointer from before");
	CHECK(cuMemFree(async));
	CHECK(cuMemAlloc(&linear, 1 << 20));
	checkpoint(1, "a new beginning");
	CHECK(cuMemFree(linear));
	CHECK(cuDevicePrimaryCtxRelease(device));
	drv_context[0] = NULL;
}

/* A thread has no context until it takes one; one context serves two threads. */
static void *other_thread(void *arg)
{
	CUcontext context = arg;
	CUdeviceptr ptr;

	if (cuMemAlloc(&ptr, 100) != CUDA_ERROR_INVALID_CONTEXT)
		return NULL;
	if (cuCtxPushCurrent(context) || cuMemAlloc(&ptr, 1 << 20) || cuCtxPopCurrent(&context))
		return NULL;
	return (void *)ptr;
}

static void two_threads(CUdevice device)
{
	CUcontext context = make_context(device);
	pthread_t thread;
	void *ptr = NULL;

	drv_context[0] = context;
	if (pthread_create(&thread, NULL, other_thread, context))
		DIE("pthread_create");
	pthread_join(thread, &ptr);
	expect(ptr != NULL, "another thread with the same context");
	checkpoint(1, "memory from another thread");
	CHECK(cuMemFree((CUdeviceptr)ptr));
	CHECK(cuCtxDestroy(context));
	drv_context[0] = NULL;
}

int main(void)
{
	CUdevice device;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	two_contexts(device);
	reset_primary(device);
	two_threads(device);
	say("app_ctx: done");
	return 0;
}
