/*
 * closer.c - a program that closes every descriptor there is, again and again, while snapshots of
 * its history are being written, and has the numbers for files of its own.
 *
 *	closer FILE SECONDS
 *
 * FILE is opened under all numbers and written to by none: it must stay empty. Ends with 0.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int allocate(unsigned int count)
{
	CUcontext context;
	CUdevice device;
	CUdeviceptr p;

	if (cuInit(0) || cuDeviceGet(&device, 0) ||
	    cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 1;
	for (unsigned int i = 0; i < count; i++)
		if (cuMemAlloc(&p, 512 + i % 7) || (i % 100 && cuMemFree(p)))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "host-data";
	double seconds = argc > 2 ? atof(argv[2]) : 1, end;
	struct rlimit limit = { 1024, 1024 };
	unsigned int rounds = 0;

	setrlimit(RLIMIT_NOFILE, &limit);
	if (allocate(60000))
		return 3;
	end = now() + seconds;
	while (now() < end) {
		int first;

		if (rounds++ % 20 == 0)
			raise(SIGUSR1);
		usleep(rounds * 37 % 3000);
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		first = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
		if (first < 0)
			return 4;
		for (int fd = first + 1; fd < 1024; fd++)
			if (fcntl(fd, F_GETFD) < 0)
				dup2(first, fd);
	}
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	raise(SIGUSR1);
	usleep(300000);
	return 0;
}
