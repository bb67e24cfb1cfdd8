/*
 * trivial.c - the floor under a hook: a library to preload whose cuMemAlloc and cuMemFree do nothing.
 *
 * It comes in as libgpumem does, by dlsym and cuGetProcAddress. What the CUDA runtime takes for a cudaMalloc and a
 * cudaFree with these in the driver's place no library below the runtime can save.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include <cuda.h>
#include <cudaTypedefs.h>

static PFN_cuGetProcAddress_v12000 real_get;

static CUresult trivial_alloc(CUdeviceptr *ret, size_t bytes)
{
	(void)bytes;
	*ret = UINT64_C(0x700000000000);
	return CUDA_SUCCESS;
}

static CUresult trivial_free(CUdeviceptr address)
{
	(void)address;
	return CUDA_SUCCESS;
}

static void replace(const char *name, void **function)
{
	if (!strncmp(name, "cuMemAlloc", 10) && (!name[10] || !strcmp(name + 10, "_v2")))
		*function = (void *)trivial_alloc;
	if (!strncmp(name, "cuMemFree", 9) && (!name[9] || !strcmp(name + 9, "_v2")))
		*function = (void *)trivial_free;
}

static CUresult get(const char *name, void **function, int version, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *status)
{
	CUresult r = real_get(name, function, version, flags, status);

	if (r != CUDA_SUCCESS || !function || !*function)
		return r;
	replace(name, function);
	/* The runtime asks this function for itself, and then that one for all others. */
	if (!strcmp(name, "cuGetProcAddress") && version >= 12000)
		*function = (void *)get;
	return r;
}

void *dlsym(void *handle, const char *name) __attribute__((visibility("default")));
void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);
	void *found;

	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	found = real(handle, name);
	if (!found || strncmp(name, "cu", 2))
		return found;
	replace(name, &found);
	if (!strcmp(name, "cuGetProcAddress_v2")) {
		real_get = (PFN_cuGetProcAddress_v12000)found;
		found = (void *)get;
	}
	return found;
}
