/*
 * libjvmagent.c - a JVM agent that allocates CUDA memory in the JVM's process, for test_host.py.
 * Loaded by -agentpath; needs no JNI header, since it ignores what it is given.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>

int32_t Agent_OnLoad(void *vm, char *options, void *reserved);

__attribute__((visibility("default"))) int32_t Agent_OnLoad(void *vm, char *options, void *reserved)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned int), (*get)(CUdevice *, int);
	CUresult (*retain)(CUcontext *, CUdevice), (*set)(CUcontext);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUdevice device;
	CUcontext context;
	CUdeviceptr p;

	(void)vm;
	(void)options;
	(void)reserved;
	if (!driver)
		return 1;
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&get = dlsym(driver, "cuDeviceGet");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
	if (init(0) || get(&device, 0) || retain(&context, device) || set(context))
		return 2;
	for (int i = 0; i < 16; i++)
		if (alloc(&p, 1 << 20))
			return 3;
	return 0;
}
