/*
 * state.c - the state of the library in this process: the word, its pages, the guard (see state.h).
 *
 * A start marks the pages first, while the word is still 0, so that a child forked at any moment finds
 * zeroes. Then one thread sets the word to STARTING and starts.
 *
 * Thread context: any. Signal context: gm_state_is_mine.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/process/state.h"

#define WAIT_NS UINT64_C(5000000000)	/* wait for another thread that starts the library */
#define SLICE_NS UINT64_C(100000000)

struct gm_state gm_state;		/* .bss, whole pages */
__thread uintptr_t gm_inside;

/* 1: this process or a parent has started the library in this address space. Not on the wiped pages. */
static _Atomic(uint32_t) started_once;

bool gm_state_is_mine(void)
{
	uint32_t word = gm_state_word();

	return (word == GM_STATE_RUNNING || word == GM_STATE_RUNNING_CHECKED) &&
	       gm_state.pid == getpid();
}

static bool move_word(uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n((uint32_t *)&gm_state.word, &from, to, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void futex_word(int operation, uint32_t value, const struct timespec *limit)
{
	syscall(SYS_futex, (uint32_t *)&gm_state.word, operation | FUTEX_PRIVATE_FLAG, value,
		limit, NULL, 0);
}

/* Wait for another thread that starts the library. If it never finishes (it was cancelled), the library stays
 * off. */
static void wait_for_start(void)
{
	const struct timespec slice = { 0, (long)SLICE_NS };
	uint64_t at = gm_now_ns(), waited = 0;

	while (gm_state_word() == GM_STATE_STARTING) {
		futex_word(FUTEX_WAIT, GM_STATE_STARTING, &slice);
		waited += gm_passed_ns(&at, SLICE_NS);
		if (waited > WAIT_NS)
			move_word(GM_STATE_STARTING, GM_STATE_OFF);
	}
}

/*
 * A start may need more stack than a thread of the program has left, so it runs on a stack of its own, which is
 * unmapped afterwards. makecontext sets the stack up, because it knows the needs of the C library and the
 * processor (shadow stacks, too). The start uses the caller's stack if there is no memory, and under sanitizers,
 * because these need a report of every switch. One thread at a time, with cancellation off.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define STACK_BYTES (256u << 10)	/* pages that are never touched cost nothing */
#define GUARD_BYTES (64u << 10)		/* at the lower end: one page of the largest size */

static struct {
	ucontext_t there, back;
	int (*fn)(void);
	int result;
} call;

static void enter_wide_stack(void)
{
	call.result = call.fn();
}

static int on_wide_stack(int (*fn)(void))
{
	char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return fn();
	mprotect(stack, GUARD_BYTES, PROT_NONE);
	if (getcontext(&call.there)) {
		munmap(stack, GUARD_BYTES + STACK_BYTES);
		return fn();
	}
	call.there.uc_stack.ss_sp = stack + GUARD_BYTES;
	call.there.uc_stack.ss_size = STACK_BYTES;
	call.there.uc_link = &call.back;
	call.fn = fn;
	makecontext(&call.there, enter_wide_stack, 0);
	if (swapcontext(&call.back, &call.there))
		call.result = fn();
	munmap(stack, GUARD_BYTES + STACK_BYTES);
	return call.result;
}

#else

static int on_wide_stack(int (*fn)(void))
{
	return fn();
}

#endif

/* Run gm_init with cancellation off. If the driver calls our hooks meanwhile, these calls count as inside this hook,
 * although they run on another stack. */
static int init(void)
{
	uintptr_t inside = gm_inside;
	int cancel = gm_cancel_off(), r;

	gm_inside = UINTPTR_MAX;
	r = on_wide_stack(gm_init);
	gm_inside = inside;
	gm_cancel_back(cancel);
	return r;
}

/* Start the library: this thread has set the word to STARTING. */
static bool start(bool wiped)
{
	uint32_t to = GM_STATE_OFF;

	gm_set_release(&started_once, 1);
	gm_state.pid = getpid();
	if (init() == 0)
		to = wiped ? GM_STATE_RUNNING : GM_STATE_RUNNING_CHECKED;
	move_word(GM_STATE_STARTING, to);
	futex_word(FUTEX_WAKE, INT32_MAX, NULL);
	return gm_state_word() == to && to != GM_STATE_OFF;
}

/* Is this a child of a process that has used CUDA? The driver refuses every call of such a child for ever, so the
 * library stays off there. (It must also create no thread there, because a child of a raw clone may rely on having only
 * one.) In a child of a process that has not used CUDA, @started_once is 0. */
static bool is_child_of_started(void)
{
	return gm_get_acquire(&started_once);
}

bool gm_state_start(void)
{
	bool wiped = true;

	for (;;) {
		switch (gm_state_word()) {
		case GM_STATE_RUNNING:
			return true;
		case GM_STATE_RUNNING_CHECKED:
			return gm_state.pid == getpid();
		case GM_STATE_STARTING:
			wait_for_start();
			break;
		case GM_STATE_NEW:
			if (is_child_of_started())
				return false;
			wiped = madvise(&gm_state, sizeof(gm_state), MADV_WIPEONFORK) == 0;
			if (move_word(GM_STATE_NEW, GM_STATE_STARTING))
				return start(wiped);
			break;
		default:
			return false;
		}
	}
}
