/*
 * test_unwind.c - stacks of ordinary code, compared frame by frame with libunwind's and glibc's:
 * recursion, library callbacks, the loader, C++ exceptions, odd frames, unloaded libraries.
 * Signals, fibres, threads and bad stacks are test_unwind_odd.c's.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <sys/wait.h>

#include "recorder/modules/object.h"
#include "recorder/unwind/unwind_rules.h"
#include "test/suite.h"
#include "test/unit/unwind/helper.h"
#include "test/unit/unwind/oracle.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED
#endif

static struct oracle seen;
static int checks;

static void expect_same(unsigned int against)
{
	checks++;
	ck_assert_msg(oracle_check(&seen, against), "%s", seen.why);
	ck_assert_msg(seen.flags == 0, "flags %u after %d frames", seen.flags, seen.count);
}

static __attribute__((noinline)) int recurse(int depth, int at)
{
	volatile int local = depth;

	if (depth == 0) {
		expect_same(ORACLE_BOTH);
		ck_assert_int_gt(seen.count, at);
		return 0;
	}
	return recurse(depth - 1, at) + local;
}

START_TEST(deep_recursion)
{
	static const int depths[] = { 0, 1, 2, 10, 40, 120, 500 };

	for (unsigned int i = 0; i < sizeof(depths) / sizeof(depths[0]); i++)
		recurse(depths[i], depths[i]);
}
END_TEST

static int compare_ints(const void *a, const void *b)
{
	expect_same(ORACLE_BOTH);
	return *(const int *)a - *(const int *)b;
}

static void sort_and_search(void)
{
	int values[] = { 3, 1, 2, 7, 5 };
	int key = 5;

	checks = 0;
	qsort(values, 5, sizeof(int), compare_ints);
	ck_assert_ptr_nonnull(bsearch(&key, values, 5, sizeof(int), compare_ints));
	ck_assert_int_gt(checks, 5);
}

START_TEST(callback_through_libc)
{
	sort_and_search();
}
END_TEST

static __attribute__((noinline)) int frame_alloca(size_t bytes)
{
	volatile char *area = alloca(bytes);

	area[0] = 1;
	expect_same(ORACLE_BOTH);
	return area[0];
}

static __attribute__((noinline)) int frame_large(void)
{
	volatile char area[200000];

	area[0] = 1;
	area[sizeof(area) - 1] = 2;
	expect_same(ORACLE_BOTH);
	return area[0];
}

static __attribute__((noinline)) int frame_realigned(size_t bytes)
{
	volatile char aligned[256] __attribute__((aligned(128)));
	volatile char *area = alloca(bytes);

	aligned[0] = area[0] = 1;
	ck_assert_uint_eq((uintptr_t)aligned % 128, 0);
	expect_same(ORACLE_BOTH);
	return aligned[0];
}

START_TEST(frames_of_all_sizes)
{
	for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1) {
		frame_alloca(bytes);
		frame_realigned(bytes);
	}
	frame_large();
}
END_TEST

#if !defined(__clang__) && !defined(__aarch64__)	/* clang realigns with a frame pointer, by a plain rule */
/* The realigned frame above must have been one of those with an expression, or it tests nothing. */
START_TEST(realigned_frames_have_their_rule)
{
	bool found = false;

	frame_realigned(100);
	for (int i = 1; i < seen.count; i++) {
		uint64_t entry = gm_rule_find(seen.ours[i] - 1,
					      gm_rule_wanted(0, gm_rule_generation()));

		found |= gm_rule_kind(gm_entry_rule(entry)) == GM_RULE_DRAP;
	}
	ck_assert_msg(found, "no frame of kind GM_RULE_DRAP on the stack");
}
END_TEST
#endif

static jmp_buf back;

static __attribute__((noinline, noreturn)) void leave(void)
{
	expect_same(ORACLE_BOTH);
	longjmp(back, 1);
}

/* The call is the last instruction: the return address belongs to the next function. */
static __attribute__((noinline, noreturn)) void ends_with_a_call(void)
{
	leave();
}

START_TEST(call_that_never_returns)
{
	checks = 0;
	if (!setjmp(back))
		ends_with_a_call();
	ck_assert_int_eq(checks, 1);
	recurse(3, 3);			/* and nothing is left of it */
}
END_TEST

__attribute__((visibility("default"))) void unwind_test_hook(void);
static int hook_calls;

void unwind_test_hook(void)
{
	hook_calls++;
	expect_same(ORACLE_BOTH);
	ck_assert_int_gt(seen.count, 8);	/* dlopen and the loader lie between */
}

START_TEST(constructor_of_a_library)
{
	hook_calls = 0;
	helper_open("constructor.so");
	ck_assert_int_eq(hook_calls, 1);
}
END_TEST

#ifndef INSTRUMENTED			/* their wrapper of __cxa_throw wants libstdc++ linked in */
static void call_back(void *arg)
{
	(void)arg;
	expect_same(ORACLE_BOTH);
}

START_TEST(exceptions_in_flight)
{
	void *handle = helper_open("exceptions.so");
	int (*run)(void (*)(void *), void *);

	*(void **)&run = helper_symbol(handle, "exceptions_run");
	checks = 0;
	ck_assert_int_eq(run(call_back, NULL), 42);
	ck_assert_int_eq(checks, 6 + 1 + 3 + 1);	/* destructors, catch blocks */
}
END_TEST
#endif

#if defined(__aarch64__)

/* Frames by hand: CFA in a callee-saved register, the return address apart from the frame pointer, that in
 * another register, that by an expression. All need more than the cached rules hold. */
void odd_x19(void (*callback)(void *), void *arg);
void odd_apart(void (*callback)(void *), void *arg);
void odd_expression(void (*callback)(void *), void *arg);
void odd_register(void (*callback)(void *), void *arg);
#define ODD_CALL "	mov x2, x0\n	mov x0, x1\n	blr x2\n"
__asm__(".text\n"
	"odd_x19: .cfi_startproc\n"
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	str x19, [sp, #16]\n"
	"	.cfi_offset 19, -16\n"
	"	mov x19, sp\n"
	"	.cfi_def_cfa_register 19\n"
	"	sub sp, sp, #208\n"
	ODD_CALL
	"	mov sp, x19\n"
	"	.cfi_def_cfa_register 31\n"
	"	ldr x19, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_apart: .cfi_startproc\n"
	"	str x30, [sp, #-48]!\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_offset 30, -48\n"
	"	str x29, [sp, #32]\n"
	"	.cfi_offset 29, -16\n"
	"	mov x29, #1\n"
	ODD_CALL
	"	ldr x29, [sp, #32]\n"
	"	ldr x30, [sp], #48\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_expression: .cfi_startproc\n"
	"	str x30, [sp, #-48]!\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_offset 30, -48\n"
	"	str x29, [sp, #16]\n"
	"	.cfi_escape 0x10, 29, 4, 0x8f, 8, 0x23, 8\n"	/* x29 at sp + 8 + 8 */
	"	mov x29, #1\n"
	ODD_CALL
	"	ldr x29, [sp, #16]\n"
	"	ldr x30, [sp], #48\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_register: .cfi_startproc\n"
	"	stp x30, x20, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 30, -32\n"
	"	.cfi_offset 20, -24\n"
	"	mov x20, x29\n"
	"	.cfi_register 29, 20\n"
	"	mov x29, #1\n"
	ODD_CALL
	"	mov x29, x20\n"
	"	ldp x30, x20, [sp], #32\n"
	"	ret\n"
	"	.cfi_endproc\n");

typedef void odd_fn(void (*)(void *), void *);
static odd_fn *const odd[] = { odd_x19, odd_apart, odd_expression, odd_register };

#else

/* Frames by hand: CFA in a callee-saved register, CFA in memory beside rsp, rbp by an expression,
 * rbp in another register. All need more than the cached rules hold. */
void odd_rbx(void (*callback)(void *), void *arg);
void odd_memory(void (*callback)(void *), void *arg);
void odd_expression(void (*callback)(void *), void *arg);
void odd_register(void (*callback)(void *), void *arg);
__asm__(".text\n"
	"odd_rbx: .cfi_startproc\n"
	"	pushq %rbx\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset rbx, -16\n"
	"	movq %rsp, %rbx\n"
	"	.cfi_def_cfa_register rbx\n"
	"	subq $200, %rsp\n"
	"	andq $-64, %rsp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movq %rbx, %rsp\n"
	"	.cfi_def_cfa_register rsp\n"
	"	popq %rbx\n"
	"	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_memory: .cfi_startproc\n"
	"	movq %rsp, %rax\n"
	"	.cfi_def_cfa_register rax\n"
	"	subq $104, %rsp\n"
	"	andq $-64, %rsp\n"
	"	movq %rax, 56(%rsp)\n"
	"	.cfi_escape 0x0f, 5, 0x77, 56, 0x06, 0x23, 8\n"	/* *(rsp + 56) + 8 */
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movq 56(%rsp), %rsp\n"
	"	.cfi_def_cfa rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_expression: .cfi_startproc\n"
	"	subq $40, %rsp\n"
	"	.cfi_def_cfa_offset 48\n"
	"	movq %rbp, 16(%rsp)\n"
	"	.cfi_escape 0x10, 6, 4, 0x77, 8, 0x23, 8\n"		/* rbp at rsp + 8 + 8 */
	"	movq $0, %rbp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movq 16(%rsp), %rbp\n"
	"	.cfi_same_value rbp\n"
	"	addq $40, %rsp\n"
	"	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"odd_register: .cfi_startproc\n"
	"	pushq %r12\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset r12, -16\n"
	"	movq %rbp, %r12\n"
	"	.cfi_register rbp, r12\n"
	"	movq $1, %rbp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movq %r12, %rbp\n"
	"	.cfi_same_value rbp\n"
	"	popq %r12\n"
	"	.cfi_same_value r12\n"
	"	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	"	.cfi_endproc\n");

typedef void odd_fn(void (*)(void *), void *);
static odd_fn *const odd[] = { odd_rbx, odd_memory, odd_expression, odd_register };

#endif

#define ODD (sizeof(odd) / sizeof(odd[0]))

static __attribute__((noinline)) void odd_nested(void *next)
{
	size_t i = (size_t)next;
	volatile char area[48];		/* a frame of the compiler's between two odd ones */

	area[0] = 0;
	if (i == ODD)
		expect_same(ORACLE_GLIBC);	/* libunwind 1.6 refuses some of these */
	else
		odd[i](odd_nested, (void *)(i + 1));
	area[1] = area[0];
}

static void odd_glibc(void *arg)
{
	(void)arg;
	expect_same(ORACLE_GLIBC);
}

START_TEST(frames_that_need_all_registers)
{
	for (size_t i = 0; i < ODD; i++)
		odd[i](odd_glibc, NULL);
	odd_nested(NULL);
}
END_TEST

START_TEST(room_for_fewer_frames)
{
	uintptr_t all[64], some[64];
	struct gm_regs regs;
	unsigned int flags;
	int depth;

	gm_regs_capture(&regs);
	depth = gm_unwind(&regs, all, 64, &flags);
	ck_assert_uint_eq(flags, 0);
	for (int max = 0; max <= 64; max++) {
		int count = gm_unwind(&regs, some, max, &flags);

		ck_assert_int_eq(count, max < depth ? max : depth);
		ck_assert_uint_eq(flags, max < depth ? GM_UNWIND_MORE : 0);
		ck_assert_mem_eq(some, all, (size_t)count * sizeof(*all));
	}
}
END_TEST

/* aarch64: such code has frame records, by which ours goes on where glibc's stops. */
static void expect_truncated(void *arg)
{
	(void)arg;
#if defined(__aarch64__)
	ck_assert(oracle_check(&seen, 0));
	ck_assert_int_gt(seen.count, backtrace(seen.theirs, ORACLE_FRAMES));
	ck_assert_uint_eq(seen.flags, 0);
	return;
#endif
	ck_assert_msg(oracle_check(&seen, ORACLE_GLIBC), "%s", seen.why);
	ck_assert_uint_eq(seen.flags, GM_UNWIND_TRUNCATED);
}

START_TEST(code_without_tables_ends_the_stack)
{
	void *handle = helper_open("notables.so");
	odd_fn *call;
	Dl_info info;

	*(void **)&call = helper_symbol(handle, "notables_call");
	call(expect_truncated, NULL);
	/* oracle_check, expect_truncated, and the return address in the library itself */
#if defined(__aarch64__)
	ck_assert_int_gt(seen.count, 3);
#else
	ck_assert_int_eq(seen.count, 3);
#endif
	ck_assert(dladdr((void *)seen.ours[2], &info));
	ck_assert_str_eq(info.dli_sname, "notables_call");
}
END_TEST

#ifndef __aarch64__
static uintptr_t call_layout(const char *name, void (*callback)(void *), void **ret_handle)
{
	odd_fn *call;

	*ret_handle = helper_open(name);
	*(void **)&call = helper_symbol(*ret_handle, "layout_call");
	call(callback, NULL);
	return (uintptr_t)call;
}

static void glibc_agrees(void *arg)	/* libunwind keeps rules of unloaded libraries for ever */
{
	(void)arg;
	expect_same(ORACLE_GLIBC);
}

static void glibc_disagrees(void *arg)
{
	(void)arg;
	ck_assert(!oracle_check(&seen, ORACLE_GLIBC));
}

START_TEST(another_library_at_the_same_address)
{
	const char *names[] = { "layout_a.so", "layout_b.so" };
	uintptr_t last = 0, here;
	void *handle;

	for (int i = 0; i < 20; i++) {
		here = call_layout(names[i % 2], glibc_agrees, &handle);
		if (last)
			ck_assert_msg(here == last, "the loader chose another address");
		last = here;
		gm_unwind_flush();
		dlclose(handle);
		gm_unwind_flush();
	}
	/* and it is the flush that did it: this test can fail */
	call_layout("layout_a.so", glibc_agrees, &handle);
	dlclose(handle);
	ck_assert_uint_eq(call_layout("layout_b.so", glibc_disagrees, &handle), last);
	gm_unwind_flush();
	call_layout("layout_b.so", glibc_agrees, &handle);
}
END_TEST
#endif

START_TEST(as_with_an_older_libc)
{
	uint64_t before;

	gm_unwind_flush();
	gm_object_force_maps(true);
	before = gm_unwind_misses;
	recurse(20, 20);
	frame_realigned(1000);
	sort_and_search();
	helper_open("constructor.so");
	ck_assert_uint_gt(gm_unwind_misses, before);
	gm_object_force_maps(false);
}
END_TEST

static void *on_thread(void *arg)
{
	recurse(30, 30);
	frame_large();
	recurse(200, 200);
	return arg;
}

START_TEST(other_threads)
{
	size_t sizes[] = { 1 << 21, 1 << 22, 8 << 20 };

	for (int i = 0; i < 3; i++) {
		pthread_attr_t attr;
		pthread_t thread;

		pthread_attr_init(&attr);
		ck_assert_int_eq(pthread_attr_setstacksize(&attr, sizes[i]), 0);
		ck_assert_int_eq(pthread_create(&thread, &attr, on_thread, NULL), 0);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
}
END_TEST

START_TEST(after_fork)
{
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		bool same = oracle_check(&seen, ORACLE_GLIBC) && seen.flags == 0;

		_exit(same ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(errno_is_kept)
{
	uintptr_t pcs[64];
	struct gm_regs regs;

	gm_unwind_flush();
	errno = 4711;
	gm_regs_capture(&regs);
	gm_unwind(&regs, pcs, 64, NULL);
	ck_assert_int_eq(errno, 4711);
}
END_TEST

/* The same stack again works nothing out anew. */
START_TEST(rules_are_kept)
{
	uint64_t before;

	recurse(50, 50);
	before = gm_unwind_misses;
	recurse(50, 50);
	ck_assert_uint_le(gm_unwind_misses - before, 4);	/* the calls of this function */
}
END_TEST

#ifndef INSTRUMENTED
/* CPython calls the comparison through ctypes, from a Python stack some dozens deep. */
#ifndef __aarch64__
START_TEST(stacks_of_cpython)
{
	static const char program[] =
		"import ctypes, sys, json, re\n"
		"lib = ctypes.CDLL(sys.argv[1])\n"
		"depths = []\n"
		"def probe(*_):\n"
		"    depths.append(lib.pyprobe_check())\n"
		"    return 0\n"
		"def deep(n):\n"
		"    return probe() if n == 0 else max(map(deep, [n - 1]))\n"
		"class Hooked:\n"
		"    def __lt__(self, other): probe(); return True\n"
		"    def __del__(self): probe()\n"
		"    def __repr__(self): probe(); return 'x'\n"
		"probe(); deep(1); deep(15); deep(40)\n"
		"sorted([Hooked(), Hooked(), Hooked()])\n"
		"repr([[Hooked()]]); re.sub('a', probe and (lambda m: probe() or 'b'), 'aaa')\n"
		"json.dumps([object()], default=lambda o: probe() or 1)\n"
		"eval('probe()'); exec('probe()')\n"
		"callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: probe())\n"
		"callback(); [callback() for _ in range(3)]\n"
		"g = (probe() for _ in range(3)); list(g)\n"
		"bad = [d for d in depths if d <= 0]\n"
		"print('#', sys.version.split()[0], len(depths), 'stacks up to', max(depths))\n"
		"sys.exit(1 if bad or max(depths) < 120 else 0)\n";
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		execlp("python3", "python3", "-c", program, helper_path("pyprobe.so"),
		       (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "python3 ended with status %#x", (unsigned int)status);
}
END_TEST
#endif
#endif

int main(void)
{
	Suite *suite = suite_create("unwind");
	TCase *tcase = tcase_create("stacks");

	if (!oracle_open()) {
		printf("not ok 1 - libunwind.so.8 cannot be opened: nothing to compare with\n");
		return 1;
	}
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, deep_recursion);
	tcase_add_test(tcase, callback_through_libc);
	tcase_add_test(tcase, frames_of_all_sizes);
#if !defined(__clang__) && !defined(__aarch64__)
	tcase_add_test(tcase, realigned_frames_have_their_rule);
#endif
	tcase_add_test(tcase, call_that_never_returns);
	tcase_add_test(tcase, constructor_of_a_library);
	tcase_add_test(tcase, frames_that_need_all_registers);
	tcase_add_test(tcase, room_for_fewer_frames);
	tcase_add_test(tcase, code_without_tables_ends_the_stack);
#ifndef __aarch64__			/* qemu maps it elsewhere */
	tcase_add_test(tcase, another_library_at_the_same_address);
#endif
	tcase_add_test(tcase, as_with_an_older_libc);
	tcase_add_test(tcase, other_threads);
	tcase_add_test(tcase, after_fork);
	tcase_add_test(tcase, errno_is_kept);
	tcase_add_test(tcase, rules_are_kept);
#ifndef INSTRUMENTED
	tcase_add_test(tcase, exceptions_in_flight);
#ifndef __aarch64__			/* of the machine that qemu runs on */
	tcase_add_test(tcase, stacks_of_cpython);
#endif
#endif
	return run_suite(suite);
}
