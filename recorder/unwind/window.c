/*
 * window.c - the part of a stack that is known to be readable (see window.h).
 *
 * Owns the per-thread bounds of the thread's own stack. Any context.
 */
#include "recorder/unwind/window.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#include "recorder/journal/probe.h"

#define PAGE_BYTES 4096u
#define STACK_BYTES_MAX (16u << 20)	/* the most that is probed to learn a thread's own stack */
#define LEARN_TRIES 8			/* attempts, because a thread may run on fibres only */
#define WALK_PROBES 256			/* pages of other stacks that one walk probes */

/* [lo, hi) of this thread's own stack. hi is set first and lo only falls, so that a signal handler finds both
 * valid at any time. Both 0: not learnt yet. */
static __thread uintptr_t own_lo, own_hi;
static __thread uint8_t own_tries;

static uintptr_t thread_pointer(void)
{
	uintptr_t tp;

#if defined(__x86_64__)
	__asm__("movq %%fs:0, %0" : "=r"(tp));
#else
	__asm__("mrs %0, tpidr_el0" : "=r"(tp));
#endif
	return tp;
}

static uintptr_t first_thread_top(void)
{
	static _Atomic(uintptr_t) top;
	uintptr_t known = atomic_load_explicit(&top, memory_order_relaxed);

	if (!known) {
		int saved = errno;	/* getauxval sets errno when the entry is missing */

		known = getauxval(AT_EXECFN) & ~(uintptr_t)7;
		errno = saved;
		atomic_store_explicit(&top, known, memory_order_relaxed);
	}
	return known;
}

/* Is every page of [@lo, @hi) readable? */
static bool all_readable(uintptr_t lo, uintptr_t hi)
{
	for (uintptr_t at = lo; at < hi; at += PAGE_BYTES)
		if (!gm_probe_word(at))
			return false;
	return true;
}

/* Is @sp on this thread's own stack? If so, learn its bounds or lower them. */
static bool own_stack(uintptr_t sp)
{
	uintptr_t page = sp & ~(uintptr_t)(PAGE_BYTES - 1);
	uintptr_t top;

	if (sp >= own_lo && sp < own_hi)
		return true;
	if (own_hi) {
		top = own_lo;
	} else {
		uintptr_t first = first_thread_top();

		top = thread_pointer() & ~(uintptr_t)7;
		if (top <= sp || (first > sp && first < top))
			top = first;
	}
	if (top <= sp || top - sp > STACK_BYTES_MAX || own_tries >= LEARN_TRIES)
		return false;
	if (!all_readable(page, top)) {
		own_tries++;
		return false;
	}
	if (!own_hi) {
		own_lo = top;
		atomic_signal_fence(memory_order_seq_cst);
		own_hi = top;
		atomic_signal_fence(memory_order_seq_cst);
	}
	own_lo = page;
	return true;
}

void gm_window_open(struct gm_window *window, uintptr_t sp)
{
	window->probes = 0;
	window->lo = window->hi = 0;
	if (own_stack(sp)) {
		window->lo = own_lo;
		window->hi = own_hi;
	}
}

bool gm_window_move(struct gm_window *window, uintptr_t address)
{
	uintptr_t page = address & ~(uintptr_t)(PAGE_BYTES - 1);

	if (address % 8 || address < PAGE_BYTES || address > UINTPTR_MAX - 2 * PAGE_BYTES)
		return false;
	if (gm_window_holds(window, address))
		return true;
	if (address >= own_lo && address < own_hi) {	/* back from an alternate stack */
		window->lo = own_lo;
		window->hi = own_hi;
		return true;
	}
	if (window->probes++ >= WALK_PROBES || !gm_probe_word(address))
		return false;
	if (page == window->hi) {
		window->hi += PAGE_BYTES;
	} else {
		window->lo = page;
		window->hi = page + PAGE_BYTES;
	}
	return true;
}

__attribute__((no_sanitize_address, no_sanitize_thread))
bool gm_window_read(struct gm_window *window, uintptr_t address, uintptr_t *ret_word)
{
	if (address % 8 || (!gm_window_holds(window, address) && !gm_window_move(window, address)))
		return false;
	*ret_word = *(const volatile uintptr_t *)address;
	return true;
}
