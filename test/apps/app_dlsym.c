/* app_dlsym.c - a program that links no CUDA: it opens the driver and looks up each name, by dlsym
 * with old and new names and by cuGetProcAddress, as CuPy, XLA and many bindings do.
 *
 * Every way must lead to the same function, and memory allocated through one must be freed
 * through another. Thread context: one thread.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "test/apps/checkpoint.h"

static void *library;

/* cuda.h renames cuMemAlloc and its like; the names below are those that the library exports. */
#define LOOKUP(name, type) ((type)lookup(name))

static void *lookup(const char *name)
{
	void *address = dlsym(library, name);

	if (!address)
		DIE("no %s", name);
	return address;
}

#define CHECK(call)                                                                            \
	do {                                                                                   \
		CUresult check_result = (call);                                                \
		if (check_result != CUDA_SUCCESS)                                              \
			DIE("%s: CUresult %d", #call, (int)check_result);                      \
	} while (0)

static void dlsym_synchronize(int device)
{
	(void)device;
	CHECK(LOOKUP("cuCtxSynchronize", PFN_cuCtxSynchronize_v2000)());
}

static void dlsym_mem_info(int device, size_t *ret_free, size_t *ret_total)
{
	(void)device;
	CHECK(LOOKUP("cuMemGetInfo_v2", PFN_cuMemGetInfo_v3020)(ret_free, ret_total));
}

static void checkpoint(const char *what)
{
	static const struct checkpoint_driver driver = { dlsym_synchronize, dlsym_mem_info };

	checkpoint_with(&driver, "", 1, what);
}

/* cuGetProcAddress, the ABI of @version. */
static void *by_version(const char *name, int version)
{
	CUdriverProcAddressQueryResult found;
	void *address = NULL;

	CHECK(LOOKUP("cuGetProcAddress_v2", PFN_cuGetProcAddress_v12000)(name, &address, version, 0,
									 &found));
	if (!address)
		DIE("no %s of version %d", name, version);
	return address;
}

static void same_functions(void)
{
	void *old_way = NULL;

	expect(by_version("cuMemAlloc", 3020) == lookup("cuMemAlloc_v2"),
	       "cuMemAlloc by either way");
	expect(by_version("cuMemFree", 3020) == lookup("cuMemFree_v2"), "cuMemFree by either way");
	expect(by_version("cuMemAllocAsync", 11020) == lookup("cuMemAllocAsync"),
	       "cuMemAllocAsync by either way");
	expect(by_version("cuGetProcAddress", 12000) == lookup("cuGetProcAddress_v2"),
	       "cuGetProcAddress finds itself");
	CHECK(LOOKUP("cuGetProcAddress", PFN_cuGetProcAddress_v11030)("cuMemAlloc", &old_way, 3020,
								      0));
	expect(old_way == lookup("cuMemAlloc_v2"), "the old cuGetProcAddress");
	expect(dlsym(library, "cuNoSuchFunction") == NULL, "a name that does not exist");
	expect(dlsym(library, "cuMemAlloc_v2_ptsz") == NULL, "nor this one");
}

static void memory(void)
{
	PFN_cuMemAlloc_v3020 alloc = LOOKUP("cuMemAlloc_v2", PFN_cuMemAlloc_v3020);
	PFN_cuMemFree_v3020 release = (PFN_cuMemFree_v3020)by_version("cuMemFree", 3020);
	PFN_cuMemAllocAsync_v11020 async = LOOKUP("cuMemAllocAsync", PFN_cuMemAllocAsync_v11020);
	PFN_cuMemFreeAsync_v11020_ptsz async_release =
		LOOKUP("cuMemFreeAsync_ptsz", PFN_cuMemFreeAsync_v11020_ptsz);
	PFN_cuMemHostAlloc_v2020 host_alloc = LOOKUP("cuMemHostAlloc", PFN_cuMemHostAlloc_v2020);
	PFN_cuMemFreeHost_v2000 host_free = LOOKUP("cuMemFreeHost", PFN_cuMemFreeHost_v2000);
	CUdeviceptr a, b;
	void *host;

	CHECK(alloc(&a, 1 << 20));
	CHECK(async(&b, 1 << 20, NULL));
	CHECK(host_alloc(&host, 1 << 20, 0));
	checkpoint("memory by looked-up functions");
	CHECK(release(a));
	CHECK(LOOKUP("cuCtxSynchronize", PFN_cuCtxSynchronize_v2000)());
	CHECK(async_release(b, NULL));
	CHECK(host_free(host));
	checkpoint("freed by others");
}

int main(void)
{
	CUcontext context;
	CUdevice device;

	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		DIE("%s", dlerror());
	CHECK(LOOKUP("cuInit", PFN_cuInit_v2000)(0));
	CHECK(LOOKUP("cuDeviceGet", PFN_cuDeviceGet_v2000)(&device, 0));
	CHECK(LOOKUP("cuDevicePrimaryCtxRetain", PFN_cuDevicePrimaryCtxRetain_v7000)(&context,
										    device));
	CHECK(LOOKUP("cuCtxSetCurrent", PFN_cuCtxSetCurrent_v4000)(context));
	same_functions();
	memory();
	CHECK(LOOKUP("cuDevicePrimaryCtxRelease_v2", PFN_cuDevicePrimaryCtxRelease_v11000)(device));
	say("app_dlsym: done");
	return 0;
}
