/*
 * unwind.h - the call stack of the calling thread, as return addresses, innermost first.
 *
 * This is our own unwinder over the programs' .eh_frame tables. recorder/modules/object.h finds the object
 * of an address. A frame's rule is computed once and kept in a fixed, lossy, lock-free table
 * (unwind_rules.h). The walk passes through signal frames, alternate stacks and fibres. When no object can
 * be looked up at all, and on aarch64 through code without tables, the walk follows frame records.
 *
 * Takes no lock, calls no malloc and of the loader only _dl_find_object, proves every address readable
 * before reading it, and keeps errno. A stack that cannot be followed to its end (no tables, bad tables, an
 * unreadable word) is cut there and marked.
 *
 * Thread context: any. Signal context: any; a handler may interrupt an unwind and unwind itself.
 * Stack: under 512 bytes; at a new frame under 2.5 KiB (aarch64: 3 KiB).
 */
#ifndef GM_RECORDER_UNWIND_H
#define GM_RECORDER_UNWIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Where an unwind starts. Registers by their DWARF numbers. */
#if defined(__aarch64__)
#define GM_REG_COUNT 33			/* x0..x30 sp pc */
#define GM_REG_FP 29
#define GM_REG_SP 31
#define GM_REG_PC 32
#else					/* x86-64 */
#define GM_REG_COUNT 17			/* rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip */
#define GM_REG_FP 6
#define GM_REG_SP 7
#define GM_REG_PC 16
#endif

struct gm_regs {
	uintptr_t r[GM_REG_COUNT];	/* always set: callee-saved registers, sp and pc */
	bool has_all;			/* all others are set, too: from a ucontext_t */
};

/* Does gm_regs_capture set @reg? It sets the callee-saved registers, sp and pc. */
static inline bool gm_reg_is_kept(unsigned int reg)
{
#if defined(__aarch64__)
	return reg >= 19;
#else
	return reg == 3 || reg == 6 || reg == 7 || reg >= 12;
#endif
}

/* Capture the present registers. A walk from them begins with the calling function, which must not have
 * returned when gm_unwind runs. */
static inline __attribute__((always_inline)) void gm_regs_capture(struct gm_regs *regs)
{
	regs->has_all = false;
#if defined(__x86_64__)
	__asm__ volatile(
		"movq %%rbx, 3*8(%0)\n\tmovq %%rbp, 6*8(%0)\n\tmovq %%rsp, 7*8(%0)\n\t"
		"movq %%r12, 12*8(%0)\n\tmovq %%r13, 13*8(%0)\n\t"
		"movq %%r14, 14*8(%0)\n\tmovq %%r15, 15*8(%0)\n\t"
		"leaq 0f(%%rip), %%rax\n0:\tmovq %%rax, 16*8(%0)"
		: : "r"(regs->r) : "rax", "memory");
#else
	__asm__ volatile(
		"stp x19, x20, [%0, #19*8]\n\tstp x21, x22, [%0, #21*8]\n\t"
		"stp x23, x24, [%0, #23*8]\n\tstp x25, x26, [%0, #25*8]\n\t"
		"stp x27, x28, [%0, #27*8]\n\tstp x29, x30, [%0, #29*8]\n\t"
		"mov x9, sp\n\tadr x10, 0f\n0:\tstp x9, x10, [%0, #31*8]"
		: : "r"(regs->r) : "x9", "x10", "memory");
#endif
}

/* Copy the registers from the third argument of a signal handler (ucontext_t *). */
void gm_regs_from_ucontext(struct gm_regs *ret_regs, const void *ucontext);

enum gm_unwind_flag {
	GM_UNWIND_TRUNCATED = 1,	/* the stack has more frames, but could not be followed */
	GM_UNWIND_MORE = 2,		/* the stack has more than @max frames */
	GM_UNWIND_SIGNAL = 4,		/* the stack runs through a signal handler */
};

/* Walk from @from. @ret_pcs[0] is the pc of @from. The others are return addresses, except that the pc
 * after a signal frame is the interrupted instruction itself. @ret_flags (may be NULL): enum
 * gm_unwind_flag. Returns the number of frames, which is 0 only when @max is 0. */
int gm_unwind(const struct gm_regs *from, uintptr_t *ret_pcs, int max, unsigned int *ret_flags);

/* As gm_unwind, but slower, and with the end of each frame: the frame of @ret_pcs[i] lies in
 * [@ret_ends[i - 1], @ret_ends[i]); the first frame begins at its sp. The end of the outermost frame is
 * UINTPTR_MAX. */
int gm_unwind_ends(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		   unsigned int *ret_flags);

/* Choose the unwinder: our own, as described above, or only the chain of frame records. These are the words
 * of option `unwinder`. */
enum gm_unwinder { GM_UNWINDER_AUTO, GM_UNWINDER_FRAMES };
void gm_unwind_choose(enum gm_unwinder which);

/* Is our own unwinder in use (GM_UNWINDER_AUTO)? */
extern _Atomic(uint32_t) gm_unwind_chosen __attribute__((visibility("hidden")));
static inline bool gm_unwind_is_own(void)
{
	return atomic_load_explicit(&gm_unwind_chosen, memory_order_relaxed) == GM_UNWINDER_AUTO;
}

/* Forget every rule, because objects were or will be unloaded. Called by gm_modules_generation_bump. */
void gm_unwind_flush(void);

/* For tests and benchmarks: how many rules were computed since the start. */
extern _Atomic(uint64_t) gm_unwind_misses;

#endif
