/*
 * crash.c - the signals that end a program: store their data, and take a snapshot of the state at the
 * crash.
 *
 * Handlers are installed only for signals that the program left at their default. The handler stores
 * signal, registers and time in the journal's header. The helper thread then walks the stack and writes the
 * snapshot, while the handler waits for a limited time. Finally the handler lets the signal take its
 * default effect, so exit status and core file are the program's own. A handler that the program installs
 * later replaces ours. If the program restores the handler that it found, it restores ours.
 *
 *   crash_step   NONE ── first signal: its thread leads ──> TAKING ── written, or too late ──> DONE
 *
 * The first thread that crashes leads. Other threads that crash meanwhile wait for it, so that the snapshot is
 * complete and the exit status comes from the first signal. A fault in the handler itself ends the process at
 * once. In any case the journal stays whole, and `gpumem recover` writes the snapshot if the helper thread did
 * not.
 *
 * A fault repeats itself when the handler returns, because the registers are unchanged: the kernel finds
 * and reports the same fault. A signal that cannot repeat itself (it was sent, a trap, abort) is queued
 * again with its own siginfo. (If another thread has mapped the memory meanwhile, the fault does not repeat
 * itself. The program then goes on, with the signal at its default.)
 *
 * The only file that is opened is the snapshot (and two directories: that of the snapshot, and that of the
 * journal, which is removed). Unnamed frames stay unnamed; `gpumem symbolize` names them later. The names
 * thread may be about to open the file of a module, or hang in a call on one: it opens no further file, and
 * nobody waits for it. (Before glibc 2.35, /proc/self/maps is opened for addresses of unknown objects.)
 *
 * Thread context: gm_crash_start in the first hook; gm_crash_describe, _naming, _written and _not_worth_it
 * in the helper thread. Signal context: handler() and on_bus(), in any thread, on any stack that the kernel
 * chose. They take under 2 KiB of it (a walk of the stack takes more, so the handler does that only without
 * a helper thread and with room), keep errno, take no lock, call no malloc and open no file. A forked child
 * inherits the handlers; in a process that is not ours they only let the signal take effect. exec resets
 * them.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/triggers/trigger.h"
#include "preload/cache/cache.h"
#include "preload/process/state.h"
#include "recorder/modules/elf_file.h"
#include "recorder/modules/modules.h"
#include "recorder/journal/recorder.h"
#include "recorder/unwind/unwind.h"

/* limits of waits */
#define WAIT_NS UINT64_C(5000000000)	/* for the snapshot */
#define OWN_NS UINT64_C(500000000)	/* for its copy, if the fault is in our own code */
#define BEHIND_NS UINT64_C(6000000000)	/* how long other crashing threads wait for the first one */
#define DEATH_NS UINT64_C(1000000000)	/* how long they then wait for the process to die */
#define LOCK_NS UINT64_C(100000000)	/* for locks that the crashed thread may hold */
#define ROOM_BYTES 6144			/* room that a walk of the stack in the handler needs on an alternate stack */

enum { CRASH_NONE, CRASH_TAKING, CRASH_DONE };	/* gm_state.crash_step */

static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS,
			       SIGTERM, SIGINT, SIGHUP, SIGQUIT };
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

#if defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

static void handler(int number, siginfo_t *info, void *context);

/* Was the signal sent? Otherwise an instruction of the thread, or the kernel, raised it. */
static bool was_sent(const siginfo_t *info)
{
	return info->si_code <= 0;
}

static bool is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
}

/* Is our handler the one that the kernel would call? */
static bool is_taken(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_flags & SA_SIGINFO &&
	       action.sa_sigaction == handler;
}

/* ---- the default effect ------------------------------------------------------------------------ */

/* Is another of these signals pending? It would be delivered before the fault repeats itself. */
static bool others_pending(int number)
{
	sigset_t pending;

	if (sigpending(&pending))
		return true;
	for (unsigned int i = 0; i < SIGNALS; i++)
		if (signals[i] != number && sigismember(&pending, signals[i]))
			return true;
	return false;
}

/* Will the fault repeat itself when the handler returns? Faults that the kernel itself raised may not: the frame
 * of another signal did not fit on the stack, or memory failed. */
static bool happens_again(int number, const siginfo_t *info)
{
	return is_fault(number) && !was_sent(info) && info->si_code != SI_KERNEL &&
	       !(number == SIGBUS && info->si_code == BUS_MCEERR_AO) && !others_pending(number);
}

/* Let the signal take its default effect after this handler returns. @called: a handler of the program called this
 * one, which it had found installed. Without @called, a handler that the program has installed meanwhile gets the
 * signal. */
static void by_default(int number, siginfo_t *info, bool called)
{
	const struct sigaction action = { .sa_handler = SIG_DFL };

	if (called || is_taken(number))
		sigaction(number, &action, NULL);
	if (happens_again(number, info))
		return;
	/* A sandbox may forbid the first of these two calls. */
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, info))
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

void gm_crash_by_default(int number, void *info)
{
	by_default(number, info, true);
}

/* ---- the data of the crash, in the header -------------------------------------------------------- */

static void keep_registers(struct gm_header *header, const ucontext_t *context)
{
	struct gm_regs regs;

	gm_regs_from_ucontext(&regs, context);
	for (unsigned int i = 0; i < GM_REG_COUNT; i++)
		header->crash_registers[i] = regs.r[i];
#if defined(__aarch64__)
	header->crash_registers[GM_REG_COUNT] = context->uc_mcontext.pstate;
#else
	header->crash_registers[GM_REG_COUNT] =
		(uint64_t)context->uc_mcontext.gregs[REG_EFL] & UINT32_MAX;
#endif
	header->crash_machine = MACHINE;
}

static void keep(struct gm_header *header, int number, const siginfo_t *info,
		 const ucontext_t *context)
{
	header->crash_code = info->si_code;
	header->crash_tsc = gm_stamp();
	header->crash_tid = gm_state.crash_thread;
	if (was_sent(info)) {
		header->crash_sender_pid = info->si_pid;
		header->crash_sender_uid = info->si_uid;
	} else if (is_fault(number)) {
		header->crash_address = (uintptr_t)info->si_addr;
	}
	keep_registers(header, context);
	__atomic_store_n(&header->crash_signal, number, __ATOMIC_RELEASE);
	gm_set_release(&header->life, GM_LIFE_CRASHED);
}

/* Walk the stack from the stored registers, and read only words that are proved readable. With a helper thread,
 * the crashed thread waits in the handler meanwhile. */
static void walk(struct gm_header *header)
{
	struct gm_regs regs = { .has_all = true };
	unsigned int flags = 0;
	int count;

	_Static_assert(sizeof(uintptr_t) == sizeof(header->crash_pcs[0]), "pcs as they are");
	for (unsigned int i = 0; i < GM_REG_COUNT; i++)
		regs.r[i] = header->crash_registers[i];
	count = gm_unwind(&regs, (uintptr_t *)header->crash_pcs,
			  sizeof(header->crash_pcs) / sizeof(header->crash_pcs[0]), &flags);
	header->crash_flags = flags;
	__atomic_store_n(&header->crash_frames, (uint32_t)count, __ATOMIC_RELEASE);
}

/* Is there room to walk the stack here? Only an alternate stack is checked: a thread's own stack is assumed to
 * have enough. */
static bool has_room(const ucontext_t *context)
{
	const stack_t *other = &context->uc_stack;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), low = (uintptr_t)other->ss_sp;

	return other->ss_flags & SS_DISABLE || here < low || here - low >= other->ss_size ||
	       here - low >= ROOM_BYTES;
}

/* ---- the handler ------------------------------------------------------------------------------- */

/* The bounds of our own code, from the linker. */
extern const char __ehdr_start[] GM_HIDDEN, _end[] GM_HIDDEN;

static bool in_our_code(const struct gm_header *header)
{
	uint64_t pc = header->crash_registers[GM_REG_PC];

	return pc >= (uintptr_t)__ehdr_start && pc < (uintptr_t)_end;
}

static void set_step(uint32_t step)
{
	gm_set_release(&gm_state.crash_step, step);
	syscall(SYS_futex, (uint32_t *)&gm_state.crash_step, FUTEX_WAKE_PRIVATE, INT_MAX, NULL,
		NULL, 0);
}

static void lead(int number, siginfo_t *info, const ucontext_t *context)
{
	struct gm_header *header = gm_recorder_header();
	uint32_t request;

	gm_elf_files_stop();		/* before any system call */
	memcpy(&gm_state.crash_info, info, sizeof(*info));
	set_step(CRASH_TAKING);
	if (header) {
		keep(header, number, info, context);
		if (gm_trigger_has_helper()) {
			request = gm_trigger_ask(GM_REQUEST_CRASH);
			if (!in_our_code(header) || was_sent(info) ||
			    gm_trigger_wait_copied(request, OWN_NS))
				gm_trigger_wait_written(request, WAIT_NS);
		} else if (has_room(context)) {
			walk(header);
		}
	}
	set_step(CRASH_DONE);
}

/* Wait until the step is no longer @while_it_is, at most @limit_ns. */
static void wait_step(uint32_t while_it_is, uint64_t limit_ns)
{
	const struct timespec slice = { 0, 100000000 };

	for (uint64_t ns = 0; ns < limit_ns && gm_get_acquire(&gm_state.crash_step) == while_it_is;
	     ns += (uint64_t)slice.tv_nsec)
		syscall(SYS_futex, (uint32_t *)&gm_state.crash_step, FUTEX_WAIT_PRIVATE,
			while_it_is, &slice, NULL, 0);
}

/* Wait for the leading thread, because the process must die by the signal of that thread. */
static void follow(void)
{
	wait_step(CRASH_NONE, BEHIND_NS);
	wait_step(CRASH_TAKING, BEHIND_NS);
	wait_step(CRASH_DONE, DEATH_NS);
}

/* Die by the first signal, because the handler itself has faulted. All other signals are blocked in the handler. */
static void end_quietly(ucontext_t *context)
{
	int number = gm_state.crash_info.si_signo;

	by_default(number, &gm_state.crash_info, false);
	sigdelset(&context->uc_sigmask, number);
}

static void handler(int number, siginfo_t *info, void *context)
{
	uint32_t nobody = 0, me = (uint32_t)syscall(SYS_gettid);
	int kept = errno;
	bool called = !is_taken(number);

	if (!gm_state_is_mine()) {
		by_default(number, info, called);
	} else if (__atomic_compare_exchange_n((uint32_t *)&gm_state.crash_thread, &nobody, me, false,
					       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		lead(number, info, context);
		by_default(number, info, called);
	} else if (nobody == me && gm_get_acquire(&gm_state.crash_step) == CRASH_TAKING) {
		end_quietly(context);
	} else {
		if (nobody != me)
			follow();
		by_default(number, info, called);
	}
	errno = kept;
}

void gm_crash_start(void)
{
	struct sigaction action = { .sa_sigaction = handler,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK };
	struct sigaction before;

	/* No handler of the program may interrupt ours, or jump out of it. But faults stay unblocked: by a blocked
	 * fault the kernel kills the process at once, and the exit status would not be that of the first signal. */
	sigfillset(&action.sa_mask);
	for (unsigned int i = 0; i < SIGNALS; i++)
		if (is_fault(signals[i]))
			sigdelset(&action.sa_mask, signals[i]);
	for (unsigned int i = 0; i < SIGNALS; i++)
		if (sigaction(signals[i], NULL, &before) == 0 &&
		    !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
			sigaction(signals[i], &action, NULL);
}

/* ---- in the helper thread ---------------------------------------------------------------------- */

/* Intern the stack. Every other frame is a return address and gets the name of the byte before it. So the faulting
 * instruction is stored as its address plus one. */
static uint32_t intern(const struct gm_header *header)
{
	uint32_t ids[sizeof(header->crash_pcs) / sizeof(header->crash_pcs[0])];
	uint32_t count = header->crash_frames;

	for (uint32_t i = 0; i < count; i++) {
		struct gm_frame frame = { 0 };

		frame.module = gm_modules_lookup(header->crash_pcs[i], &frame.offset);
		if (i == 0)
			frame.offset++;
		ids[i] = gm_intern_frame(&frame);
	}
	return gm_intern_stack(ids, count, header->crash_flags & (GM_UNWIND_TRUNCATED | GM_UNWIND_MORE));
}

void gm_crash_describe(void)
{
	struct gm_header *header = gm_recorder_header();

	if (!header || !__atomic_load_n(&header->crash_signal, __ATOMIC_ACQUIRE) ||
	    header->crash_frames)
		return;
	walk(header);
	/* The thread that crashed may hold the locks for interning. */
	if (!gm_recorder_can_intern(LOCK_NS))
		return;
	header->crash_stack = intern(header);
}

void gm_crash_naming(const char *path, uint64_t inode)
{
	struct gm_header *header = gm_recorder_header();
	size_t length = strnlen(path, sizeof(header->last_snapshot) - 1);

	__atomic_store_n(&header->crash_written, 0, __ATOMIC_RELEASE);
	memcpy(header->last_snapshot, path, length);
	memset(header->last_snapshot + length, 0, sizeof(header->last_snapshot) - length);
	__atomic_store_n(&header->crash_written, GM_CRASH_WRITTEN(inode), __ATOMIC_RELEASE);
}

void gm_crash_written(void)
{
	if (!strstr(gm_state.journal, "/" GM_RUN_ROOM))
		gm_recorder_unlink();
}

void gm_crash_not_worth_it(void)
{
	gm_recorder_unlink();
}

/* ---- a journal that somebody truncates ----------------------------------------------------------
 *
 * The kernel raises SIGBUS for an access behind the end of a mapped file, and the owner of a file can
 * always truncate it. Our handler remembers the handler (or default) that it found at the first CUDA call.
 * For a fault within the journal's mapping it replaces the mapping by empty memory (gm_recorder_lose),
 * turns the cache off, and returns. It passes every other SIGBUS to the remembered handler, with that
 * handler's mask and flags.
 *
 * A truncated journal still kills a program that ignores SIGBUS or has a one-shot handler (we change
 * neither), that installs its own handler later, or whose accessing thread blocks SIGBUS.
 */

static struct sigaction before_us;

static void pass_on(int number, siginfo_t *info, void *context)
{
	if (before_us.sa_flags & SA_SIGINFO)
		before_us.sa_sigaction(number, info, context);
	else if (before_us.sa_handler != SIG_DFL)
		before_us.sa_handler(number);
	else
		by_default(number, info, true);
}

static void on_bus(int number, siginfo_t *info, void *context)
{
	int kept = errno;
	bool ours = info->si_code == BUS_ADRERR && gm_state_is_mine() &&
		    gm_recorder_lose(info->si_addr);

	if (ours)
		gm_cache_lost();
	errno = kept;
	if (!ours)
		pass_on(number, info, context);
}

void gm_bus_start(void)
{
	struct sigaction action;
	bool plain;

	if (!gm_state.journal[0] || sigaction(SIGBUS, NULL, &action))
		return;
	plain = !(action.sa_flags & SA_SIGINFO);
	if (!plain && action.sa_sigaction == on_bus)	/* inherited by a forked child that starts the library */
		return;
	before_us = action;
	if ((plain && before_us.sa_handler == SIG_IGN) || before_us.sa_flags & (int)SA_RESETHAND)
		return;
	action.sa_sigaction = on_bus;
	action.sa_flags |= SA_SIGINFO;
	if (plain && before_us.sa_handler == SIG_DFL)
		action.sa_flags |= SA_RESTART | SA_ONSTACK;
	sigaction(SIGBUS, &action, NULL);
}
