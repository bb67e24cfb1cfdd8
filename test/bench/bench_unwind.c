/*
 * bench_unwind.c - what a native stack costs: ns per frame at several depths, ours beside
 * libunwind's unw_backtrace and glibc's backtrace(), and what attribution to a module costs.
 *
 * The stacks run through 24 different functions with frames of different sizes, not one that
 * recurses. Every row is the median of several rounds, the rows interleaved so that a noisy
 * neighbour meets all of them. Frames are counted as each unwinder counts them.
 *
 *	bench_unwind [rounds]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "recorder/modules/modules.h"
#include "recorder/stacks/stack_cache.h"
#include "recorder/unwind/unwind.h"

#define FRAMES_MOST 256
#define ROUNDS_MOST 101

static int (*unw_backtrace)(void **, int);
static void (*pass_on)(void (*)(void *), void *);

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- what is measured ------------------------------------------------------------------ */

static int run_ours(int times)
{
	uintptr_t pcs[FRAMES_MOST];
	struct gm_regs regs;
	int count = 0;

	while (times--) {
		gm_regs_capture(&regs);
		count = gm_unwind(&regs, pcs, FRAMES_MOST, NULL);
	}
	return count;
}

/* Found in the thread's cache, as stacks are captured; the hooks' place differs each time. */
static __attribute__((noinline)) uint64_t look_up(void)
{
	struct gm_stack_cache *cache;
	struct gm_cached_stack *entry;
	struct gm_stack_key key;
	struct gm_regs regs;
	uint64_t value = 0;

	gm_regs_capture(&regs);
	key = (struct gm_stack_key){ .from = &regs };
	cache = gm_stack_cache_enter(&regs);
	if (!cache)
		return 0;
	entry = gm_stack_cache_find(cache, &key);
	if (entry) {
		value = entry->value;
		gm_stack_cache_met(cache, entry);
	} else {
		uintptr_t pcs[FRAMES_MOST];
		int count = gm_unwind(&regs, pcs, FRAMES_MOST, NULL);
		struct gm_walked_stack stack = { .pcs = pcs, .count = count };

		for (int i = 0; i < count; i++)		/* what tells the stack from others */
			stack.value = (stack.value ^ pcs[i]) * UINT64_C(0x100000001b3);
		stack.value = stack.value << 16 | (uint64_t)count;
		gm_stack_cache_keep(cache, &key, &stack);
	}
	gm_stack_cache_leave(cache);
	return value;
}

static __attribute__((noinline)) uint64_t look_up_deeper(void)
{
	volatile uint64_t value = look_up();

	return value;
}

static int run_cached(int times)
{
	uint64_t value = 0;

	while (times-- > 0)
		value = times & 1 ? look_up() : look_up_deeper();
	return (int)(value & 0xffff);
}

static int run_libunwind(int times)
{
	void *pcs[FRAMES_MOST];
	int count = 0;

	while (times-- && unw_backtrace)
		count = unw_backtrace(pcs, FRAMES_MOST);
	return count;
}

static int run_glibc(int times)
{
	void *pcs[FRAMES_MOST];
	int count = 0;

	while (times--)
		count = backtrace(pcs, FRAMES_MOST);
	return count;
}

static int run_new(int times)		/* every rule worked out anew */
{
	uintptr_t pcs[FRAMES_MOST];
	struct gm_regs regs;
	int count = 0;

	while (times--) {
		gm_unwind_flush();
		gm_regs_capture(&regs);
		count = gm_unwind(&regs, pcs, FRAMES_MOST, NULL);
	}
	return count;
}

static int run_lookup(int times)
{
	while (times--)
		gm_modules_lookup((uintptr_t)run_lookup, NULL);
	return 1;
}

static __attribute__((noinline)) void hook(void *arg)
{
	(void)arg;
	gm_modules_caller(__builtin_return_address(0), NULL);
	__asm__ volatile("" : : : "memory");
}

static int run_caller(int times)
{
	while (times--)
		hook(NULL);
	return 1;
}

static int run_caller_through(int times)
{
	while (times-- && pass_on)
		pass_on(hook, NULL);
	return pass_on ? 1 : 0;
}

static struct row {
	const char *name;
	int (*run)(int times);
	int depth, times;
	int frames;
	double ns[ROUNDS_MOST];
} rows[] = {
	{ "gm_unwind", run_ours, 10, 2000, 0, { 0 } },
	{ "found in the cache of stacks", run_cached, 10, 2000, 0, { 0 } },
	{ "unw_backtrace", run_libunwind, 10, 2000, 0, { 0 } },
	{ "backtrace", run_glibc, 10, 50, 0, { 0 } },
	{ "gm_unwind, nothing known", run_new, 10, 5, 0, { 0 } },
	{ "gm_unwind", run_ours, 40, 500, 0, { 0 } },
	{ "found in the cache of stacks", run_cached, 40, 500, 0, { 0 } },
	{ "unw_backtrace", run_libunwind, 40, 500, 0, { 0 } },
	{ "backtrace", run_glibc, 40, 20, 0, { 0 } },
	{ "gm_unwind", run_ours, 120, 200, 0, { 0 } },
	{ "found in the cache of stacks", run_cached, 120, 200, 0, { 0 } },
	{ "unw_backtrace", run_libunwind, 120, 200, 0, { 0 } },
	{ "backtrace", run_glibc, 120, 5, 0, { 0 } },
	{ "gm_modules_lookup, known", run_lookup, 10, 5000, 0, { 0 } },
	{ "gm_modules_caller, direct", run_caller, 10, 5000, 0, { 0 } },
	{ "gm_modules_caller, behind libcudart", run_caller_through, 10, 1000, 0, { 0 } },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- the stack that it is measured on -------------------------------------------------- */

static struct row *current;
static int current_round;

static void measure(void)
{
	double begin;

	current->run(current->times / 10 + 1);
	begin = now_ns();
	current->frames = current->run(current->times);
	current->ns[current_round] = (now_ns() - begin) / current->times;
}

static void descend(int depth);

#define FUNCTION(n) \
	static __attribute__((noinline)) void function_##n(int depth) \
	{ \
		volatile char area[16 * (n) + 8]; \
		area[depth % 8] = 1; \
		descend(depth - 1); \
		area[1] = area[0]; \
	}
#define EIGHT(n) FUNCTION(n##0) FUNCTION(n##1) FUNCTION(n##2) FUNCTION(n##3) \
	FUNCTION(n##4) FUNCTION(n##5) FUNCTION(n##6) FUNCTION(n##7)
EIGHT(1) EIGHT(2) EIGHT(3)
#define NAMES(n) function_##n##0, function_##n##1, function_##n##2, function_##n##3, \
	function_##n##4, function_##n##5, function_##n##6, function_##n##7

static void (*const functions[])(int) = { NAMES(1), NAMES(2), NAMES(3) };

static inline __attribute__((always_inline)) void descend(int depth)
{
	if (depth <= 0)
		measure();
	else
		functions[(unsigned int)depth % 24](depth);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void open_others(void)
{
	void *handle = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (handle)
		*(void **)&unw_backtrace = dlsym(handle, "unw_backtrace");
	if (length <= 0)
		return;
	self[length] = 0;
	snprintf(path, sizeof(path), "%s/../unit/unwind/libcudart.so", dirname(self));
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle)
		*(void **)&pass_on = dlsym(handle, "pass_on");
}

static uint16_t next_module(const struct gm_module_info *info)
{
	static uint16_t next;

	(void)info;
	return ++next;
}

static const struct gm_module_sink sink = { .publish = next_module };

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 31;

	if (rounds < 1 || rounds > ROUNDS_MOST)
		rounds = 31;
	open_others();
	gm_modules_init(&sink);
	for (current_round = 0; current_round < rounds; current_round++)
		for (current = rows; current < rows + ROWS; current++)
			descend(current->depth - 6);	/* and what is above main and below it */
	printf("%-38s %7s %12s %10s\n", "", "frames", "ns a call", "ns a frame");
	for (struct row *row = rows; row < rows + ROWS; row++) {
		double median;

		qsort(row->ns, (size_t)rounds, sizeof(double), compare);
		median = row->ns[rounds / 2];
		if (!row->frames)
			printf("%-38s not there\n", row->name);
		else if (row->frames == 1)
			printf("%-38s %7s %12.1f\n", row->name, "", median);
		else
			printf("%-38s %7d %12.1f %10.2f\n", row->name, row->frames, median,
			       median / row->frames);
	}
	return 0;
}
