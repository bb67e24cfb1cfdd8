/*
 * stopped.c - threads that allocate and free while the process is stopped for hours, again and again, as far as
 * they can tell: their clock is this one. And a thread that dies within one of our functions.
 *
 * usage: stopped churn THREADS ROUNDS	all is freed in the end, and the cache emptied: what has the driver left?
 *        stopped inside TIMES		a signal handler frees what it can, while its thread is within a call of the
 *					driver's that we have: what has the driver left?
 *        stopped cancel TIMES		threads are cancelled asynchronously within gpumem_pool_*: who waits afterwards?
 *
 * Thread context: as it says. The driver is found by dlopen, as bindings of other languages do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "preload/api/gpumem.h"

#define KEPT 24
#define HANDED_ON 16
#define STOPS 50
#define STOP 7200			/* seconds */

/* ---- the clock --------------------------------------------------------------------------------- */

static _Atomic(int64_t) stood_still;	/* seconds */
static _Atomic(uint64_t) readings;
static _Atomic(int) stops;		/* each eighth reading comes two hours after the one before */
static _Atomic(int) raises;		/* a signal comes at the next reading */

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
		return r;
	if (atomic_exchange(&raises, 0))
		raise(SIGUSR2);
	if (++readings % 8 == 0 && stops)
		stood_still += STOP;
	ret->tv_sec += stood_still;
	return r;
}

/* ---- locks ------------------------------------------------------------------------------------- */

static _Thread_local uint64_t own_waits;	/* for locks of the library, which calls syscall() for them */

__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
		own_waits++;
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- the driver -------------------------------------------------------------------------------- */

static CUresult (*mem_alloc)(CUdeviceptr *, size_t), (*mem_free)(CUdeviceptr), (*set_current)(CUcontext),
		(*mem_info)(size_t *, size_t *);
static CUcontext context;

static void fail(const char *what, long value)
{
	printf("%s: %ld\n", what, value);
	fflush(stdout);
	_exit(1);
}

static void must(const char *what, int result)
{
	if (result)
		fail(what, result);
}

static void begin(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init)(unsigned int), (*retain)(CUcontext *, CUdevice);

	if (!driver)
		fail("no driver", 0);
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&mem_alloc = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&mem_free = dlsym(driver, "cuMemFree_v2");
	*(void **)&mem_info = dlsym(driver, "cuMemGetInfo_v2");
	must("cuInit", init(0));
	must("cuDevicePrimaryCtxRetain", retain(&context, 0));
	must("cuCtxSetCurrent", set_current(context));
}

static size_t free_bytes(void)
{
	size_t left, total;

	must("cuMemGetInfo", mem_info(&left, &total));
	return left;
}

/* ---- stops ------------------------------------------------------------------------------------- */

static _Atomic(CUdeviceptr) handed_on[HANDED_ON];	/* from one thread to another */
static _Atomic(uint64_t) seed;
static long rounds;

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

static void *churn(void *arg)
{
	uint64_t random = ++seed;
	CUdeviceptr kept[KEPT] = { 0 };

	must("cuCtxSetCurrent", set_current(context));
	for (long i = 0; i < rounds || (stood_still < STOPS * STOP && i < 100 * rounds); i++) {
		CUdeviceptr *one = &kept[next_random(&random) % KEPT];

		if (*one)
			*one = atomic_exchange(&handed_on[next_random(&random) % HANDED_ON], *one);
		if (*one)
			must("cuMemFree", mem_free(*one));
		must("cuMemAlloc", mem_alloc(one, 512 + next_random(&random) % (i % 4 ? 100000 : 8000000)));
	}
	for (int i = 0; i < KEPT; i++)
		if (kept[i])
			must("cuMemFree", mem_free(kept[i]));
	return arg;
}

static void mode_churn(int threads, long count)
{
	pthread_t ids[64];
	size_t before = free_bytes();

	rounds = count;
	stops = 1;
	for (int i = 0; i < threads; i++)
		must("pthread_create", pthread_create(&ids[i], NULL, churn, NULL));
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < HANDED_ON; i++)
		if (handed_on[i])
			must("cuMemFree", mem_free(handed_on[i]));
	stops = 0;
	gpumem_empty_cache();
	printf("left %ld, stopped %s\n", (long)(before - free_bytes()), stood_still < STOPS * STOP ? "not often" : "often");
}

/* ---- a signal within a call --------------------------------------------------------------------- */

static CUdeviceptr unwanted;
static long freed_inside;

static void free_unwanted(int ignored)
{
	(void)ignored;
	if (!mem_free(unwanted))
		freed_inside++;
	if (!mem_free(unwanted))		/* twice */
		freed_inside = -1000000;
	unwanted = 0;
}

/* The library reads the clock where it gets memory from the driver. */
static void mode_inside(long times)
{
	size_t before = free_bytes();
	CUdeviceptr big[64];

	signal(SIGUSR2, free_unwanted);
	for (long i = 0; i < times; i++) {
		must("cuMemAlloc", mem_alloc(&unwanted, 1000 + 300000 * (size_t)(i % 8)));
		raises = 1;
		must("cuMemAlloc", mem_alloc(&big[i % 64], (size_t)40 << 20));
		raises = 0;
		if (unwanted)
			must("cuMemFree", mem_free(unwanted));
		must("cuMemFree", mem_free(big[i % 64]));
		gpumem_empty_cache();
	}
	gpumem_empty_cache();
	printf("left %ld, freed inside %s\n", (long)(before - free_bytes()),
	       freed_inside > times / 2 ? "often" : freed_inside < 0 ? "twice" : "seldom");
}

/* ---- a death ----------------------------------------------------------------------------------- */

/* A pool looks up a block in a piece of less than 2 MiB in its list of pieces, under its lock. */
static int pool;
static CUdeviceptr piece;
static _Atomic(int) storming;

static void hand_out(CUdeviceptr address)
{
	must("gpumem_pool_allocated", gpumem_pool_allocated(pool, address, 512, NULL));
	must("gpumem_pool_freed", gpumem_pool_freed(pool, address));
}

static void *storm(void *arg)
{
	/* Each thread has a block of its own: the entry of a block whose change a death cut short is of no use to others. */
	CUdeviceptr block = piece + 4096 + (CUdeviceptr)(*(long *)arg % 2000 * 512);

	for (;;) {
		gpumem_pool_allocated(pool, block, 512, NULL);
		gpumem_pool_freed(pool, block);
		/* Locks that only the first call of a thread takes are left by now. */
		if (!storming) {
			storming = 1;
			pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
		}
	}
	return arg;
}

static bool waits_for_a_lock(void)
{
	uint64_t before = own_waits;

	hand_out(piece + 1024);
	return own_waits != before;
}

static void mode_cancel(long times)
{
	bool died = false;
	long waits = 0;

	must("cuMemAlloc", mem_alloc(&piece, 1 << 20));
	pool = gpumem_pool_create("a", 0);
	if (waits_for_a_lock())		/* the pool knows the piece from here on */
		fail("a wait for nobody", 0);
	for (long i = 0; i < times && !died; i++) {
		pthread_t thread;

		storming = 0;
		must("pthread_create", pthread_create(&thread, NULL, storm, &i));
		while (!storming)
			usleep(20);
		usleep((useconds_t)(i % 300));
		pthread_cancel(thread);
		pthread_join(thread, NULL);
		died = waits_for_a_lock();
	}
	if (!died)
		fail("nobody died with a lock", times);
	for (int i = 0; i < 100; i++)
		waits += waits_for_a_lock();
	printf("a thread died with a lock: of the next calls %ld waited\n", waits);
	must("cuMemFree", mem_free(piece));
}

int main(int argc, char **argv)
{
	begin();
	if (argc > 3 && !strcmp(argv[1], "churn"))
		mode_churn(atoi(argv[2]), atol(argv[3]));
	else if (argc > 2 && !strcmp(argv[1], "inside"))
		mode_inside(atol(argv[2]));
	else if (argc > 2 && !strcmp(argv[1], "cancel"))
		mode_cancel(atol(argv[2]));
	else
		fail("what?", argc);
	return 0;
}
