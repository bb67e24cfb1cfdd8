/*
 * bypass.c - a host that loads a plugin, which gives the GPU work.
 *
 *	bypass PLUGIN deep|plain [frees before its first call]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address_t;

#define FIND(name) driver.name = (__typeof__(driver.name))dlsym(handle, #name)

static struct {
	int (*cuInit)(unsigned int flags);
	int (*cuDevicePrimaryCtxRetain)(void **context, int device);
	int (*cuCtxSetCurrent)(void *context);
	int (*cuMemAlloc_v2)(address_t *address, size_t bytes);
	int (*cuMemFree_v2)(address_t address);
} driver;

int main(int argc, char **argv)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW), *context, *plugin;
	int (*deep_work)(address_t address, size_t bytes);
	address_t address, other;

	if (argc < 3 || !handle)
		return 69;
	FIND(cuInit);
	FIND(cuDevicePrimaryCtxRetain);
	FIND(cuCtxSetCurrent);
	FIND(cuMemAlloc_v2);
	FIND(cuMemFree_v2);
	if (driver.cuInit(0) || driver.cuDevicePrimaryCtxRetain(&context, 0) ||
	    driver.cuCtxSetCurrent(context) || driver.cuMemAlloc_v2(&address, 4096) ||
	    driver.cuMemAlloc_v2(&other, 4096))
		return 70;
	plugin = dlopen(argv[1], RTLD_LAZY | (strcmp(argv[2], "deep") ? 0 : RTLD_DEEPBIND));
	deep_work = plugin ? (int (*)(address_t, size_t))dlsym(plugin, "deep_work") : NULL;
	if (!deep_work)
		return 71;
	if (argc > 3 && driver.cuMemFree_v2(other))
		return 72;
	if (deep_work(address, 4096))
		return 73;
	if (!dlsym(plugin, "deep_work") || driver.cuMemFree_v2(address))
		return 74;
	printf("done\n");
	return 0;
}
