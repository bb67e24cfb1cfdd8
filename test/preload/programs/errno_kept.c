/*
 * errno_kept.c - a host program that looks at errno after each call of the driver: no call may change
 * it. Prints each entry that did, and how many calls did. FILL is a command that is run by system()
 * once the first allocation has been made.
 */
#include <cuda.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ODD 4242
#define BLOCKS 20000

static int changed;
static CUdeviceptr block[BLOCKS];

static void look(const char *entry, CUresult result)
{
	int found = errno;

	if (found != ODD && changed++ < 10)
		printf("%s, which returned %d, left errno %d\n", entry, (int)result, found);
	errno = ODD;
}
#define LOOK(name, ...) look(#name, name(__VA_ARGS__))

int main(void)
{
	const char *fill = getenv("FILL");
	CUcontext context = NULL;
	CUstream stream = NULL;
	void *host = NULL;

	errno = ODD;
	LOOK(cuInit, 0);
	LOOK(cuDevicePrimaryCtxRetain, &context, 0);
	LOOK(cuCtxSetCurrent, context);
	LOOK(cuMemAlloc, &block[0], 100);
	if (fill && system(fill))
		printf("FILL failed\n");
	errno = ODD;
	LOOK(cuMemAlloc, &block[1], (size_t)1 << 50);
	LOOK(cuMemFree, 0x1234);
	LOOK(cuMemHostAlloc, &host, 100, 0);
	LOOK(cuMemFreeHost, host);
	LOOK(cuStreamCreate, &stream, 0);
	LOOK(cuMemAllocAsync, &block[1], 100, stream);
	LOOK(cuMemFreeAsync, block[1], stream);
	for (int i = 1; i < BLOCKS; i++)
		LOOK(cuMemAlloc, &block[i], 512);
	for (int i = 0; i < BLOCKS; i++)
		LOOK(cuMemFree, block[i]);
	LOOK(cuDevicePrimaryCtxRelease, 0);
	printf("%d calls changed errno\n", changed);
	return changed != 0;
}
