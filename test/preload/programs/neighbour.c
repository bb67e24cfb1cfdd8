/*
 * neighbour.c - a process that shares a device with others and does what the lines of its standard input say, for
 * test_neighbours.py. It answers each with one line.
 *
 *   alloc N, async N    N percent of the device, by cuMemAlloc or cuMemAllocAsync: the result
 *   free                what was had last: the result
 *   sync                of the context: the result
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
	do { \
		int check_ = (int)(call); \
		if (check_) { \
			printf("%s: %d\n", #call, check_); \
			exit(1); \
		} \
	} while (0)
#define MOST 64

static struct { CUdeviceptr p; int async; } had[MOST];
static int count;
static CUstream stream;
static size_t total;

static int get(int async, int percent)
{
	size_t bytes = total / 100 * (size_t)percent;
	CUdeviceptr p = 0;
	CUresult result = async ? cuMemAllocAsync(&p, bytes, stream) : cuMemAlloc(&p, bytes);

	if (!result && count < MOST) {
		had[count].p = p;
		had[count++].async = async;
	}
	return (int)result;
}

static int drop(void)
{
	if (!count)
		return -1;
	count--;
	return (int)(had[count].async ? cuMemFreeAsync(had[count].p, stream) : cuMemFree(had[count].p));
}

int main(void)
{
	CUcontext context;
	char word[16];
	int percent;
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuDeviceTotalMem(&total, 0));
	while (fgets(line, sizeof(line), stdin)) {
		percent = 0;
		if (sscanf(line, "%15s %d", word, &percent) < 1)
			return 2;
		if (!strcmp(word, "alloc") || !strcmp(word, "async"))
			printf("%d\n", get(word[1] == 's', percent));
		else if (!strcmp(word, "free"))
			printf("%d\n", drop());
		else
			printf("%d\n", (int)cuCtxSynchronize());
	}
	return 0;
}
