/*
 * stacks_load.c - for bench_stacks.c, which loads it, and for Python through ctypes: captures as a
 * program makes them that does other things between two. Built together with
 * test/unit/python/pyframes.c, which starts the recorder. Any thread; each has its own samples.
 *
 * A thread goes through PATHS ways down a tree of calls, in order and again and again; sixteen that
 * follow each other are the same but for their innermost frames. Before each capture a "program"
 * runs: memory at random, a page each time, and code that is jumped through. Only the capture, or the
 * part of it that was asked for, is timed.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "recorder/python/python.h"
#include "recorder/stacks/stacks.h"
#include "recorder/unwind/unwind.h"

#define API __attribute__((visibility("default")))

#define PATHS 254u
#define GROUP 16u
#define OWN_LEVELS 12u			/* innermost ones that each path has for itself */
#define DATA_PAGES 3072u
#define TOUCHES 900u
#define CODE_SLOTS 8192u		/* of 64 bytes */
#define JUMPS 1000u
#define SAMPLES_MOST (1u << 17)

enum what { WHOLE, NATIVE, PYTHON };

/* Called by name alone. */
int stacks_load_begin(int cold, int shallow);
void stacks_load_what(int what);
void stacks_load_restart(void);
void stacks_load_op(void);
int stacks_load_result(double *ret_median, double *ret_mean);

struct load {
	unsigned int cold, shallow, what;
	unsigned int next;
	uint64_t random;
	uint8_t *data;
	void (*code)(void);
	uint32_t *samples;
	unsigned int count;
};

static __thread struct load load;

/* ---- the clock -------------------------------------------------------------------------- */

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline uint64_t ticks(void)
{
#ifdef __x86_64__
	uint32_t lo, hi;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
#else
	return (uint64_t)now_ns();
#endif
}

static double ns_of_a_tick(void)
{
	static double ns;

	if (ns == 0) {
		double begin = now_ns();
		uint64_t first = ticks();

		while (now_ns() < begin + 50e6)
			;
		ns = (now_ns() - begin) / (double)(ticks() - first);
	}
	return ns;
}

/* Of two readings with nothing between them. */
static uint32_t ticks_of_nothing(void)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		uint64_t begin = ticks(), end = ticks();

		if (end - begin < least)
			least = end - begin;
	}
	return (uint32_t)least;
}

/* ---- what the program does between two captures -------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

#ifdef __x86_64__
/* JUMPS jumps in a random order through as many of CODE_SLOTS lines, then a return. */
static void (*make_code(void))(void)
{
	uint32_t *order = malloc(CODE_SLOTS * sizeof(*order));
	uint8_t *code = mmap(NULL, CODE_SLOTS * 64, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 7;
	uintptr_t entry;

	if (!order || code == MAP_FAILED)
		abort();
	for (uint32_t i = 0; i < CODE_SLOTS; i++)
		order[i] = i;
	for (uint32_t i = CODE_SLOTS - 1; i > 0; i--) {
		uint32_t k = (uint32_t)(draw(&seed) % (i + 1)), swap = order[i];

		order[i] = order[k];
		order[k] = swap;
	}
	for (uint32_t i = 0; i < JUMPS; i++) {
		uint8_t *at = code + order[i] * 64;
		int32_t far = (int32_t)(order[i + 1] - order[i]) * 64 - 5;

		*at = i + 1 < JUMPS ? 0xe9 : 0xc3;
		memcpy(at + 1, &far, sizeof(far));
	}
	entry = (uintptr_t)(code + order[0] * 64);
	free(order);
	mprotect(code, CODE_SLOTS * 64, PROT_READ | PROT_EXEC);
	return (void (*)(void))entry;
}
#else
static void nothing(void)
{
}

static void (*make_code(void))(void)
{
	return nothing;
}
#endif

static __attribute__((noinline)) void run_program(struct load *l)
{
	for (unsigned int i = 0; i < TOUCHES; i++) {
		uint64_t r = draw(&l->random);

		l->data[r % DATA_PAGES * 4096 + (r >> 16) % 64 * 64]++;
	}
	l->code();
}

/* ---- the ways down ------------------------------------------------------------------------- */

static volatile uint64_t sink;

static __attribute__((noinline)) void walk_native(const struct gm_regs *regs)
{
	uintptr_t pcs[72];

	gm_unwind(regs, pcs, 72, NULL);
	sink = pcs[0];
}

static struct gm_python *interpreter(const struct gm_regs *regs)
{
	static struct gm_python *python;
	uintptr_t pcs[256];

	if (!python)
		python = gm_python_on(pcs, gm_unwind(regs, pcs, 256, NULL), true);
	return python;
}

static __attribute__((noinline)) void arrive(void)
{
	struct gm_python_walk walk = { .items = NULL };
	struct gm_python *python = NULL;
	struct gm_regs regs;
	uint64_t begin, end;
	uint16_t module;

	if (load.what == PYTHON) {
		gm_regs_capture(&regs);
		python = interpreter(&regs);
	}
	if (load.cold)
		run_program(&load);
	begin = ticks();
	gm_regs_capture(&regs);
	if (load.what == WHOLE)
		sink = gm_stacks_capture(&regs, &module);
	else if (load.what == NATIVE)
		walk_native(&regs);
	else if (python)
		gm_python_walk(python, 64, &walk);
	end = ticks();
	if (load.count < SAMPLES_MOST)
		load.samples[load.count++] = (uint32_t)(end - begin);
}

static void descend(unsigned int path, unsigned int depth);

#define FUNCTION(n) \
	static __attribute__((noinline)) void function_##n(unsigned int path, unsigned int depth) \
	{ \
		volatile char area[16 * ((n) % 32) + 8]; \
		area[depth % 8] = 1; \
		descend(path, depth - 1); \
		area[1] = area[0]; \
	}
#define ROW(n) FUNCTION(n##0) FUNCTION(n##1) FUNCTION(n##2) FUNCTION(n##3) \
	FUNCTION(n##4) FUNCTION(n##5) FUNCTION(n##6) FUNCTION(n##7)
#define NAMES(n) function_##n##0, function_##n##1, function_##n##2, function_##n##3, \
	function_##n##4, function_##n##5, function_##n##6, function_##n##7
#define EIGHT(what, n) what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) \
	what(n##6) what(n##7)
#define ALL(what) EIGHT(what, 1) EIGHT(what, 2) EIGHT(what, 3) EIGHT(what, 4) EIGHT(what, 5) \
	EIGHT(what, 6) EIGHT(what, 7) EIGHT(what, 8)
ALL(ROW)

#define COMMA_NAMES(n) NAMES(n),
static void (*const functions[])(unsigned int, unsigned int) = { ALL(COMMA_NAMES) };
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static void descend(unsigned int path, unsigned int depth)
{
	uint64_t seed = (depth < OWN_LEVELS ? path + 1000 : path / GROUP) * 131 + depth * 7919;

	draw(&seed);
	if (depth == 0)
		arrive();
	else
		functions[draw(&seed) % FUNCTIONS](path, depth);
	__asm__ volatile("" : : : "memory");	/* no tail call */
}

API void stacks_load_op(void)
{
	unsigned int path = load.next;

	load.next = (path + 1) % PATHS;
	descend(path, load.shallow ? OWN_LEVELS - 4 : 28 + path / GROUP * 5 % 30);
}

/* ---- by name --------------------------------------------------------------------------------- */

/* This thread's load: @cold, with the program between; @shallow, on a deep stack already. */
API int stacks_load_begin(int cold, int shallow)
{
	if (!load.samples) {
		load.samples = malloc(SAMPLES_MOST * sizeof(*load.samples));
		load.data = aligned_alloc(4096, (size_t)DATA_PAGES * 4096);
		if (!load.samples || !load.data)
			return -1;
		memset(load.samples, 0, SAMPLES_MOST * sizeof(*load.samples));
		memset(load.data, 0, (size_t)DATA_PAGES * 4096);
		load.code = make_code();
		load.random = 12345;
	}
	load.cold = cold != 0;
	load.shallow = shallow != 0;
	load.next = load.count = 0;
	return 0;
}

API void stacks_load_what(int what)
{
	load.what = (unsigned int)what;
	load.count = 0;
}

/* Another round of the same paths. */
API void stacks_load_restart(void)
{
	load.next = 0;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* In ns, of how many; the mean leaves out the 2% that were interrupted, say. */
API int stacks_load_result(double *ret_median, double *ret_mean)
{
	unsigned int count = load.count, kept = count - count / 50;
	double tick = ns_of_a_tick(), nothing_ns = ticks_of_nothing() * tick, sum = 0;

	*ret_median = *ret_mean = 0;
	if (!count)
		return 0;
	qsort(load.samples, count, sizeof(*load.samples), by_size);
	for (unsigned int i = 0; i < kept; i++)
		sum += load.samples[i];
	*ret_median = load.samples[count / 2] * tick - nothing_ns;
	*ret_mean = sum / kept * tick - nothing_ns;
	load.count = 0;
	return (int)count;
}
