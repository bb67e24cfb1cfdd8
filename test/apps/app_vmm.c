/* app_vmm.c - virtual memory: bytes live by references and mappings, in every order of their ends.
 *
 * Handles mapped several times, on several devices, on the host; one unmap over several mappings,
 * with holes; references taken, handed to this very process and given back.
 *
 * Thread context: one thread.
 */
#include "test/apps/drv.h"

#define PAGE ((size_t)2 << 20)
#define TRY(call) say("%s: %d", #call, (int)(call))

static CUmemGenericAllocationHandle make(size_t bytes, CUmemLocationType type, int id, bool shared)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = type, .id = id } };
	CUmemGenericAllocationHandle handle;

	if (shared)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK(cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static CUmemGenericAllocationHandle on_device(size_t bytes, int device)
{
	return make(bytes, CU_MEM_LOCATION_TYPE_DEVICE, device, false);
}

/* One unmap over three mappings of two handles, with references left and without. */
static void ranges(CUdeviceptr va)
{
	CUmemGenericAllocationHandle a = on_device(2 * PAGE, 0), b = on_device(3 * PAGE, 0);

	CHECK(cuMemMap(va, 2 * PAGE, 0, a, 0));
	CHECK(cuMemMap(va + 2 * PAGE, 3 * PAGE, 0, b, 0));
	CHECK(cuMemMap(va + 5 * PAGE, 2 * PAGE, 0, a, 0));
	checkpoint(2, "three mappings in a row");
	CHECK(cuMemRelease(b));
	checkpoint(2, "one lives by its mapping alone");
	TRY(cuMemUnmap(va + PAGE, PAGE));
	TRY(cuMemUnmap(va, PAGE));
	checkpoint(2, "a part of a mapping is not unmapped");
	CHECK(cuMemUnmap(va, 7 * PAGE));
	checkpoint(2, "all of it unmapped in one");
	CHECK(cuMemMap(va + PAGE, 2 * PAGE, 0, a, 0));
	CHECK(cuMemUnmap(va + PAGE, 2 * PAGE));
	CHECK(cuMemRelease(a));
	checkpoint(2, "mapped once more, then let go");
}

/* Mappings with holes between them: one unmap takes all. A part of a handle is not mapped. */
static void holes(CUdeviceptr va)
{
	CUmemGenericAllocationHandle a = on_device(2 * PAGE, 0), b = on_device(PAGE, 1);

	TRY(cuMemMap(va, PAGE, 0, a, 0));
	TRY(cuMemMap(va, PAGE, PAGE, a, 0));
	TRY(cuMemMap(va, 4 * PAGE, 0, a, 0));
	checkpoint(2, "not in part");
	CHECK(cuMemMap(va + PAGE, 2 * PAGE, 0, a, 0));
	CHECK(cuMemMap(va + 5 * PAGE, PAGE, 0, b, 0));
	CHECK(cuMemMap(va + 8 * PAGE, 2 * PAGE, 0, a, 0));
	CHECK(cuMemRelease(a));
	CHECK(cuMemRelease(b));
	checkpoint(2, "mappings with holes between them");
	TRY(cuMemUnmap(va, 9 * PAGE));
	checkpoint(2, "the range would cut one");
	CHECK(cuMemUnmap(va, 8 * PAGE));
	checkpoint(2, "one is left");
	TRY(cuMemUnmap(va, 8 * PAGE));
	CHECK(cuMemUnmap(va, 12 * PAGE));
	checkpoint(2, "none is left");
}

static void references(CUdeviceptr va)
{
	CUmemGenericAllocationHandle a = on_device(PAGE, 1), again, more;

	TRY(cuMemRetainAllocationHandle(&again, (void *)va));
	CHECK(cuMemMap(va, PAGE, 0, a, 0));
	CHECK(cuMemRelease(a));
	CHECK(cuMemRetainAllocationHandle(&again, (void *)va));
	CHECK(cuMemRetainAllocationHandle(&more, (void *)(va + 4096)));
	say("the same handle: %s", again == a && more == a ? "yes" : "no");
	CHECK(cuMemUnmap(va, PAGE));
	checkpoint(2, "two references, taken by address");
	CHECK(cuMemRelease(again));
	checkpoint(2, "one of them");
	CHECK(cuMemRelease(more));
	checkpoint(2, "none");
}

/* Another handle of the same memory, by a file descriptor. */
static void exported(CUdeviceptr va)
{
	CUmemGenericAllocationHandle a = make(2 * PAGE, CU_MEM_LOCATION_TYPE_DEVICE, 0, true), b;
	int fd = -1;

	CHECK(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemImportFromShareableHandle(&b, (void *)(intptr_t)fd,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	checkpoint(2, "imported from ourselves");
	CHECK(cuMemMap(va, 2 * PAGE, 0, a, 0));
	CHECK(cuMemMap(va + 2 * PAGE, 2 * PAGE, 0, b, 0));
	checkpoint(2, "mapped by both handles");
	CHECK(cuMemRelease(a));
	CHECK(cuMemUnmap(va, 2 * PAGE));
	checkpoint(2, "the first handle is gone");
	CHECK(cuMemUnmap(va + 2 * PAGE, 2 * PAGE));
	CHECK(cuMemRelease(b));
	checkpoint(2, "and the second");
}

static void elsewhere(CUdeviceptr va)
{
	CUmemGenericAllocationHandle far = on_device(3 * PAGE, 1), host;
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	CHECK(cuMemMap(va, 3 * PAGE, 0, far, 0));
	CHECK(cuMemSetAccess(va, 3 * PAGE, &access, 1));
	checkpoint(2, "the other device's memory");
	CHECK(cuMemRelease(far));
	CHECK(cuMemUnmap(va, 3 * PAGE));
	host = make(PAGE, CU_MEM_LOCATION_TYPE_HOST, 0, false);
	CHECK(cuMemMap(va, PAGE, 0, host, 0));
	checkpoint(2, "memory of the host, mapped");
	CHECK(cuMemUnmap(va, PAGE));
	CHECK(cuMemRelease(host));
	checkpoint(2, "given back");
	/* Handles need no context. */
	CHECK(cuCtxPopCurrent(&drv_context[0]));
	far = on_device(PAGE, 1);
	CHECK(cuMemMap(va, PAGE, 0, far, 0));
	checkpoint(2, "made without a context");
	CHECK(cuMemUnmap(va, PAGE));
	CHECK(cuMemRelease(far));
	CHECK(cuCtxPushCurrent(drv_context[0]));
	checkpoint(2, "and ended without");
}

/* Many, so that tables of whoever keeps account grow, freed in another order. */
static void many(CUdeviceptr va)
{
	enum { COUNT = 3000 };
	static CUmemGenericAllocationHandle handles[COUNT];
	CUdeviceptr at = va;

	for (int i = 0; i < COUNT; i++, at += PAGE) {
		handles[i] = on_device(PAGE, i % 2);
		CHECK(cuMemMap(at, PAGE, 0, handles[i], 0));
	}
	for (int i = 0; i < COUNT; i += 3)
		CHECK(cuMemRelease(handles[i]));
	checkpoint(2, "three thousand handles");
	CHECK(cuMemUnmap(va, COUNT * PAGE / 2));
	checkpoint(2, "half of them unmapped in one");
	CHECK(cuMemUnmap(va + COUNT * PAGE / 2, COUNT * PAGE / 2));
	for (int i = 0; i < COUNT; i++) {
		if (i % 3)
			CHECK(cuMemRelease(handles[i]));
	}
	checkpoint(2, "all of them gone");
}

int main(void)
{
	CUdeviceptr va;

	CHECK(cuInit(0));
	need_devices(2);
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRetain(&drv_context[i], i));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	CHECK(cuMemAddressReserve(&va, 3000 * PAGE, 0, 0, 0));
	ranges(va);
	holes(va);
	references(va);
	exported(va);
	elsewhere(va);
	many(va);
	CHECK(cuMemAddressFree(va, 3000 * PAGE));
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRelease(i));
	say("app_vmm: done");
	return 0;
}
