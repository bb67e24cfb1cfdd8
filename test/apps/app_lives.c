/* app_lives.c - what dies with a context, and what does not: created, destroyed, detached, retained
 * twice, reset; handles that come back; green contexts; two threads; two devices.
 *
 * Thread context: one thread and one helper thread.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "test/apps/drv.h"

#define MIB ((size_t)1 << 20)
#define TRY(call) say("%s: %d", #call, (int)(call))

struct everything {
	CUdeviceptr linear, pitched, managed, async, mapped;
	CUmemGenericAllocationHandle handle;
	CUmipmappedArray pyramid;
	CUarray array;
	void *host, *pages;
};

/* One of each kind, in the current context. */
static struct everything allocate(size_t mib, int device)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = 128, .Height = 64,
					 .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						   .id = device } };
	struct everything all;
	size_t pitch;

	CHECK(cuMemAlloc(&all.linear, mib * MIB));
	CHECK(cuMemAllocPitch(&all.pitched, &pitch, 1000, 100, 4));
	CHECK(cuMemAllocManaged(&all.managed, 2 * mib * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocAsync(&all.async, 3 * mib * MIB, NULL));
	CHECK(cuArray3DCreate(&all.array, &desc));
	CHECK(cuMipmappedArrayCreate(&all.pyramid, &desc, 3));
	CHECK(cuMemHostAlloc(&all.host, mib * 4096, CU_MEMHOSTALLOC_PORTABLE));
	all.pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all.pages == MAP_FAILED)
		DIE("mmap");
	CHECK(cuMemHostRegister(all.pages, 8192, 0));
	CHECK(cuMemCreate(&all.handle, 2 * mib * MIB, &prop, 0));
	CHECK(cuMemAddressReserve(&all.mapped, 2 * mib * MIB, 0, 0, 0));
	CHECK(cuMemMap(all.mapped, 2 * mib * MIB, 0, all.handle, 0));
	return all;
}

/* What outlives its context, given back in another one. */
static void free_survivors(const struct everything *all, size_t mib)
{
	CHECK(cuMemFree(all->async));
	CHECK(cuMemUnmap(all->mapped, 2 * mib * MIB));
	CHECK(cuMemRelease(all->handle));
	CHECK(cuMemAddressFree(all->mapped, 2 * mib * MIB));
	munmap(all->pages, 8192);
}

static CUcontext make_context(CUdevice device)
{
	CUctxCreateParams params = { 0 };
	CUcontext context;

	CHECK(cuCtxCreate(&context, &params, 0, device));
	return context;
}

/* A context with everything live is destroyed beside another one of the same device. */
static void destroyed(void)
{
	CUcontext stays = make_context(0), goes;
	struct everything kept = allocate(1, 0), lost;

	goes = make_context(0);
	lost = allocate(2, 0);
	drv_context[0] = stays;
	checkpoint(2, "everything in two contexts");
	CHECK(cuCtxDestroy(goes));
	checkpoint(2, "one destroyed");
	TRY(cuMemFree(lost.linear));
	TRY(cuMemFreeHost(lost.host));
	free_survivors(&lost, 2);
	checkpoint(2, "what outlived it is given back");
	goes = make_context(0);
	CHECK(cuMemAlloc(&lost.linear, 3 * MIB));
	checkpoint(2, "a third context");
	CHECK(cuCtxDestroy(goes));
	checkpoint(2, "destroyed too");
	CHECK(cuCtxDestroy(stays));
	drv_context[0] = NULL;
	TRY(cuMemFree(kept.async));	/* needs no context */
	kept.async = 0;
	/* Which error depends on what lies where the driver's structure was. */
	say("destroyed twice: %s", cuCtxDestroy(stays) ? "refused" : "taken");
	checkpoint(2, "the last one destroyed");
	goes = make_context(1);
	free_survivors(&kept, 1);
	CHECK(cuCtxDestroy(goes));
	checkpoint(2, "given back from another device");
}

static void over_and_over(void)
{
	CUdeviceptr ptr;

	for (int i = 0; i < 50; i++) {
		CUcontext context = make_context(i % 2);

		CHECK(cuMemAlloc(&ptr, 4096u * (unsigned)(i + 1)));
		if (i % 3 == 0)
			CHECK(cuMemFree(ptr));
		CHECK(cuCtxDestroy(context));
	}
	checkpoint(2, "fifty contexts, one after the other");
}

static void primary(void)
{
	CUcontext again;
	struct everything all;

	CHECK(cuDevicePrimaryCtxRetain(&drv_context[1], 1));
	CHECK(cuDevicePrimaryCtxRetain(&again, 1));
	say("the same context: %s", again == drv_context[1] ? "yes" : "no");
	CHECK(cuCtxSetCurrent(again));
	all = allocate(1, 1);
	checkpoint(2, "everything in a primary context");
	CHECK(cuDevicePrimaryCtxRelease(1));
	checkpoint(2, "released once of twice");
	CHECK(cuMemFree(all.linear));
	checkpoint(2, "and still working");
	CHECK(cuDevicePrimaryCtxRelease(1));
	drv_context[1] = NULL;
	checkpoint(2, "released for good, the context gone");
	TRY(cuDevicePrimaryCtxRelease(1));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[1], 1));
	CHECK(cuCtxSetCurrent(drv_context[1]));
	TRY(cuMemFree(all.managed));
	free_survivors(&all, 1);
	all = allocate(2, 1);
	checkpoint(2, "another context, filled again");
	CHECK(cuDevicePrimaryCtxReset(1));
	drv_context[1] = NULL;
	checkpoint(2, "reset");
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[1], 1));
	CHECK(cuCtxSetCurrent(drv_context[1]));
	free_survivors(&all, 2);
	CHECK(cuDevicePrimaryCtxRelease(1));
	drv_context[1] = NULL;
	checkpoint(2, "all given back, the context too");
}

/* Allocations of the primary context and of one of the program's own; each end takes its own. */
static void side_by_side(void)
{
	CUdeviceptr in_primary, in_own;
	CUcontext own;

	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	own = make_context(0);
	CHECK(cuMemAlloc(&in_own, 5 * MIB));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuMemAlloc(&in_primary, 7 * MIB));
	checkpoint(2, "a primary context and one of our own");
	CHECK(cuDevicePrimaryCtxReset(0));
	CHECK(cuCtxSetCurrent(own));
	drv_context[0] = own;
	checkpoint(2, "the primary one reset");
	CHECK(cuMemFree(in_own));
	TRY(cuMemFree(in_primary));
	CHECK(cuCtxDestroy(own));
	drv_context[0] = NULL;
	checkpoint(2, "neither context is left");
}

static void *destroy_context(void *arg)
{
	return cuCtxDestroy(arg) ? arg : NULL;
}

static void by_another_thread(void)
{
	CUcontext context = make_context(0);
	struct everything all = allocate(1, 0);
	pthread_t thread;
	void *failed;

	CHECK(cuCtxPopCurrent(&context));
	if (pthread_create(&thread, NULL, destroy_context, context))
		DIE("pthread_create");
	pthread_join(thread, &failed);
	expect(!failed, "another thread destroyed it");
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	checkpoint(2, "destroyed by another thread");
	free_survivors(&all, 1);
	CHECK(cuDevicePrimaryCtxRelease(0));
	drv_context[0] = NULL;
}

/* A green context's memory is the primary's; it holds the primary context, too. */
static void green(void)
{
	CUdevResource all, part;
	unsigned int groups = 1;
	CUdevResourceDesc desc;
	CUdeviceptr a, b, c;
	CUgreenCtx green_ctx;
	CUcontext context;

	CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8));
	CHECK(cuDevResourceGenerateDesc(&desc, &part, 1));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuGreenCtxCreate(&green_ctx, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(cuCtxFromGreenCtx(&context, green_ctx));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&a, 2 * MIB));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuMemAlloc(&b, 3 * MIB));
	checkpoint(2, "a green context beside its primary one");
	CHECK(cuGreenCtxDestroy(green_ctx));
	checkpoint(2, "the green one destroyed: its memory stays");
	CHECK(cuMemFree(a));
	CHECK(cuGreenCtxCreate(&green_ctx, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(cuCtxFromGreenCtx(&context, green_ctx));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&c, 4 * MIB));
	CHECK(cuDevicePrimaryCtxRelease(0));
	drv_context[0] = context;
	checkpoint(2, "the primary one released, held by a green one");
	drv_context[0] = NULL;
	CHECK(cuGreenCtxDestroy(green_ctx));
	checkpoint(2, "the last that held it is gone");
}

int main(void)
{
	CUcontext top;

	CHECK(cuInit(0));
	need_devices(2);
	destroyed();
	over_and_over();
	primary();
	side_by_side();
	by_another_thread();
	green();
	while (!cuCtxPopCurrent(&top))
		;
	say("app_lives: done");
	return 0;
}
