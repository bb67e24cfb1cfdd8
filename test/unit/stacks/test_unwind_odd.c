/*
 * test_unwind_odd.c - stacks that are not a plain chain of calls: signal handlers at any
 * instruction, alternate stacks, fibres, code made at run time, faults at null, bad registers,
 * and threads that unwind while libraries come and go.
 */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "recorder/modules/object.h"
#include "test/suite.h"
#include "test/unit/unwind/helper.h"
#include "test/unit/unwind/oracle.h"
#include "test/seed.h"

#define PAGE 4096u

static struct oracle seen;
static volatile sig_atomic_t handled;

static __attribute__((noinline)) void recurse(int depth, void (*then)(void))
{
	volatile int local = depth;

	if (depth == 0)
		then();
	else
		recurse(depth - 1, then);
	local++;
}

static void check_whole(void)
{
	ck_assert_msg(oracle_check(&seen, ORACLE_BOTH), "%s", seen.why);
	ck_assert_uint_eq(seen.flags, 0);
}

#ifndef __SANITIZE_THREAD__
/* ---- signal handlers ------------------------------------------------------------------- */

static sigjmp_buf back;

static void take(int signo, int flags, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	sigemptyset(&action.sa_mask);
	ck_assert_int_eq(sigaction(signo, &action, NULL), 0);
}

static void *alternate_stack(void)
{
	stack_t stack = { .ss_size = 128 * 1024 };

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(stack.ss_sp, MAP_FAILED);
	ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
	return stack.ss_sp;
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
	uintptr_t pcs[ORACLE_FRAMES];
	struct gm_regs regs;
	unsigned int flags;
	int count, skip = 0;

	(void)signo;
	(void)info;
	handled++;
	ck_assert_msg(oracle_check(&seen, ORACLE_BOTH), "%s", seen.why);
	ck_assert_uint_eq(seen.flags, GM_UNWIND_SIGNAL);
	/* the same from the context alone: the frames beyond the trampoline */
	gm_regs_from_ucontext(&regs, context);
	count = gm_unwind(&regs, pcs, ORACLE_FRAMES, &flags);
	while (skip < seen.count && seen.ours[skip] != pcs[0])
		skip++;
	ck_assert_int_lt(skip, seen.count);
	ck_assert_int_eq(count, seen.count - skip);
	ck_assert_mem_eq(pcs, seen.ours + skip, (size_t)count * sizeof(*pcs));
}

static void raise_it(void)
{
	raise(SIGUSR1);
}

/* A function that has saved nothing. */
void leaf_that_traps(void);
__asm__(".text\n"
	"leaf_that_traps: .cfi_startproc\n"
#if defined(__aarch64__)
	"	mov x8, #178\n"			/* gettid */
	"	svc #0\n"
	"	mov x1, #5\n"				/* SIGTRAP */
	"	mov x8, #130\n"			/* tkill */
	"	svc #0\n"
#else
	"	int3\n"
#endif
	"	ret\n"
	"	.cfi_endproc\n");

START_TEST(handlers)
{
	take(SIGUSR1, 0, on_signal);
	take(SIGTRAP, 0, on_signal);
	recurse(0, raise_it);
	recurse(20, raise_it);
	recurse(20, leaf_that_traps);
	ck_assert_int_eq(handled, 3);
}
END_TEST

START_TEST(handlers_on_an_alternate_stack)
{
	alternate_stack();
	take(SIGUSR1, SA_ONSTACK, on_signal);
	take(SIGTRAP, SA_ONSTACK, on_signal);
	recurse(0, raise_it);
	recurse(20, raise_it);
	recurse(20, leaf_that_traps);
	ck_assert_int_eq(handled, 3);
}
END_TEST

static void on_outer(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)info;
	(void)context;
	recurse(3, raise_it);
}

START_TEST(handler_in_a_handler)
{
	alternate_stack();
	take(SIGUSR2, 0, on_outer);
	take(SIGUSR1, SA_ONSTACK, on_signal);
	raise(SIGUSR2);
	ck_assert_int_eq(handled, 1);
}
END_TEST

static volatile int never_called_through;

static void on_fault(int signo, siginfo_t *info, void *context)
{
	uintptr_t pcs[64];
	struct gm_regs regs;
	unsigned int flags;
	int count;

	(void)signo;
	(void)info;
	handled++;
	gm_regs_from_ucontext(&regs, context);
	count = gm_unwind(&regs, pcs, 64, &flags);
	ck_assert_int_gt(count, 3);
	ck_assert_uint_eq(flags, 0);
	/* all but the address that is no code: as from the handler itself, beyond the trampoline */
	ck_assert(oracle_check(&seen, 0));
#if defined(__aarch64__)
	ck_assert_uint_eq(pcs[1], regs.r[30]);
#else
	ck_assert_uint_eq(pcs[1], *(uintptr_t *)regs.r[GM_REG_SP]);
#endif
	for (int i = 0; i < 3; i++)
		ck_assert_uint_ne(pcs[1 + i], 0);
	siglongjmp(back, 1);
}

/* A call to null, the commonest crash there is: its caller must be on the stack. */
static __attribute__((noinline)) void call_to(uintptr_t address)
{
	void (*target)(void);

	memcpy(&target, &address, sizeof(target));
	if (!sigsetjmp(back, 1)) {
		target();
		never_called_through = 1;
	}
}

START_TEST(call_to_an_address_that_is_no_code)
{
	take(SIGSEGV, SA_NODEFER, on_fault);
	call_to(0);
	call_to(16);
	call_to((uintptr_t)&seen);
	ck_assert_int_eq(handled, 3);
	ck_assert_int_eq(never_called_through, 0);
}
END_TEST

#if defined(__x86_64__)
/* A fault within code made at run time: what lies on top of the stack is not its caller. */
static void on_jit_fault(int signo, siginfo_t *info, void *context)
{
	uintptr_t pcs[64];
	struct gm_regs regs;
	unsigned int flags;

	(void)signo;
	(void)info;
	handled++;
	gm_regs_from_ucontext(&regs, context);
	ck_assert_int_eq(gm_unwind(&regs, pcs, 64, &flags), 1);
	ck_assert_uint_eq(flags, GM_UNWIND_TRUNCATED);
	ck_assert_uint_eq(pcs[0], regs.r[GM_REG_PC]);
	siglongjmp(back, 1);
}

START_TEST(fault_in_code_made_at_run_time)
{
	static const uint8_t code[] = { 0x57, 0x0f, 0x0b };	/* push rdi; ud2 */
	uint8_t *area = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	uintptr_t (*jit)(uintptr_t);

	ck_assert_ptr_ne(area, MAP_FAILED);
	memcpy(area, code, sizeof(code));
	ck_assert_int_eq(mprotect(area, PAGE, PROT_READ | PROT_EXEC), 0);
	*(void **)&jit = area;
	take(SIGILL, SA_NODEFER, on_jit_fault);
	if (!sigsetjmp(back, 1))
		jit((uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
	if (!sigsetjmp(back, 1))
		jit(42);
	ck_assert_int_eq(handled, 2);
}
END_TEST
#endif

/* A storm of signals over code of all sorts: every instruction may be the interrupted one. */
static atomic_int storm_checks, storm_differences;
static char storm_why[600];

static void on_storm(int signo, siginfo_t *info, void *context)
{
	static struct oracle here;	/* the signal is masked meanwhile */

	(void)signo;
	(void)info;
	(void)context;
	storm_checks++;
	if (!oracle_check(&here, ORACLE_GLIBC) || here.flags != GM_UNWIND_SIGNAL) {
		if (!storm_differences++)
			snprintf(storm_why, sizeof(storm_why), "flags %u, %s", here.flags,
				 here.why);
	}
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void work_of_all_sorts(void)
{
	char text[64], *words[40], *copies[40];
	static struct oracle o;
	struct gm_regs regs;

	for (int i = 0; i < 40; i++) {
		snprintf(text, sizeof(text), "%d %.3f %s", rand(), (double)i / 3, "word");
		words[i] = copies[i] = strdup(text);
	}
	qsort(words, 40, sizeof(words[0]), compare_strings);
	gm_regs_capture(&regs);
	o.count = gm_unwind(&regs, o.ours, 64, &o.flags);	/* interrupted in the unwinder too */
	for (int i = 1; i < 20; i++)
		ck_assert_msg(oracle_same_in_cache(&o, &regs, i), "%s", o.why);
	if (helper_now_ns() % 7 == 0)
		gm_unwind_flush();
	for (int i = 0; i < 40; i++)
		free(copies[i]);
	dlsym(RTLD_DEFAULT, "no_such_symbol");
}

START_TEST(storm_of_signals)
{
	struct itimerval interval = { { 0, 300 }, { 0, 300 } };
	uint64_t end = helper_now_ns() + 3000000000u;

#if defined(__aarch64__)
	oracle_may_stop = true;
#endif

	alternate_stack();
	take(SIGPROF, SA_RESTART | SA_ONSTACK, on_storm);
	ck_assert_int_eq(setitimer(ITIMER_PROF, &interval, NULL), 0);
	while (helper_now_ns() < end && storm_checks < 2000)
		work_of_all_sorts();
	memset(&interval, 0, sizeof(interval));
	setitimer(ITIMER_PROF, &interval, NULL);
	printf("# %d stacks taken by signals\n", storm_checks);
	ck_assert_int_gt(storm_checks, 0);
	ck_assert_msg(storm_differences == 0, "%d of %d differ: %s", storm_differences,
		      storm_checks, storm_why);
}
END_TEST

#if defined(__x86_64__)
/* Single-stepped: the trap flag has a handler called at each instruction of a run of code. */
static int steps_checked;

static void on_step(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)info;
	(void)context;
	steps_checked++;
	ck_assert_msg(oracle_check(&seen, ORACLE_GLIBC), "step %d: %s", steps_checked, seen.why);
	ck_assert_uint_eq(seen.flags, GM_UNWIND_SIGNAL);
}

/* Call @run with the trap flag set. */
void step_through(void (*run)(void));
__asm__(".text\n"
	"step_through: .cfi_startproc\n"
	"	subq $8, %rsp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	pushfq\n"
	"	.cfi_def_cfa_offset 24\n"
	"	orq $0x100, (%rsp)\n"
	"	popfq\n"
	"	.cfi_def_cfa_offset 16\n"
	"	call *%rdi\n"
	"	pushfq\n"
	"	.cfi_def_cfa_offset 24\n"
	"	andq $~0x100, (%rsp)\n"
	"	popfq\n"
	"	.cfi_def_cfa_offset 16\n"
	"	addq $8, %rsp\n"
	"	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	"	.cfi_endproc\n");

static __attribute__((noinline)) void stepped(void)
{
	char text[32];

	snprintf(text, sizeof(text), "%d %s", 42, "stepped");
	strtod("3.25e7", NULL);
	getenv("HOME");
	time(NULL);		/* in the vDSO; clock_gettime there may read again and again while it is stepped (kvm-clock) */
}

START_TEST(every_instruction)
{
	take(SIGTRAP, SA_ONSTACK, on_step);
	step_through(stepped);
	printf("# %d instructions stepped through\n", steps_checked);
	ck_assert_int_gt(steps_checked, 300);
}
END_TEST

#endif

/* ---- fibres ---------------------------------------------------------------------------- */

static ucontext_t main_context, fibre_context;

/* glibc plants a return address before which there is no code: where a fibre's stack begins is
 * where every unwinder gives up. */
static void check_on_fibre(void)
{
	ck_assert_msg(oracle_check(&seen, ORACLE_BOTH), "%s", seen.why);
	ck_assert_uint_eq(seen.flags & ~(unsigned int)GM_UNWIND_TRUNCATED, 0);
	ck_assert_int_ge(seen.count, 10);
	handled++;
}

static uintptr_t guard_page;

#if defined(__x86_64__)
/* A frame whose rbp points beyond the fibre's stack, at a page that cannot be read, though the
 * thread's own stack lies further up. The pc is one whose CFA is rbp + 16. */
static __attribute__((noinline)) void beyond_the_stack(void)
{
	struct gm_regs regs = { .has_all = false };
	uintptr_t pcs[8];
	unsigned int flags;

	gm_regs_capture(&regs);
	__asm__ volatile("jmp 1f\n"
			 ".cfi_remember_state\n"
			 ".cfi_def_cfa rbp, 16\n"
			 "0: nop\n"
			 ".cfi_restore_state\n"
			 "1: leaq 0b(%%rip), %0" : "=r"(regs.r[GM_REG_PC]));
	for (int i = 0; i < 3; i++) {
		regs.r[GM_REG_FP] = guard_page + 4096 * (uintptr_t)i;
		ck_assert_int_eq(gm_unwind(&regs, pcs, 8, &flags), 1);
		ck_assert_uint_eq(flags, GM_UNWIND_TRUNCATED);
	}
}
#endif

static void fibre(void)
{
	recurse(10, check_on_fibre);
	recurse(60, check_on_fibre);
#if defined(__x86_64__)
	beyond_the_stack();
#endif
}

/* Between pages that cannot be read, gone again before the next one. */
static void fibres_run(void)
{
	const size_t bytes = 16 * PAGE;

	for (volatile int i = 0; i < 200; i++) {
		uint8_t *area = mmap(NULL, bytes + 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
				     -1, 0);

		ck_assert_ptr_ne(area, MAP_FAILED);
		ck_assert_int_eq(mprotect(area + PAGE, bytes, PROT_READ | PROT_WRITE), 0);
		guard_page = (uintptr_t)area + PAGE + bytes;
		ck_assert_int_eq(getcontext(&fibre_context), 0);
		fibre_context.uc_stack.ss_sp = area + PAGE + (i % 2 ? 5 * PAGE : 0);
		fibre_context.uc_stack.ss_size = bytes - (i % 2 ? 5 * PAGE : 0);
		fibre_context.uc_link = &main_context;
		makecontext(&fibre_context, fibre, 0);
		ck_assert_int_eq(swapcontext(&main_context, &fibre_context), 0);
		ck_assert_int_eq(munmap(area, bytes + 4 * PAGE), 0);
	}
	ck_assert_int_eq(handled, 400);
	recurse(10, check_whole);	/* and the thread's own stack again */
}

START_TEST(fibres)
{
	fibres_run();
}
END_TEST

static void *fibres_on_a_thread(void *arg)
{
	fibres_run();
	return arg;
}

/* A thread's stack lies among the fibres': near enough to be taken for the same. */
START_TEST(fibres_of_a_thread)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fibres_on_a_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

#endif	/* not under TSan */
/* ---- code without tables --------------------------------------------------------------- */

static void check_in_jit(void)
{
	oracle_check(&seen, 0);
#if defined(__aarch64__)
	ck_assert_uint_eq(seen.flags, 0);
#else
	ck_assert_uint_eq(seen.flags, GM_UNWIND_TRUNCATED);
#endif
	handled++;
}

START_TEST(code_made_at_run_time)
{
#if defined(__aarch64__)
	/* stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret */
	static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
	const uintptr_t after_call = 12;
#else
	/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
	static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	const uintptr_t after_call = 6;
#endif
	uint8_t *area = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	void (*jit)(void (*)(void));

	ck_assert_ptr_ne(area, MAP_FAILED);
	memcpy(area, code, sizeof(code));
	ck_assert_int_eq(mprotect(area, PAGE, PROT_READ | PROT_EXEC), 0);
	__builtin___clear_cache((char *)area, (char *)area + sizeof(code));
	*(void **)&jit = area;
	jit(check_in_jit);
	jit(check_in_jit);
	ck_assert_int_eq(handled, 2);
#if defined(__aarch64__)
	ck_assert_int_gt(seen.count, 4);	/* it has a frame record */
#else
	ck_assert_int_eq(seen.count, 3);
#endif
	ck_assert_uint_eq(seen.ours[2], (uintptr_t)area + after_call);
	/* the next one to lie there may have tables: nothing was learnt of it */
	munmap(area, PAGE);
}
END_TEST

/* ---- bad registers --------------------------------------------------------------------- */

static uintptr_t some_address(uint64_t *seed, uintptr_t stack_lo, uintptr_t stack_hi)
{
	static const uintptr_t fixed[] = { 0, 1, 8, 4096, UINT64_C(1) << 47,
		(UINT64_C(1) << 47) - 8, UINTPTR_MAX, UINTPTR_MAX - 7, UINTPTR_MAX - 4096,
		INTPTR_MAX };
	uint64_t kind = helper_random(seed) % 8;

	switch (kind) {
	case 0:
		return fixed[helper_random(seed) % (sizeof(fixed) / sizeof(fixed[0]))];
	case 1:
		return helper_random(seed);
	case 2:
		return (uintptr_t)memcpy + helper_random(seed) % 100000;
	case 3:
		return (uintptr_t)some_address + helper_random(seed) % 4096;
	case 4:
		return (uintptr_t)&seen + helper_random(seed) % sizeof(seen);
	case 5:
		return stack_hi + helper_random(seed) % 65536;
	default:
		return stack_lo + helper_random(seed) % (stack_hi - stack_lo);
	}
}

START_TEST(bad_registers)
{
	uint64_t seed = test_seed();
	const int runs = 30000;
	long frames = 0;

	for (int i = 0; i < runs; i++) {
		volatile uintptr_t words[64];	/* what a bad walk will find */
		uintptr_t lo = (uintptr_t)words, hi = lo + 16384, pcs[40];
		struct gm_regs regs;
		unsigned int flags;
		int count;

		for (int j = 0; j < 64; j++)
			words[j] = some_address(&seed, lo, hi);
		for (int j = 0; j < GM_REG_COUNT; j++)
			regs.r[j] = some_address(&seed, lo, hi);
		if (i % 3)
			regs.r[GM_REG_SP] = lo + 8 * (helper_random(&seed) % 60);
		regs.has_all = i % 2;
		count = gm_unwind(&regs, pcs, 40, &flags);
		ck_assert_int_ge(count, 0);
		ck_assert_int_le(count, 40);
		frames += count;
		if (i % 1000 == 0)
			gm_unwind_flush();
	}
	printf("# %d bad stacks, %ld frames\n", runs, frames);
	ck_assert_int_gt(frames, runs);
	recurse(10, check_whole);
}
END_TEST

/* ---- libraries come and go ------------------------------------------------------------- */

static atomic_bool stop;
static atomic_long walks, differences;

static void walk_here(void *arg)
{
	static __thread struct oracle o;
	struct gm_regs regs;
	int *depth = arg;

	gm_regs_capture(&regs);
	o.count = gm_unwind(&regs, o.ours, 64, &o.flags);
	walks++;
	if (!oracle_same_in_cache(&o, &regs, 64) || (*depth && (o.count != *depth || o.flags)))
		differences++;
	*depth = o.count;
}

static void *walker(void *arg)
{
	void (*call)(void (*)(void *), void *);
	int depth = 0;

	*(void **)&call = arg;
	while (!stop)
		for (int i = 0; i < 50; i++)
			call(walk_here, &depth);
	return NULL;
}

static void loader_round(int i)
{
	static const char *const names[] = { "layout_b.so", "notables.so", "exceptions.so" };
	void *handle = helper_open(names[i % 3]);

	gm_unwind_flush();
	dlclose(handle);
	gm_unwind_flush();
}

START_TEST(threads_while_libraries_come_and_go)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	void *call = helper_symbol(helper_open("layout_a.so"), "layout_call");
	uint64_t end = helper_now_ns() + 2000000000u;
	int rounds = 0;

	gm_object_force_maps(_i == 1);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, walker, call), 0);
	/* Two seconds; longer where the processor is slow, emulated or somebody else's. */
	while (rounds <= 10 || walks <= 1000 || (helper_now_ns() < end && rounds < 3000))
		loader_round(rounds++);
	stop = true;
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	printf("# %ld walks in 8 threads, %d libraries come and gone\n", (long)walks, rounds);
	ck_assert_int_eq(differences, 0);
	gm_object_force_maps(false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unwind_odd");
	TCase *tcase = tcase_create("odd");

	if (!oracle_open()) {
		printf("not ok 1 - libunwind.so.8 cannot be opened: nothing to compare with\n");
		return 1;
	}
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	/* TSan runs handlers where it likes, and objects to what the oracles do in them */
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tcase, handlers);
	tcase_add_test(tcase, handlers_on_an_alternate_stack);
	tcase_add_test(tcase, handler_in_a_handler);
	tcase_add_test(tcase, call_to_an_address_that_is_no_code);
#if defined(__x86_64__)
	tcase_add_test(tcase, fault_in_code_made_at_run_time);
#endif
	tcase_add_test(tcase, storm_of_signals);
#if defined(__x86_64__)
	tcase_add_test(tcase, every_instruction);
#endif
	tcase_add_test(tcase, fibres);
	tcase_add_test(tcase, fibres_of_a_thread);
#endif
	tcase_add_test(tcase, code_made_at_run_time);
	tcase_add_test(tcase, bad_registers);
	tcase_add_loop_test(tcase, threads_while_libraries_come_and_go, 0, 2);
	return run_suite(suite);
}
