/*
 * bench_hooks.c - what the hooks add to a cuMemAlloc and a cuMemFree: ns a pair over the fake
 * driver, bare, recorded only, and served from the cache; without history, with it, and as by
 * default (with stacks); by one thread and by as many as there are processors.
 *
 * Each variant runs in a process of its own, one after the other and round after round, so that a
 * noisy neighbour meets all of them; a row is the median of the rounds. Threads keep to themselves
 * (each frees what it allocated) and begin together; "of one" says how many times the pairs of one
 * thread they make in the same time. With several devices there is one cuCtxGetCurrent in a pair,
 * which the fake driver answers more slowly than a real one (shown too): here it has one device,
 * unless FAKECUDA_DEVICES says otherwise. While the history fills, each event also pays for its part
 * of a fresh page; a short one is full at once.
 *
 *	bench_hooks [rounds [pairs a round [fake|real]]]
 *
 * real: over the machine's own driver, where the bare rows do fewer pairs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <stdbool.h>
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
#define THREADS_MOST 16
#define BATCH 1000u			/* pairs: shorter than a turn of the processor */

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
static pthread_barrier_t together;

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

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(double *ns, unsigned int count)
{
	qsort(ns, count, sizeof(double), by_value);
	return ns[count / 2];
}

/* ns for a pair, the median of batches: a thread that has to wait for its processor shows it in a
 * few of them. */
static void *thread_main(void *arg)
{
	unsigned int batches = (unsigned int)(pairs / BATCH) + 1;
	double *ns = calloc(batches, sizeof(*ns));

	if (!ns || cu.set_current(context) || work(BATCH))	/* warm: the journal is made */
		exit(1);
	pthread_barrier_wait(&together);
	for (unsigned int i = 0; i < batches; i++) {
		double start = now_ns();

		if (work(BATCH))
			exit(1);
		ns[i] = (now_ns() - start) / BATCH;
	}
	*(double *)arg = median_of(ns, batches);
	free(ns);
	return NULL;
}

/* As one thread sees it: the mean of the threads. */
static double measure(int threads)
{
	pthread_t thread[THREADS_MOST];
	double ns[THREADS_MOST], sum = 0;

	pthread_barrier_init(&together, NULL, (unsigned int)threads);
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&thread[i], NULL, thread_main, &ns[i]))
			exit(1);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		sum += ns[i];
	}
	return sum / threads;
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
	const char *name, *allocator, *history, *stacks;	/* NULL: without the library */
} variants[] = {
	{ "bare driver", NULL, NULL, NULL },
	{ "recorded, history:0", "native", "0", "none" },
	{ "recorded, history", "native", "1048576", "none" },
	{ "cached, history:0", "caching", "0", "none" },
	{ "cached, history filling", "caching", "1048576", "none" },
	{ "cached, history full", "caching", "16384", "none" },
	{ "cached, history, stacks", "caching", "16384", "all" },
};
#define VARIANTS (sizeof(variants) / sizeof(*variants))

static char build[4096];		/* where libgpumem.so lies */
static bool real;

static void become(const struct variant *v, const char *what, int threads, int out)
{
	char path[4200], threads_text[16], pairs_text[32];

	dup2(out, STDOUT_FILENO);
	snprintf(path, sizeof(path), "%s/fakecuda", build);
	if (!real) {
		setenv("LD_LIBRARY_PATH", path, 1);
		setenv("FAKECUDA_DEVICES", "1", 0);
	}
	unsetenv("LD_PRELOAD");
	if (v->allocator) {
		snprintf(path, sizeof(path), "%s/libgpumem.so", build);
		setenv("LD_PRELOAD", path, 1);
		setenv("GPUMEM_ALLOCATOR", v->allocator, 1);
		setenv("GPUMEM_HISTORY", v->history, 1);
		setenv("GPUMEM_STACKS", v->stacks, 1);
		setenv("GPUMEM_SNAPSHOT_ON", "none", 1);
	}
	snprintf(threads_text, sizeof(threads_text), "%d", threads);
	snprintf(pairs_text, sizeof(pairs_text), "%lu",
		 !real || (v->allocator && !strcmp(v->allocator, "caching")) ? pairs : pairs / 16);
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

static void compare(const char *what, int threads, unsigned int rounds)
{
	static double ns[VARIANTS][ROUNDS_MOST], ones[2][VARIANTS];
	double bare = 0, *one = ones[!strcmp(what, "async")];

	for (unsigned int r = 0; r < rounds; r++) {
		for (size_t v = 0; v < VARIANTS; v++)
			ns[v][r] = run(&variants[v], what, threads);
	}
	printf("%s, %d thread%s\n", strcmp(what, "async") ? "cuMemAlloc + cuMemFree"
	       : "cuMemAllocAsync + cuMemFreeAsync", threads, threads > 1 ? "s" : "");
	for (size_t v = 0; v < VARIANTS; v++) {
		double median = median_of(ns[v], rounds);

		if (!v)
			bare = median;
		if (threads == 1)
			one[v] = median;
		printf("  %-24s %8.0f ns a pair (%.0f to %.0f)", variants[v].name, median, ns[v][0],
		       ns[v][rounds - 1]);
		if (threads > 1)
			printf("  %.2f of one", threads * one[v] / median);
		printf(v ? "  %+.0f\n" : "\n", median - bare);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
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
	real = argc > 3 && !strcmp(argv[3], "real");
	if (!rounds || rounds > ROUNDS_MOST ||
	    readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
		fprintf(stderr, "usage: bench_hooks [rounds [pairs [fake|real]]]\n");
		return 2;
	}
	snprintf(build, sizeof(build), "%s/../..", dirname(self));
	printf("the driver's own cuCtxGetCurrent: %.0f ns\n", run(&variants[0], "questions", 1));
	for (int threads = 1; threads <= processors && threads <= THREADS_MOST; threads *= 2) {
		compare("linear", threads, rounds);
		compare("async", threads, rounds);
	}
	return 0;
}
