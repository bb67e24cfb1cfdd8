/*
 * libstandin.c - a handful of functions of a driver, with the soname libcuda.so.1: what the resolver's tests
 * look functions up in. Each says in its result which ABI was called. No memory, no streams.
 *
 * With STANDIN_EARLY in the environment its constructor looks its own functions up through dlsym,
 * as WSL's driver does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CU_PER_THREAD 2

#pragma GCC visibility push(default)
extern int standin_calls;
extern void *standin_own;
int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuMemAlloc(unsigned int *address, unsigned int bytes);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemFree_v2(unsigned long long address);
int cuMemAllocAsync(unsigned long long *address, size_t bytes, void *stream);
int cuMemAllocAsync_ptsz(unsigned long long *address, size_t bytes, void *stream);
int cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes);
int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);
int cuDeviceGetCount(int *count);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuDeviceTotalMem_v2(size_t *total_bytes, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active);
int cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *found);


int standin_calls;			/* calls that came through to the driver */
void *standin_own;			/* what its constructor was given for cuMemAlloc_v2 */

int cuInit(unsigned int flags)
{
	(void)flags;
	return 0;
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

/* Each ABI of cuMemAlloc gives addresses of its own. */
int cuMemAlloc(unsigned int *address, unsigned int bytes)
{
	standin_calls++;
	*address = 0x1000 + bytes;
	return 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
	/* 666 bytes cannot be had, nor what is more than the device has, and no address comes
	 * twice. What is large begins where the driver's does. */
	static unsigned long long next;
	bool large = bytes >= 0x100000, refused = bytes == 666 || bytes > 1ull << 40;
	unsigned long long at = __atomic_fetch_add(&next, large && !refused ? bytes + 0x300000 : 0x100000ull,
						   __ATOMIC_RELAXED);

	standin_calls++;
	at += 0x200000000;
	*address = large ? (at + 0x1fffff) & ~0x1fffffull : at + bytes;
	return refused ? 2 : 0;
}

int cuMemFree_v2(unsigned long long address)
{
	standin_calls++;
	return address == 1 ? 1 : 0;
}

int cuMemAllocAsync(unsigned long long *address, size_t bytes, void *stream)
{
	(void)stream;
	standin_calls++;
	*address = 0x300000000 + bytes;
	return 0;
}

int cuMemAllocAsync_ptsz(unsigned long long *address, size_t bytes, void *stream)
{
	(void)stream;
	standin_calls++;
	*address = 0x400000000 + bytes;
	return 0;
}

int cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
	standin_calls++;
	return 0;
}

/* One device, one context, always current. */
int cuCtxGetCurrent(void **context)
{
	*context = &standin_calls;
	return 0;
}

int cuCtxGetDevice(int *device)
{
	*device = 0;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	*free_bytes = 1 << 20;
	*total_bytes = 1 << 30;
	return 0;
}

int cuDeviceTotalMem_v2(size_t *total_bytes, int device)
{
	*total_bytes = 1 << 30;
	return device;
}

/* The memory stays: what is taken at the end is shown by the record. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
	standin_calls++;
	return device;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return device;
}

static void *by_version(const char *name, int version, uint64_t flags)
{
	if (!strcmp(name, "cuMemAlloc"))
		return version < 3020 ? (void *)cuMemAlloc : (void *)cuMemAlloc_v2;
	if (!strcmp(name, "cuMemAllocAsync"))
		return flags & CU_PER_THREAD ? (void *)cuMemAllocAsync_ptsz : (void *)cuMemAllocAsync;
	if (!strcmp(name, "cuMemFree"))
		return (void *)cuMemFree_v2;
	if (!strcmp(name, "cuMemcpy"))
		return (void *)cuMemcpy;
	if (!strcmp(name, "cuInit"))
		return (void *)cuInit;
	if (!strcmp(name, "cuGetProcAddress"))
		return version < 12000 ? (void *)cuGetProcAddress : (void *)cuGetProcAddress_v2;
	return NULL;
}

/* As the driver's: a name with a suffix is success, NULL and status 1; an unknown one is 500. */
int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *found)
{
	standin_calls++;
	*ret = by_version(name, version, flags);
	if (found)
		*found = *ret ? 0 : 1;
	return *ret || strstr(name, "_v2") ? 0 : 500;
}

int cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, ret, version, flags, NULL);
}

static __attribute__((constructor)) void loaded(void)
{
	Dl_info self;
	void *handle;

	if (!getenv("STANDIN_EARLY"))
		return;
	dlsym(RTLD_DEFAULT, "cuInit");
	if (!dladdr((void *)loaded, &self))
		return;
	handle = dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	if (handle) {
		standin_own = dlsym(handle, "cuMemAlloc_v2");
		dlclose(handle);
	}
}
