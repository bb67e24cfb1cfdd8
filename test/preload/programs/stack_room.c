/*
 * stack_room.c - how much stack CUDA calls take of a thread: for each step a line "name bytes", on a
 * stack of its own that is painted before.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (1u << 20)

static CUcontext context;
static int failed;

static void *nothing(void *arg)
{
	return arg;
}

static void *first_call(void *arg)
{
	CUdevice device;

	failed |= cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device);
	return arg;
}

static void *pair(void *arg)
{
	CUdeviceptr p;

	failed |= cuCtxSetCurrent(context) || cuMemAlloc(&p, 1000) || cuMemFree(p);
	return arg;
}

static void measure(const char *name, void *(*run)(void *))
{
	unsigned char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t thread;
	size_t clean = 0;

	memset(stack, 0x5a, BYTES);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, BYTES);
	failed |= pthread_create(&thread, &attr, run, NULL) != 0;
	pthread_join(thread, NULL);
	while (clean < BYTES && stack[clean] == 0x5a)
		clean++;
	printf("%s %zu\n", name, BYTES - clean);
	munmap(stack, BYTES);
}

int main(void)
{
	measure("nothing", nothing);
	measure("first", first_call);
	measure("pair", pair);
	measure("again", pair);
	return failed;
}
