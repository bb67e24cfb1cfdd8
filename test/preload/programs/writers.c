/*
 * writers.c - asks for memory, itself and by a library given by its path: how many bytes of the
 * device's that takes each time. For test_writers.py.
 *
 *   writers [LIBRARY]
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define CHECK(call) \
	do { \
		int check_ = (int)(call); \
		if (check_) { \
			printf("%s: %d\n", #call, check_); \
			exit(1); \
		} \
	} while (0)

typedef CUresult ask_fn(size_t bytes, CUdeviceptr *ret);

static size_t taken(ask_fn *ask, size_t bytes)
{
	size_t before, after, total;
	CUdeviceptr p;

	CHECK(cuMemGetInfo(&before, &total));
	CHECK(ask(bytes, &p));
	CHECK(cuMemGetInfo(&after, &total));
	return (before - after) / MIB;
}

static CUresult own(size_t bytes, CUdeviceptr *ret)
{
	volatile CUresult result = cuMemAlloc(ret, bytes);

	return result;
}

int main(int argc, char **argv)
{
	void *library = NULL, *address;
	ask_fn *ask = own;
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	printf("own: %zu MiB\n", taken(own, 3 * MIB));
	if (argc > 1) {
		library = dlopen(argv[1], RTLD_NOW);
		if (!library) {
			printf("%s\n", dlerror());
			return 1;
		}
		address = dlsym(library, "writers_ask");
		memcpy(&ask, &address, sizeof(ask));
		printf("its: %zu MiB\n", taken(ask, 3 * MIB));
		printf("its large: %zu MiB\n", taken(ask, 30 * MIB));
		printf("its small: %zu MiB\n", taken(ask, 1000));
	}
	printf("own later: %zu MiB\n", taken(own, 5 * MIB));
	return 0;
}
