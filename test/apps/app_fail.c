/* app_fail.c - a program that survives every failure: whatever the driver refuses is said, and it
 * goes on without it. A test lets each call fail in turn (FAKECUDA_FAIL).
 *
 * What it could get it gives back at the end, by a second try if need be. With APP_KILL set it ends
 * by SIGKILL, with nothing given back. On the fake device it says how often it made each call.
 *
 * Thread context: one thread.
 */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/apps/drv.h"

#define PAGE ((size_t)2 << 20)

static bool tried(const char *what, CUresult result)
{
	say("%s: %d", what, (int)result);
	return result == CUDA_SUCCESS;
}
#define TRY(call) tried(#call, (call))
#define END(call) do { if (!TRY(call)) TRY(call); } while (0)

static CUstream stream;

static void linear(void)
{
	CUdeviceptr a = 0, b = 0, pitched = 0, managed = 0;
	size_t pitch;

	TRY(cuMemAlloc(&a, 100000));
	TRY(cuMemAlloc(&b, 300));
	TRY(cuMemAllocPitch(&pitched, &pitch, 1000, 20, 4));
	TRY(cuMemAllocManaged(&managed, 400000, CU_MEM_ATTACH_GLOBAL));
	checkpoint(1, "linear");
	if (a)
		END(cuMemFree(a));
	if (b)
		END(cuMemFreeAsync(b, stream));
	if (pitched)
		END(cuMemFree(pitched));
	if (managed)
		END(cuMemFree(managed));
	checkpoint(1, "freed");
}

static void host(void)
{
	void *a = NULL, *b = NULL, *pages;
	bool registered;

	pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		DIE("mmap");
	TRY(cuMemHostAlloc(&a, 5000, 0));
	TRY(cuMemAllocHost(&b, 6000));
	registered = TRY(cuMemHostRegister(pages, 65536, 0));
	checkpoint(1, "host");
	if (a)
		END(cuMemFreeHost(a));
	if (b)
		END(cuMemFreeHost(b));
	if (registered)
		END(cuMemHostUnregister(pages));
	munmap(pages, 65536);
	checkpoint(1, "freed");
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = { .Width = 64, .Height = 64,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4 };
	CUDA_ARRAY3D_DESCRIPTOR deep = { .Width = 32, .Height = 32, .Depth = 4,
					 .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 };
	CUmipmappedArray pyramid = NULL;
	CUarray a = NULL, b = NULL;

	TRY(cuArrayCreate(&a, &flat));
	TRY(cuArray3DCreate(&b, &deep));
	TRY(cuMipmappedArrayCreate(&pyramid, &deep, 3));
	checkpoint(1, "arrays");
	if (a)
		END(cuArrayDestroy(a));
	if (b)
		END(cuArrayDestroy(b));
	if (pyramid)
		END(cuMipmappedArrayDestroy(pyramid));
	checkpoint(1, "destroyed");
}

static void pools(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUdeviceptr a = 0, b = 0, c = 0;
	CUmemoryPool pool = NULL;

	TRY(cuMemPoolCreate(&pool, &props));
	TRY(cuMemAllocAsync(&a, 70000, stream));
	TRY(cuMemAllocAsync(&b, 80000, stream));
	if (pool)
		TRY(cuMemAllocFromPoolAsync(&c, 90000, pool, stream));
	checkpoint(1, "pools");
	if (a)
		END(cuMemFreeAsync(a, stream));
	if (b)
		END(cuMemFree(b));
	if (pool)
		END(cuMemPoolDestroy(pool));
	checkpoint(1, "one left, its pool destroyed");
	if (c)
		END(cuMemFreeAsync(c, stream));
	checkpoint(1, "freed");
}

static void vmm(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemGenericAllocationHandle handle[2] = { 0 }, again = 0;
	bool mapped[2] = { false, false };
	CUdeviceptr va;

	CHECK(cuMemAddressReserve(&va, 4 * PAGE, 0, 0, 0));
	for (unsigned int i = 0; i < 2; i++) {
		if (TRY(cuMemCreate(&handle[i], 2 * PAGE, &prop, 0)))
			mapped[i] = TRY(cuMemMap(va + 2 * i * PAGE, 2 * PAGE, 0, handle[i], 0));
	}
	if (mapped[0])
		TRY(cuMemRetainAllocationHandle(&again, (void *)va));
	checkpoint(1, "virtual memory");
	if (handle[0])
		END(cuMemRelease(handle[0]));
	if (mapped[0] && mapped[1])
		END(cuMemUnmap(va, 4 * PAGE));
	else if (mapped[0] || mapped[1])
		END(cuMemUnmap(mapped[0] ? va : va + 2 * PAGE, 2 * PAGE));
	checkpoint(1, "unmapped");
	if (again)
		END(cuMemRelease(again));
	if (handle[1])
		END(cuMemRelease(handle[1]));
	CHECK(cuMemAddressFree(va, 4 * PAGE));
	checkpoint(1, "released");
}

static void graphs(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } },
		.bytesize = 5 << 20,
	};
	CUgraphExec exec = NULL;
	bool launched = false;
	CUgraphNode node;
	CUgraph graph;

	CHECK(cuGraphCreate(&graph, 0));
	TRY(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
	if (exec)
		launched = TRY(cuGraphLaunch(exec, stream));
	checkpoint(1, "a graph");
	if (launched && params.dptr)
		END(cuMemFreeAsync(params.dptr, stream));
	if (exec)
		END(cuGraphExecDestroy(exec));
	END(cuGraphDestroy(graph));
	END(cuDeviceGraphMemTrim(0));
	checkpoint(1, "trimmed");
}

/* A context that may not come, and may not go. */
static void contexts(void)
{
	CUctxCreateParams params = { 0 };
	CUcontext own = NULL;
	CUdeviceptr ptr = 0;

	if (!TRY(cuCtxCreate(&own, &params, 0, 0)))
		return;
	TRY(cuMemAlloc(&ptr, 3 << 20));
	checkpoint(1, "a context of our own");
	if (!TRY(cuCtxDestroy(own))) {
		checkpoint(1, "it would not go");
		TRY(cuCtxDestroy(own));
	}
	checkpoint(1, "and is gone");
}

static void reset(void)
{
	CUdeviceptr ptr = 0, async = 0;

	TRY(cuMemAlloc(&ptr, 4 << 20));
	TRY(cuMemAllocAsync(&async, 5 << 20, NULL));
	if (TRY(cuDevicePrimaryCtxReset(0)))
		drv_context[0] = NULL;
	checkpoint(1, "reset, perhaps");
	if (!drv_context[0]) {
		CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
		CHECK(cuCtxSetCurrent(drv_context[0]));
	}
	if (async)
		END(cuMemFree(async));
	checkpoint(1, "what is left");
}

static void count_calls(void)
{
	static const char *const entries[] = {
		"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemFree_v2",
		"cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemHostRegister_v2", "cuMemFreeHost",
		"cuMemHostUnregister", "cuArrayCreate_v2", "cuArray3DCreate_v2",
		"cuMipmappedArrayCreate", "cuArrayDestroy", "cuMipmappedArrayDestroy",
		"cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
		"cuMemFreeAsync", "cuMemCreate", "cuMemMap", "cuMemRetainAllocationHandle",
		"cuMemUnmap", "cuMemRelease", "cuGraphAddMemAllocNode",
		"cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecDestroy",
		"cuGraphDestroy", "cuDeviceGraphMemTrim", "cuCtxCreate_v4", "cuCtxDestroy_v2",
		"cuDevicePrimaryCtxReset_v2",
	};
	__typeof__(&fakecuda_calls) calls = FAKE(fakecuda_calls);

	for (size_t i = 0; calls && i < sizeof(entries) / sizeof(*entries); i++)
		say("calls %s %llu", entries[i], (unsigned long long)calls(entries[i]));
}

int main(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	linear();
	host();
	arrays();
	pools();
	vmm();
	graphs();
	contexts();
	reset();
	count_calls();
	if (getenv("APP_KILL"))
		kill(getpid(), SIGKILL);
	CHECK(cuDevicePrimaryCtxRelease(0));
	say("app_fail: done");
	return 0;
}
