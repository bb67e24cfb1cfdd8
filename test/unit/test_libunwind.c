/*
 * test_libunwind.c - stacks by libunwind, where our own unwinder is switched off or cut short
 * (recorder/libunwind.h): the same as our own, on threads more than there are places for, in signal
 * frames, under an older C library, after dlclose, in a forked child; and nothing that is wrong with
 * a stack hurts. And the chain of frame records, which is all that there is without it.
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "recorder/libunwind.h"
#include "recorder/object.h"
#include "recorder/unwind_frames.h"
#include "recorder/unwind.h"
#include "test/unit/unwind/helper.h"

#define MOST 600

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED
#endif

typedef void odd_fn(void (*)(void *), void *);

struct stack { uintptr_t pcs[MOST], ends[MOST]; int count; unsigned int flags; };

/* This very place, by our own unwinder and by libunwind alone: every frame, its end, the flags. */
static __attribute__((noinline)) void expect_same(struct stack *own, struct stack *theirs)
{
	uintptr_t plain[MOST];
	struct gm_regs regs;
	int count;

	gm_regs_capture(&regs);
	gm_unwind_choose(GM_UNWINDER_AUTO);
	own->count = gm_unwind_ends(&regs, own->pcs, own->ends, MOST, &own->flags);
	theirs->count = gm_libunwind_walk(&regs, theirs->pcs, theirs->ends, MOST, 0,
					  &theirs->flags);
	ck_assert_int_gt(own->count, 2);
	ck_assert_int_eq(own->count, theirs->count);
	ck_assert_uint_eq(own->flags, theirs->flags);
	for (int i = 0; i < own->count; i++) {
		ck_assert_msg(own->pcs[i] == theirs->pcs[i], "frame %d of %d: %#lx, libunwind %#lx", i,
			      own->count, (unsigned long)own->pcs[i],
			      (unsigned long)theirs->pcs[i]);
		ck_assert_msg(own->ends[i] == theirs->ends[i], "end of frame %d of %d: %#lx, "
			      "libunwind %#lx", i, own->count, (unsigned long)own->ends[i],
			      (unsigned long)theirs->ends[i]);
	}
	/* and as whoever calls gets it */
	gm_unwind_choose(GM_UNWINDER_LIBUNWIND);
	count = gm_unwind(&regs, plain, MOST, NULL);
	gm_unwind_choose(GM_UNWINDER_AUTO);
	ck_assert_int_eq(count, own->count);
	ck_assert_mem_eq(plain, own->pcs, (size_t)count * sizeof(*plain));
}

static struct stack a, b;
static int compared;

static __attribute__((noinline)) int recurse(int depth)
{
	volatile int local = depth;

	if (depth == 0) {
		expect_same(&a, &b);
		return 0;
	}
	return recurse(depth - 1) + local;
}

static int compare_ints(const void *x, const void *y)
{
	compared++;
	expect_same(&a, &b);
	return *(const int *)x - *(const int *)y;
}

static __attribute__((noinline)) int frame_realigned(size_t bytes)
{
	volatile char aligned[256] __attribute__((aligned(128)));
	volatile char *area = __builtin_alloca(bytes);

	aligned[0] = area[0] = 1;
	expect_same(&a, &b);
	return aligned[0];
}

static void many_shapes(void)
{
	int values[] = { 3, 1, 2, 7, 5 };

	for (int depth = 0; depth < 130; depth += 13)
		recurse(depth);
	compared = 0;
	qsort(values, 5, sizeof(int), compare_ints);
	ck_assert_int_gt(compared, 4);
	for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1)
		frame_realigned(bytes);
}

START_TEST(same_as_our_own)
{
	many_shapes();
	ck_assert_int_eq(gm_libunwind_open(), -EALREADY);
}
END_TEST

START_TEST(room_for_fewer_frames)
{
	uintptr_t all[64], some[64];
	struct gm_regs regs;
	unsigned int flags;
	int depth;

	gm_regs_capture(&regs);
	depth = gm_libunwind_walk(&regs, all, NULL, 64, 0, &flags);
	ck_assert_int_gt(depth, 2);
	ck_assert_uint_eq(flags, 0);
	for (int max = 1; max <= depth + 1; max++) {
		int count = gm_libunwind_walk(&regs, some, NULL, max, 0, &flags);

		ck_assert_int_eq(count, max < depth ? max : depth);
		ck_assert_uint_eq(flags, max < depth ? GM_UNWIND_MORE : 0);
		ck_assert_mem_eq(some, all, (size_t)count * sizeof(*all));
	}
}
END_TEST

#ifndef __SANITIZE_THREAD__		/* libcheck's assertions are not for signal handlers, it says */
static volatile sig_atomic_t handled;

static void on_signal(int number, siginfo_t *info, void *context)
{
	struct gm_regs regs;
	struct stack *s = &b;

	(void)number, (void)info;
	expect_same(&a, &b);		/* through the signal frame */
	ck_assert_uint_eq(b.flags, GM_UNWIND_SIGNAL);
	gm_regs_from_ucontext(&regs, context);
	a.count = gm_unwind(&regs, a.pcs, MOST, &a.flags);
	s->count = gm_libunwind_walk(&regs, s->pcs, NULL, MOST, 0, &s->flags);
	ck_assert_int_eq(s->count, a.count);
	ck_assert_mem_eq(s->pcs, a.pcs, (size_t)a.count * sizeof(*a.pcs));
	handled++;
}

START_TEST(through_a_signal_frame)
{
	static char room[1 << 16];
	const stack_t other = { .ss_sp = room, .ss_size = sizeof(room) };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	for (int on_other = 0; on_other < 2; on_other++) {
		if (on_other)
			sigaltstack(&other, NULL);
		action.sa_flags = SA_SIGINFO | (on_other ? SA_ONSTACK : 0);
		sigaction(SIGUSR2, &action, NULL);
		raise(SIGUSR2);
	}
	ck_assert_int_eq(handled, 2);
}
END_TEST

#endif

START_TEST(as_with_an_older_libc)
{
	gm_object_force_maps(true);
	gm_unwind_flush();
	ck_assert(gm_unwind_wants_libunwind());
	many_shapes();
	gm_object_force_maps(false);
	gm_unwind_flush();
	ck_assert(!gm_unwind_wants_libunwind());
	many_shapes();
}
END_TEST

static _Atomic(int) walked, refused, wrong;

static __attribute__((noinline)) int walk_at(int depth, int at)
{
	volatile int local = at;
	uintptr_t own[MOST], theirs[MOST];
	struct gm_regs regs;
	int count, other;

	if (depth)
		return walk_at(depth - 1, at) + local;
	gm_regs_capture(&regs);
	count = gm_unwind(&regs, own, MOST, NULL);
	other = gm_libunwind_walk(&regs, theirs, NULL, MOST, 0, NULL);
	if (other == -EBUSY)
		refused++;
	else if (other != count || memcmp(own, theirs, (size_t)count * sizeof(*own)))
		wrong++;
	else
		walked++;
	return 0;
}

static void *walks(void *arg)
{
	for (int i = 0; i < 600; i++)
		walk_at(i % 60, (int)(intptr_t)arg);
	return NULL;
}

START_TEST(more_threads_than_places)
{
	pthread_t threads[40];

	for (intptr_t i = 0; i < 40; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, walks, (void *)i), 0);
	for (int i = 0; i < 200; i++)
		gm_unwind_flush();
	for (int i = 0; i < 40; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(wrong, 0);
	ck_assert_int_gt(walked, 1000);
	printf("# %d walks, %d found no place\n", walked, refused);
}
END_TEST

#ifndef __aarch64__
static void same_in_library(void *arg)
{
	(void)arg;
	expect_same(&a, &b);
}

static uintptr_t call_layout(const char *name, void **ret_handle)
{
	odd_fn *call;

	*ret_handle = helper_open(name);
	*(void **)&call = helper_symbol(*ret_handle, "layout_call");
	call(same_in_library, NULL);
	return (uintptr_t)call;
}

/* Where unw_backtrace() goes wrong for good: recording.md's stale cache. */
START_TEST(another_library_at_the_same_address)
{
	const char *names[] = { "layout_a.so", "layout_b.so" };
	uintptr_t last = 0, here;
	void *handle;

	for (int i = 0; i < 20; i++) {
		here = call_layout(names[i % 2], &handle);
		if (last)
			ck_assert_msg(here == last, "the loader chose another address");
		last = here;
		gm_unwind_flush();
		dlclose(handle);
		gm_unwind_flush();
	}
}
END_TEST

static void stale(void *arg)
{
	struct gm_regs regs;

	(void)arg;
	gm_regs_capture(&regs);
	a.count = gm_unwind(&regs, a.pcs, MOST, NULL);
	b.count = gm_libunwind_walk(&regs, b.pcs, NULL, MOST, 0, &b.flags);
}

/* Nobody told of the dlclose: the stack is wrong, and no more than that. */
START_TEST(stale_rules_are_harmless)
{
	void *handle;
	odd_fn *call;

	call_layout("layout_a.so", &handle);
	dlclose(handle);
	handle = helper_open("layout_b.so");
	*(void **)&call = helper_symbol(handle, "layout_call");
	call(stale, NULL);
	ck_assert_int_ge(b.count, 1);
	gm_unwind_flush();
	call(stale, NULL);
	ck_assert_int_gt(a.count, 2);
	ck_assert_int_eq(b.count, a.count);
	ck_assert_mem_eq(a.pcs, b.pcs, (size_t)a.count * sizeof(*a.pcs));
	dlclose(handle);
	gm_unwind_flush();
}
END_TEST

static void cut(void *arg)
{
	struct gm_regs regs;
	unsigned int flags = 0;

	gm_regs_capture(&regs);
	gm_unwind_choose(GM_UNWINDER_AUTO);
	*(int *)arg = gm_unwind(&regs, a.pcs, MOST, &flags);
	b.count = gm_libunwind_walk(&regs, b.pcs, NULL, MOST, *(int *)arg, NULL);
	b.pcs[1]++;
	ck_assert_int_eq(gm_libunwind_walk(&regs, b.pcs, NULL, MOST, 2, NULL), -ESTALE);
}

/* Where our own is cut, libunwind is asked to go on; it never takes a frame away. */
START_TEST(goes_on_where_ours_is_cut)
{
	void *handle = helper_open("notables.so");
	odd_fn *call;
	int count = 0;

	*(void **)&call = helper_symbol(handle, "notables_call");
	for (int i = 0; i < 1000; i++) {	/* in vain or not: at some time it is asked less often */
		call(cut, &count);
		ck_assert_int_ge(count, 2);
	}
	dlclose(handle);
}
END_TEST
#endif

START_TEST(no_stack_hurts)
{
	uint64_t seed = helper_seed();
	const size_t words = 4096;
	uintptr_t *area = mmap(NULL, 3 * words * sizeof(*area), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t code[] = { (uintptr_t)qsort, (uintptr_t)printf, (uintptr_t)recurse,
			     (uintptr_t)many_shapes, (uintptr_t)dlopen };

	ck_assert(area != MAP_FAILED);
	munmap(area + 2 * words, words * sizeof(*area));
	for (int i = 0; i < 3000; i++) {
		struct gm_regs regs = { .has_all = true };
		uintptr_t pcs[64], ends[64];
		int count;

		for (size_t w = 0; w < 2 * words && i % 16 == 0; w++)
			switch (helper_random(&seed) % 4) {
			case 0:
				area[w] = helper_random(&seed);
				break;
			case 1:
				area[w] = (uintptr_t)(area + helper_random(&seed) % (3 * words));
				break;
			default:
				area[w] = code[helper_random(&seed) % 5] + helper_random(&seed) % 512;
			}
		for (unsigned int r = 0; r < GM_REG_COUNT; r++)
			regs.r[r] = (uintptr_t)(area + helper_random(&seed) % (2 * words));
		if (i % 7 == 0)
			regs.r[GM_REG_SP] += helper_random(&seed) % 8;
		regs.r[GM_REG_PC] = code[i % 5] + helper_random(&seed) % 512;
		count = gm_libunwind_walk(&regs, pcs, ends, 64, 0, NULL);
		ck_assert_int_ge(count, 1);
		ck_assert_int_le(count, 64);
		ck_assert_int_ge(gm_unwind_frames(&regs, pcs, ends, 64, NULL), 1);
	}
	munmap(area, 2 * words * sizeof(*area));
}
END_TEST

static int child_of(void (*in_child)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(20);
		in_child();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static void as_before(void)
{
	gm_libunwind_forget();
	if (!gm_libunwind_ready())
		_exit(1);
	walk_at(20, 0);
	if (wrong || !walked)
		_exit(2);
}

static _Atomic(bool) stop;

static void *walk_on(void *arg)
{
	while (!stop)
		walk_at(100, 0);
	return arg;
}

static _Atomic(int) given_up;

static void no_more(void)
{
	gm_libunwind_forget();
	walk_at(3, 0);		/* whichever it is: it does not hang */
	if (wrong)
		_exit(2);
	_exit(gm_libunwind_ready() ? 0 : 3);
}

START_TEST(in_a_forked_child)
{
	pthread_t thread;

	walked = wrong = refused = 0;
	ck_assert_int_eq(child_of(as_before), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, walk_on, NULL), 0);
	while (!walked)
		sched_yield();
	/* another thread is within libunwind: it may hold what nobody will give back */
	for (int i = 0; i < 300 && !given_up; i++) {
		int status = child_of(no_more);

		ck_assert_msg(WIFEXITED(status), "status %#x", (unsigned int)status);
		ck_assert(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
		given_up += WEXITSTATUS(status) == 3;
	}
	stop = true;
	pthread_join(thread, NULL);
	ck_assert_int_gt(given_up, 0);
}
END_TEST

/* Frame records, as code has them that keeps its frame pointers. */
__attribute__((noinline, optimize("no-omit-frame-pointer"))) static int framed(int depth)
{
	volatile int local = depth;
	struct gm_regs regs;
	uintptr_t pcs[64];
	unsigned int flags;
	int count;

	if (depth)
		return framed(depth - 1) + local;
	gm_regs_capture(&regs);
	gm_unwind_choose(GM_UNWINDER_FRAMES);
	count = gm_unwind(&regs, pcs, 64, &flags);
	gm_unwind_choose(GM_UNWINDER_AUTO);
	gm_unwind(&regs, a.pcs, MOST, NULL);
	ck_assert_int_ge(count, 6);
	for (int i = 0; i < 6; i++)
		ck_assert_uint_eq(pcs[i], a.pcs[i]);
	return 0;
}

START_TEST(frame_records)
{
	framed(6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("libunwind");
	TCase *tcase = tcase_create("fall-back");
	SRunner *runner = srunner_create(suite);
	int failed, r;

	r = gm_libunwind_open();
	if (r) {
		printf("not ok 1 - libunwind cannot be used: %s\n", strerror(-r));
		return 1;
	}
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, same_as_our_own);
	tcase_add_test(tcase, room_for_fewer_frames);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tcase, through_a_signal_frame);
#endif
	tcase_add_test(tcase, as_with_an_older_libc);
	tcase_add_test(tcase, more_threads_than_places);
#ifndef __aarch64__
	tcase_add_test(tcase, another_library_at_the_same_address);
	tcase_add_test(tcase, stale_rules_are_harmless);
	tcase_add_test(tcase, goes_on_where_ours_is_cut);
#endif
	tcase_add_test(tcase, no_stack_hurts);
	tcase_add_test(tcase, in_a_forked_child);
	tcase_add_test(tcase, frame_records);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
