/*
 * bench_hooks.c - what the hooks add to a cuMemAlloc and a cuMemFree: ns a pair over the fake
 * driver, bare, with the library and no history, with history; by one thread and by several.
 *
 * The fake driver is found beside this program. Each variant runs in a process of its own, one
 * after the other and round after round, so that a noisy neighbour meets all of them; a row is the
 * median of the rounds, and the difference to the bare row what the library adds. In that is one
 * cuCtxGetCurrent a pair, which the fake driver answers far more slowly than a real one: shown too.
 *
 *	bench_hooks [rounds [pairs a round]]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#define ROUNDS_MOST 64
#define THREADS_MOST 4

static struct {
	PFN_cuInit_v2000 init;
	PFN_cuDevicePrimaryCtxRetain_v7000 retain;
	PFN_cuCtxSetCurrent_v4000 set_current;
	PFN_cuCtxGetCurrent_v4000 get_current;
	PFN_cuMemAlloc_v3020 alloc;
	PFN_cuMemFree_v3020 free;
	PFN_cuMemAllocAsync_v11020 alloc_async;
	PFN_cuMemFreeAsync_v11020 free_async;
} cu;

static CUcontext context;
static unsigned long pairs = 100000;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- the measured process ---- */

static void *entry(void *driver, const char *name)
{
	void *function = dlsym(driver, name);

	if (!function) {
		fprintf(stderr, "bench_hooks: no %s\n", name);
		exit(1);
	}
	return function;
}

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void (*race)(int);

	if (!driver) {
		fprintf(stderr, "bench_hooks: %s\n", dlerror());
		exit(1);
	}
	cu.init = (PFN_cuInit_v2000)entry(driver, "cuInit");
	cu.retain = (PFN_cuDevicePrimaryCtxRetain_v7000)entry(driver, "cuDevicePrimaryCtxRetain");
	cu.set_current = (PFN_cuCtxSetCurrent_v4000)entry(driver, "cuCtxSetCurrent");
	cu.get_current = (PFN_cuCtxGetCurrent_v4000)entry(driver, "cuCtxGetCurrent");
	cu.alloc = (PFN_cuMemAlloc_v3020)entry(driver, "cuMemAlloc_v2");
	cu.free = (PFN_cuMemFree_v3020)entry(driver, "cuMemFree_v2");
	cu.alloc_async = (PFN_cuMemAllocAsync_v11020)entry(driver, "cuMemAllocAsync");
	cu.free_async = (PFN_cuMemFreeAsync_v11020)entry(driver, "cuMemFreeAsync");
	race = (void (*)(int))dlsym(driver, "fakecuda_race_enable");
	if (race)
		race(0);	/* its bookkeeping would be most of what is measured */
}

static int linear_pairs(unsigned long count)
{
	CUdeviceptr ptr;

	for (unsigned long i = 0; i < count; i++) {
		if (cu.alloc(&ptr, 4096) || cu.free(ptr))
			return -1;
	}
	return 0;
}

static int async_pairs(unsigned long count)
{
	CUdeviceptr ptr;

	for (unsigned long i = 0; i < count; i++) {
		if (cu.alloc_async(&ptr, 4096, NULL) || cu.free_async(ptr, NULL))
			return -1;
	}
	return 0;
}

static int questions(unsigned long count)
{
	CUcontext current;

	for (unsigned long i = 0; i < count; i++) {
		if (cu.get_current(&current))
			return -1;
	}
	return 0;
}

static int (*work)(unsigned long count);

static void *thread_main(void *arg)
{
	(void)arg;
	if (cu.set_current(context) || work(pairs))
		exit(1);
	return NULL;
}

/* ns for a pair, as one thread sees it. */
static double measure(int threads)
{
	pthread_t thread[THREADS_MOST];
	double start;

	/* Warm: the journal is made, its pages are there. */
	if (cu.set_current(context) || work(pairs / 10 + 1))
		exit(1);
	start = now_ns();
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&thread[i], NULL, thread_main, NULL))
			exit(1);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return (now_ns() - start) / (double)pairs;
}

static int child(const char *what, int threads)
{
	work = !strcmp(what, "async") ? async_pairs : !strcmp(what, "linear") ? linear_pairs
	       : questions;
	find_driver();
	if (cu.init(0) || cu.retain(&context, 0))
		return 1;
	printf("%.2f\n", measure(threads));
	return 0;
}

/* ---- the one that compares ---- */

static const struct variant {
	const char *name, *history;	/* NULL: without the library */
} variants[] = {
	{ "bare driver", NULL },
	{ "recorded, history:0", "0" },
	{ "recorded, with history", "1048576" },
};
#define VARIANTS (sizeof(variants) / sizeof(*variants))

static char build[4096];		/* where libgpumem.so lies */

static void become(const struct variant *v, const char *what, int threads, int out)
{
	char path[4200], threads_text[16], pairs_text[32];

	dup2(out, STDOUT_FILENO);
	snprintf(path, sizeof(path), "%s/fakecuda", build);
	setenv("LD_LIBRARY_PATH", path, 1);
	unsetenv("LD_PRELOAD");
	if (v->history) {
		snprintf(path, sizeof(path), "%s/libgpumem.so", build);
		setenv("LD_PRELOAD", path, 1);
		setenv("GPUMEM_HISTORY", v->history, 1);
		setenv("GPUMEM_SNAPSHOT_ON", "none", 1);
	}
	snprintf(threads_text, sizeof(threads_text), "%d", threads);
	snprintf(pairs_text, sizeof(pairs_text), "%lu", pairs);
	execl("/proc/self/exe", "bench_hooks", "--child", what, threads_text, pairs_text,
	      (char *)NULL);
	_exit(127);
}

static double run(const struct variant *v, const char *what, int threads)
{
	char line[64] = "";
	int pipes[2], status;
	ssize_t n;
	pid_t pid;

	if (pipe(pipes))
		exit(1);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		become(v, what, threads, pipes[1]);
	close(pipes[1]);
	n = read(pipes[0], line, sizeof(line) - 1);
	close(pipes[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status || n <= 0) {
		fprintf(stderr, "bench_hooks: '%s' failed\n", v->name);
		exit(1);
	}
	return strtod(line, NULL);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void compare(const char *what, int threads, unsigned int rounds)
{
	static double ns[VARIANTS][ROUNDS_MOST];
	double bare = 0;

	for (unsigned int r = 0; r < rounds; r++) {
		for (size_t v = 0; v < VARIANTS; v++)
			ns[v][r] = run(&variants[v], what, threads);
	}
	printf("%s, %d thread%s\n", strcmp(what, "async") ? "cuMemAlloc + cuMemFree"
	       : "cuMemAllocAsync + cuMemFreeAsync", threads, threads > 1 ? "s" : "");
	for (size_t v = 0; v < VARIANTS; v++) {
		double median;

		qsort(ns[v], rounds, sizeof(double), by_value);
		median = ns[v][rounds / 2];
		if (!v)
			bare = median;
		printf("  %-24s %8.0f ns a pair (%.0f to %.0f)", variants[v].name, median, ns[v][0],
		       ns[v][rounds - 1]);
		printf(v ? "  +%.0f\n" : "\n", median - bare);
	}
}

int main(int argc, char **argv)
{
	unsigned int rounds = 7;
	char self[4096] = "";

	if (argc == 5 && !strcmp(argv[1], "--child")) {
		pairs = strtoul(argv[4], NULL, 10);
		return child(argv[2], atoi(argv[3]));
	}
	if (argc > 1)
		rounds = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		pairs = strtoul(argv[2], NULL, 10);
	if (!rounds || rounds > ROUNDS_MOST || !pairs ||
	    readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
		fprintf(stderr, "usage: bench_hooks [rounds [pairs]]\n");
		return 2;
	}
	snprintf(build, sizeof(build), "%s/../..", dirname(self));
	printf("the driver's own cuCtxGetCurrent: %.0f ns\n", run(&variants[0], "questions", 1));
	compare("linear", 1, rounds);
	compare("linear", 2, rounds);
	compare("async", 1, rounds);
	return 0;
}
