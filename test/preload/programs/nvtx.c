/*
 * nvtx.c - a host program that annotates itself with NVIDIA's own NVTX headers.
 *
 *	nvtx story          every sort of mark and range, before and after its first CUDA call
 *	nvtx flood N        N ranges as fast as they go, then one allocation
 *	nvtx cost N         N empty ranges, and what one took (ns)
 *	nvtx nocuda         ranges, and never a CUDA call; what is in the environment
 *	nvtx child          a fork with ranges open; the child ends them
 *
 * Prints what NVTX answered, so that runs with and without the library can be compared.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static void cuda(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(handle, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(handle, "cuDevicePrimaryCtxRetain");
	int (*set)(void *) = (int (*)(void *))dlsym(handle, "cuCtxSetCurrent");
	int (*alloc)(unsigned long long *, size_t) =
		(int (*)(unsigned long long *, size_t))dlsym(handle, "cuMemAlloc_v2");
	unsigned long long address;

	if (init(0) || retain(&context, 0) || set(context) || alloc(&address, 100)) {
		printf("no driver\n");
		exit(70);
	}
}

static nvtxEventAttributes_t event_of(int type, const void *message)
{
	nvtxEventAttributes_t event = { .version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
					.messageType = type };

	event.message.ascii = message;
	return event;
}

static void *end_it(void *range)
{
	nvtxRangeEnd(*(nvtxRangeId_t *)range);
	return NULL;
}

static void domains(nvtxDomainHandle_t solver, nvtxStringHandle_t step)
{
	nvtxEventAttributes_t registered = event_of(NVTX_MESSAGE_TYPE_REGISTERED, step);
	nvtxEventAttributes_t ascii = event_of(NVTX_MESSAGE_TYPE_ASCII, "plain in a domain");
	nvtxEventAttributes_t none = event_of(NVTX_MESSAGE_UNKNOWN, NULL);
	nvtxDomainHandle_t other = nvtxDomainCreateW(L"l\u00f6ser");

	/* The stacks of domains are apart: these ends cross. */
	printf("%d", nvtxDomainRangePushEx(solver, &registered));
	printf(" %d", nvtxRangePushA("common"));
	printf(" %d", nvtxDomainRangePushEx(other, &ascii));
	printf(" %d", nvtxDomainRangePop(solver));
	printf(" %d", nvtxRangePop());
	printf(" %d\n", nvtxDomainRangePop(other));
	nvtxDomainMarkEx(solver, &ascii);
	nvtxMarkEx(&none);
	nvtxDomainRangeEnd(solver, nvtxDomainRangeStartEx(solver, &registered));
	nvtxDomainDestroy(solver);
}

static void story(void)
{
	nvtxDomainHandle_t solver;
	nvtxStringHandle_t step;
	nvtxRangeId_t one, two;
	pthread_t thread;

	printf("%d\n", nvtxRangePushA("before the first call"));
	nvtxMarkA("too early");
	one = nvtxRangeStartA("started too early");
	solver = nvtxDomainCreateA("solver");
	step = nvtxDomainRegisterStringA(solver, "step");
	cuda();
	nvtxRangeEnd(one);
	printf("%d\n", nvtxRangePop());
	nvtxMarkA("mark");
	nvtxMarkW(L"\u00fcn\u0457code \u20ac \U0001d11e");
	printf("%d", nvtxRangePushA("outer"));
	printf(" %d", nvtxRangePushW(L"inner"));
	printf(" %d", nvtxRangePop());
	printf(" %d", nvtxRangePop());
	printf(" %d\n", nvtxRangePop());
	one = nvtxRangeStartA("one");
	two = nvtxRangeStartW(L"two");
	pthread_create(&thread, NULL, end_it, &one);
	pthread_join(thread, NULL);
	nvtxRangeEnd(two);
	domains(solver, step);
	for (int i = 0; i < 70; i++)
		nvtxRangePushA("deep");
	for (int i = 0; i < 70; i++)
		nvtxRangePop();
	nvtxRangePushA(NULL);
	nvtxRangePop();
	nvtxRangePushA("open at the end");
}

static void many(const char *mode, int count)
{
	struct timespec begin, end;

	cuda();
	nvtxRangePushA("first");
	nvtxRangePop();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < count; i++) {
		nvtxRangePushA("forward pass");
		nvtxRangePop();
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (!strcmp(mode, "cost"))
		printf("%.1f ns\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 +
				     (double)(end.tv_nsec - begin.tv_nsec)) / count / 2);
	cuda();
}

/* Handles that NVTX never gave: without a tool it looks at none of them. */
static void garbage(void)
{
	static long zeros[64];
	long on_stack[64] = { 1, 2, 3 };
	nvtxDomainHandle_t good;
	const void *handles[8];

	cuda();
	good = nvtxDomainCreateA("good");
	handles[0] = (const void *)1;
	handles[1] = (const void *)0x123456789abcdef8;
	handles[2] = (const void *)(uintptr_t)-8;
	handles[3] = (const void *)(uintptr_t)-1;
	handles[4] = zeros;
	handles[5] = on_stack;
	handles[6] = (const char *)good + 8;
	handles[7] = (const char *)good + 65536 - 8;	/* where the texts may end */
	for (int i = 0; i < 8; i++) {
		nvtxEventAttributes_t event = event_of(NVTX_MESSAGE_TYPE_REGISTERED, handles[i]);
		nvtxDomainHandle_t domain = (nvtxDomainHandle_t)(uintptr_t)handles[i];

		nvtxDomainMarkEx(domain, &event);
		nvtxDomainRangePushEx(domain, &event);
		nvtxDomainRangePop(domain);
		nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &event));
		nvtxDomainRegisterStringA(domain, "a string");
		nvtxDomainDestroy(domain);
	}
	nvtxMarkA("after them");
	printf("done\n");
}

static void child(void)
{
	nvtxRangeId_t range;

	cuda();
	nvtxRangePushA("of the parent");
	range = nvtxRangeStartA("started by the parent");
	fflush(stdout);
	if (fork() == 0) {
		nvtxRangePop();
		nvtxRangeEnd(range);
		nvtxMarkA("of the child");
		_exit(0);
	}
	wait(NULL);
	nvtxRangePop();
	nvtxRangeEnd(range);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "story";

	if (!strcmp(mode, "story")) {
		story();
	} else if (!strcmp(mode, "garbage")) {
		garbage();
	} else if (!strcmp(mode, "nocuda")) {
		nvtxRangePushA("outer");
		nvtxMarkA("mark");
		printf("%d\n", nvtxRangePop());
		fflush(stdout);
		execlp("env", "env", (char *)NULL);
	} else if (!strcmp(mode, "child")) {
		child();
	} else {
		many(mode, argc > 2 ? atoi(argv[2]) : 1000);
	}
	return 0;
}

#else
int main(void)
{
	printf("no NVTX header\n");
	return 77;
}
#endif
