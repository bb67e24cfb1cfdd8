/*
 * test_stack_cache.c - what is found in a thread's cache of stacks is what a walk finds: random trees of
 * calls of functions of all sorts, and the stacks on which a cache would lead astray.
 * What the other tests of unwinding look at is compared too (unwind/oracle.h).
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <check.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "recorder/stacks/stack_cache.h"
#include "recorder/journal/sys.h"
#include "recorder/unwind/unwind_rules.h"
#include "test/unit/unwind/helper.h"
#include "test/unit/unwind/oracle.h"
#include "test/suite.h"

#define PLAIN_MOST 600
#define CACHED_MOST 264

/* ---- the comparison --------------------------------------------------------------------- */

static __thread long walks, in_vain, hits;

static uint64_t value_of(const uintptr_t *pcs, int count, unsigned int flags, uint64_t inside)
{
	return (oracle_hash(pcs, count) ^ (uint64_t)count << 8 ^ flags ^ inside) | 1;
}

/* How deep the stack is. What is found is this very stack, for any number of frames asked for, also
 * where now something else is inside it than before. */
static __attribute__((noinline)) int compare_from(const struct gm_regs *regs, int max)
{
	struct gm_stack_key key = { .from = regs, .what = (uint64_t)max };
	struct gm_stack_cache *cache = gm_stack_cache_enter(regs);
	uintptr_t pcs[PLAIN_MOST];
	struct gm_walked_stack stack = { .pcs = pcs };
	struct gm_cached_stack *entry;
	unsigned int flags;

	walks++;
	stack.count = gm_unwind(regs, pcs, max, &flags);
	if (!cache) {
		in_vain++;
		return stack.count;
	}
	stack.more = flags & GM_UNWIND_MORE;
	stack.hash = oracle_hash(pcs, stack.count);
	stack.inside = walks % 7 ? 0 : (uint64_t)(walks % 5) << 32;
	stack.value = value_of(pcs, stack.count, flags, stack.inside);
	entry = gm_stack_cache_find(cache, &key);
	if (entry) {
		hits++;
		ck_assert_uint_eq(entry->hash, stack.hash);
		ck_assert_uint_eq(entry->value, value_of(pcs, stack.count, flags, entry->inside));
		if (entry->inside != stack.inside)
			entry = gm_stack_cache_like(cache, entry, stack.inside, stack.value);
		ck_assert_uint_eq(entry->value, stack.value);
		gm_stack_cache_met(cache, entry);
	} else if (!(flags & GM_UNWIND_TRUNCATED)) {
		gm_stack_cache_keep(cache, &key, &stack);
	}
	gm_stack_cache_leave(cache);
	return stack.count;
}

/* Without a frame pointer of its own: its caller's is in the register. */
static __attribute__((noinline)) int compare(int max)
{
	struct gm_regs regs;
	int depth;

	gm_regs_capture(&regs);
	depth = compare_from(&regs, max);
	__asm__ volatile("" : "+r"(depth));
	return depth;
}

/* ---- random trees of calls -------------------------------------------------------------- */

struct program {
	uint64_t seed;
	int budget;			/* calls left */
	jmp_buf *out;
	int max;
};

static void node(struct program *p, int depth);

#define PLAIN(n) \
	static __attribute__((noinline)) void plain_##n(struct program *p, int depth) \
	{ \
		volatile char area[16 * (n) + 8]; \
		area[0] = 1; \
		node(p, depth); \
		area[1] = area[0]; \
	}
PLAIN(1) PLAIN(2) PLAIN(3) PLAIN(40)

/* Two that differ in nothing but who they are. */
#define TWIN(n) \
	static __attribute__((noinline)) void twin_##n(struct program *p, int depth) \
	{ \
		volatile int local = n; \
		node(p, depth); \
		local++; \
	}
TWIN(1) TWIN(2)

static __attribute__((noinline)) void with_alloca(struct program *p, int depth)
{
	volatile char *area = alloca(16 + helper_random(&p->seed) % 8 * 16);

	area[0] = 1;
	node(p, depth);
	area[1] = area[0];
}

static __attribute__((noinline)) void realigned(struct program *p, int depth)
{
	_Alignas(64) volatile char area[128];

	area[0] = 1;
	node(p, depth);
	area[1] = area[0];
}

static __attribute__((noinline)) void realigned_alloca(struct program *p, int depth)
{
	_Alignas(64) volatile char area[64];
	volatile char *more = alloca(16 + helper_random(&p->seed) % 4 * 32);

	area[0] = more[0] = 1;
	node(p, depth);
	more[0] = area[0];
}

/* Uses every register that a callee keeps: rbp holds no frame. */
static __attribute__((noinline)) void busy_registers(struct program *p, int depth)
{
	uint64_t a = p->seed, b = a * 3, c = b ^ 5, d = c + 7, e = d * 11, f = e ^ 13;

	node(p, depth);
	node(p, depth);
	p->seed ^= a + b * c + d * e + f;
	p->seed |= 1;
}

static __thread struct program *sorted_in;
static __thread int sorted_depth;

static int by_calls(const void *a, const void *b)
{
	int depth = sorted_depth;

	node(sorted_in, depth);
	sorted_depth = depth;
	return *(const int *)a - *(const int *)b;
}

static __attribute__((noinline)) void sorts(struct program *p, int depth)
{
	int numbers[] = { 3, 1, 2 };

	sorted_in = p;
	sorted_depth = depth;
	qsort(numbers, 3, sizeof(int), by_calls);
}

static __attribute__((noinline)) void catches(struct program *p, int depth)
{
	jmp_buf *before = p->out;
	jmp_buf here;

	if (!setjmp(here)) {
		p->out = &here;
		node(p, depth);
	}
	p->out = before;
}

static void (*const sorts_of[])(struct program *, int) = {
	plain_1, plain_2, plain_3, plain_40, twin_1, twin_2, with_alloca, realigned,
	realigned_alloca, busy_registers, sorts, catches,
};
#define SORTS (sizeof(sorts_of) / sizeof(sorts_of[0]))

static void node(struct program *p, int depth)
{
	uint64_t steps = helper_random(&p->seed) % 4;

	for (uint64_t i = 0; i <= steps && p->budget > 0; i++) {
		uint64_t choice = helper_random(&p->seed);

		p->budget--;
		if (choice % 3 == 0 || depth == 0)
			compare(p->max ? p->max : 1 + (int)((choice >> 20) % CACHED_MOST));
		else if (choice % 37 == 1 && p->out)
			longjmp(*p->out, 1);
		else
			sorts_of[choice / 64 % SORTS](p, depth - 1);
	}
}

static void run_programs(uint64_t seed, int count, int max)
{
	for (int i = 0; i < count; i++) {
		struct program p = { .seed = seed + (uint64_t)i * 977, .budget = 400, .max = max };

		while (p.budget > 0)
			node(&p, 5 + i % 40);
	}
}

#ifndef __SANITIZE_THREAD__		/* which has nothing to find in one thread */
static void say_walks(const char *what)
{
	printf("# %s: %ld stacks, %ld without a cache, %ld found in it\n", what, walks, in_vain, hits);
}

START_TEST(random_programs)
{
	static const int max[] = { CACHED_MOST, 72, 20, 0 };

	run_programs(4711 + (uint64_t)_i, 100, max[_i]);
	say_walks("random programs");
	ck_assert_int_lt(in_vain * 20, walks);
	if (max[_i])			/* another number of frames is another stack */
		ck_assert_int_gt(hits * 5, walks);
}
END_TEST

/* Each twice, the second time through the same stacks in the same order, and after that in another. */
START_TEST(programs_again)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		run_programs(seed * 7919, 1, 72);
		run_programs(seed * 7919, 1, 72);
		for (int i = 0; i < 3; i++)
			run_programs(helper_random(&(uint64_t){ seed + (uint64_t)i }) % seed * 7919 +
				     7919, 1, 72);
	}
	say_walks("programs again");
	ck_assert_int_gt(hits * 4, walks);
}
END_TEST
#endif

static void *programs_on_thread(void *arg)
{
	run_programs((uint64_t)(uintptr_t)arg * 31 + 1, 4, 72);
	return NULL;
}

/* More threads than caches, some at once, most after others: a cache changes hands. */
START_TEST(random_programs_in_threads)
{
	for (uintptr_t round = 0; round < 25; round++) {
		pthread_t threads[4];

		for (uintptr_t i = 0; i < 4; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, programs_on_thread,
							(void *)(round * 4 + i)), 0);
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	}
}
END_TEST

static int refusals;

static void *refuse(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	(void)at, (void)bytes, (void)prot, (void)flags, (void)fd, (void)offset;
	refusals++;
	return MAP_FAILED;
}

static void *compare_twice(void *arg)
{
	for (int i = 0; i < 2; i++)
		compare(72);
	ck_assert_int_eq(in_vain, 2);
	return arg;
}

/* A thread that there is no memory for walks, and does not ask for it again and again. */
START_TEST(no_memory)
{
	pthread_t thread;

	gm_sys.map = refuse;
	ck_assert_int_eq(pthread_create(&thread, NULL, compare_twice, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(refusals, 1);
}
END_TEST

/* ---- stacks that a cache leads astray on ------------------------------------------------- */

static __attribute__((noinline)) int inner(void)
{
	int depth = compare(CACHED_MOST);

	__asm__ volatile("" : "+r"(depth));
	return depth;
}

/* The same inner frames at the same addresses, from two places in one function, and from two
 * functions alike: nothing tells the stacks apart but return addresses further out. */
static __attribute__((noinline)) int middle(void)
{
	int depth = inner();

	__asm__ volatile("" : "+r"(depth));
	return depth;
}

static __attribute__((noinline)) int site_a(void)
{
	int depth = middle();

	__asm__ volatile("" : "+r"(depth));
	return depth;
}

static __attribute__((noinline)) int site_b(void)
{
	int depth = middle();

	__asm__ volatile("nop" : "+r"(depth));
	return depth;
}

START_TEST(two_places_that_call_the_same)
{
	for (int i = 0; i < 10; i++) {
		int a = site_a(), b = site_b(), c = site_a(), d = (i & 1 ? site_a : site_b)();

		ck_assert_int_eq(a, b);
		ck_assert_int_eq(c, d);
	}
	ck_assert_int_eq(in_vain, 0);
	ck_assert_int_gt(hits * 4, walks);
}
END_TEST

/* The same frames at the same addresses up to one whose end is told by its frame pointer alone. */
static __attribute__((noinline)) int lower(size_t bytes)
{
	volatile char *area = alloca(bytes);
	int depth;

	area[0] = 1;
	depth = inner();
	area[1] = area[0];
	return depth;
}

#define UPPER(n) \
	static __attribute__((noinline)) int upper_##n(size_t bytes, size_t all) \
	{ \
		volatile char *area = alloca(bytes); \
		int depth; \
		area[0] = n; \
		depth = lower(all - bytes); \
		area[1] = area[0]; \
		return depth; \
	}
UPPER(1) UPPER(2)

/* Where lower() ended before, its return address still lies in what upper_...() leaves unwritten. */
START_TEST(a_frame_pointer_that_differs)
{
	for (int i = 0; i < 10; i++)
		for (size_t bytes = 64; bytes <= 1024; bytes += 64)
			(bytes & 64 ? upper_1 : upper_2)(bytes, 2048);
	ck_assert_int_eq(in_vain, 0);
}
END_TEST

static __attribute__((noinline)) void recurse(int depth, int every)
{
	volatile int local = depth;

	if (depth % every == 0)
		compare(depth % 7 ? 72 : CACHED_MOST);
	if (depth)
		recurse(depth - 1, every);
	if (depth % every == 1)
		compare(depth % 5 ? 72 : 200);
	local++;
}

/* Deeper than what is kept, growing and shrinking. */
START_TEST(deeper_than_kept)
{
	for (int i = 1; i < 200; i += 11) {
		recurse(i * 4, 3);
		recurse(30, 1);
		recurse(i * 3, 40);
	}
	ck_assert_int_eq(in_vain, 0);
}
END_TEST

/* Rules are forgotten: what was kept by them is. */
static void (*layout_call)(void (*)(void *), void *);

static void compare_in_library(void *arg)
{
	*(int *)arg = compare(CACHED_MOST);
}

static __attribute__((noinline)) int in_library(const char *name, uintptr_t *ret_at, bool flush)
{
	void *handle = helper_open(name);
	int depth;

	*(void **)&layout_call = helper_symbol(handle, "layout_call");
	*ret_at = (uintptr_t)layout_call;
	layout_call(compare_in_library, &depth);
	layout_call(compare_in_library, &depth);
	if (flush)
		gm_unwind_flush();
	dlclose(handle);
	if (flush)
		gm_unwind_flush();
	return depth;
}

START_TEST(another_library_at_the_same_address)
{
	uintptr_t at, last = 0;

	for (int i = 0; i < 20; i++) {
		in_library(i % 2 ? "layout_b.so" : "layout_a.so", &at, true);
		ck_assert(!last || at == last);
		last = at;
	}
	ck_assert_int_eq(in_vain, 0);
}
END_TEST

#ifndef __SANITIZE_THREAD__
static volatile sig_atomic_t handled;
static bool entered;

static void on_signal(int signo)
{
	long before = in_vain;

	(void)signo;
	handled++;
	for (int i = 0; i < 3; i++)
		compare(CACHED_MOST);
	ck_assert_int_eq(in_vain - before, entered ? 3 : 0);
}

static void on_signal_far_out(int signo)
{
	(void)signo;
	handled++;
	/* enough frames to need none of those beyond the handler's */
	recurse(100, 100);
	compare(20);
}

/* A stack that runs through a handler is never kept. In a handler that has interrupted its thread in
 * the cache there is none. */
START_TEST(signal_handlers)
{
	struct gm_stack_cache *cache;
	struct gm_regs regs;

	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal_far_out);
	inner();
	raise(SIGUSR1);
	ck_assert_int_eq(hits, 0);
	gm_regs_capture(&regs);
	cache = gm_stack_cache_enter(&regs);
	ck_assert_ptr_nonnull(cache);
	entered = true;
	raise(SIGUSR1);
	gm_stack_cache_leave(cache);
	for (int i = 0; i < 3; i++) {
		raise(SIGUSR2);
		inner();
	}
	ck_assert_int_eq(handled, 5);
}
END_TEST

static ucontext_t home, fibre;

static void on_fibre(void)
{
	for (;;) {
		run_programs(5, 2, 72);
		swapcontext(&fibre, &home);
		site_a();
		swapcontext(&fibre, &home);
	}
}

static void use_fibres(char *stack, size_t bytes)
{
	ck_assert_int_eq(getcontext(&fibre), 0);
	fibre.uc_stack.ss_sp = stack;
	fibre.uc_stack.ss_size = bytes;
	makecontext(&fibre, on_fibre, 0);
	for (int i = 0; i < 20; i++) {
		swapcontext(&home, &fibre);
		(i & 1 ? site_a : site_b)();
		run_programs((uint64_t)i + 1, 1, 72);
	}
}

/* Fibres beside the thread's stack, and within it. */
START_TEST(fibres)
{
	enum { BYTES = 512 << 10 };
	char *stack = malloc(BYTES);
	volatile char within[BYTES];

	use_fibres(stack, BYTES);
	free(stack);
	in_vain = 0;
	use_fibres((char *)within, BYTES);
}
END_TEST
#endif

int main(void)
{
#if !defined(__x86_64__)
	printf("ok 1 - stack_cache: stacks # SKIP x86-64 alone has the cache (recorder/stacks/stack_cache.h)\n1..1\n");
	return 0;
#endif
	Suite *suite = suite_create("stack_cache");
	TCase *tcase = tcase_create("stack_cache");

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
#ifndef __SANITIZE_THREAD__
	tcase_add_loop_test(tcase, random_programs, 0, 4);
	tcase_add_test(tcase, programs_again);
#endif
	tcase_add_test(tcase, random_programs_in_threads);
	tcase_add_test(tcase, no_memory);
	tcase_add_test(tcase, two_places_that_call_the_same);
	tcase_add_test(tcase, a_frame_pointer_that_differs);
	tcase_add_test(tcase, deeper_than_kept);
	tcase_add_test(tcase, another_library_at_the_same_address);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tcase, signal_handlers);
	tcase_add_test(tcase, fibres);
#endif
	return run_suite(suite);
}
