/*
 * unwind.c - the call stack of the calling thread (see unwind.h).
 *
 * Owns the choice of an unwinder, and both walks. The walk by the tables takes a rule from unwind_rules.h, or from
 * unwind_step.h when the rule is not yet known. It follows only pc, sp and the frame pointer. At a frame that needs
 * another register (GM_RULE_FULL), such as a signal's, it starts again from the beginning and follows all registers up
 * to that frame. Any context.
 */
#include "recorder/unwind/unwind.h"

#include <stddef.h>
#include <ucontext.h>

#include "recorder/journal/atomic.h"
#include "recorder/modules/object.h"
#include "recorder/unwind/unwind_rules.h"
#include "recorder/unwind/unwind_step.h"
#include "recorder/unwind/window.h"

_Atomic(uint64_t) gm_unwind_misses;

void gm_unwind_flush(void)
{
	gm_object_flush();
	gm_rule_flush();
}

/* ---- the chain of frame records -----------------------------------------------------------------
 *
 * Each frame pointer points to {caller's frame pointer, return address}. aarch64: gcc and clang write these
 * records by default; code compiled without them is missing from the stack, or ends it. x86-64: only code
 * compiled with -fno-omit-frame-pointer has them; a record whose return address does not follow a call
 * ends the stack.
 */

/* May @pc be a return address? aarch64: always, because the ABI prescribes the chain. x86-64: only after a
 * call, because the register may hold anything in code without frame pointers. */
static bool is_likely(uintptr_t pc)
{
	return GM_CFI_RA != GM_CFI_PC || !pc || gm_step_is_after_call(pc);
}

static int walk_frames(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		       unsigned int *ret_flags)
{
	uintptr_t pc = from->r[GM_REG_PC], sp = from->r[GM_REG_SP], fp = from->r[GM_REG_FP];
	struct gm_window window;
	unsigned int flags = 0;
	int count = 0;

	gm_window_open(&window, sp);
	while (pc || !count) {
		uintptr_t record = fp;

		if (count == max) {
			flags |= GM_UNWIND_MORE;
			break;
		}
		if (ret_ends)
			ret_ends[count] = UINTPTR_MAX;
		ret_pcs[count++] = pc;
		if (!record)
			break;
		/* Records lie ever higher. The same record again would be a loop. */
		if (record < sp || !gm_window_read(&window, record, &fp) ||
		    !gm_window_read(&window, record + 8, &pc) || !is_likely(gm_step_strip(pc))) {
			flags |= GM_UNWIND_TRUNCATED;
			break;
		}
		pc = gm_step_strip(pc);
		sp = record + 16;
		/* A function's locals lie between its own record and its caller's. */
		if (ret_ends && fp)
			ret_ends[count - 1] = fp;
	}
	*ret_flags = flags;
	return count;
}

/* ---- by the tables ------------------------------------------------------------------------------ */

void gm_regs_from_ucontext(struct gm_regs *ret_regs, const void *ucontext)
{
	const ucontext_t *uc = ucontext;

#if defined(__aarch64__)
	for (unsigned int i = 0; i < 31; i++)
		ret_regs->r[i] = (uintptr_t)uc->uc_mcontext.regs[i];
	ret_regs->r[GM_REG_SP] = (uintptr_t)uc->uc_mcontext.sp;
	ret_regs->r[GM_REG_PC] = (uintptr_t)uc->uc_mcontext.pc;
#else
	for (unsigned int i = 0; i < GM_REG_COUNT; i++)
		ret_regs->r[gm_step_gregs[i]] = (uintptr_t)uc->uc_mcontext.gregs[i];
#endif
	ret_regs->has_all = true;
}

/* The state of our own walk. */
struct walk {
	uintptr_t pc, sp, fp;
	uintptr_t lr;			/* aarch64: x30, while @exact */
	bool exact;			/* @pc is an instruction, not a return address */
	bool by_records;		/* from here on only frame records are followed */
	int count;			/* frames returned so far */
	unsigned int flags;
	struct gm_window window;
};

/* The outcome of step_rare. NEXT_FRAME: the frame was undone. LAST_FRAME: it was the outermost one, or @flags
 * say that the stack is cut there. FULL_FRAME: it needs all registers. */
enum next { NEXT_FRAME, LAST_FRAME, FULL_FRAME };

static bool step_realigned(struct walk *w, uint64_t rule)
{
	uintptr_t at = w->fp + (uintptr_t)gm_rule_offset(rule);
	uintptr_t saved = w->fp + (uintptr_t)(8 * (intptr_t)gm_rule_save(rule));
	uintptr_t cfa;

	if (!gm_window_read(&w->window, at, &cfa) || cfa <= w->sp ||
	    !gm_window_read(&w->window, saved, &w->fp) ||
	    !gm_window_read(&w->window, cfa - 8, &w->pc))
		return false;
	w->sp = cfa;
	w->exact = false;
	return true;
}

/* Undo a plain frame whose words may lie outside the window. */
static bool step_plain(struct walk *w, uint64_t rule)
{
	uintptr_t base = gm_rule_kind(rule) == GM_RULE_FP ? w->fp : w->sp;
	uintptr_t cfa = base + (uintptr_t)gm_rule_offset(rule);
	uintptr_t saved = cfa - 8 * (uintptr_t)gm_rule_save(rule);

#if defined(__aarch64__)
	if (saved == cfa) {
		if (!w->exact || cfa < w->sp)
			return false;
		w->pc = w->lr;
	} else if (cfa <= w->sp || !gm_window_read(&w->window, saved, &w->fp) ||
		   !gm_window_read(&w->window, saved + 8, &w->pc)) {
		return false;
	}
	w->pc = gm_step_strip(w->pc);
#else
	if (cfa <= w->sp || (saved != cfa && !gm_window_read(&w->window, saved, &w->fp)) ||
	    !gm_window_read(&w->window, cfa - 8, &w->pc))
		return false;
#endif
	w->sp = cfa;
	w->exact = false;
	return true;
}

/* Undo a frame without a rule for @w->pc. At a fault, the program may have called an address that holds no code; the
 * return address is then where the call put it. On aarch64 the same holds in the stubs between objects. */
static bool step_unknown(struct walk *w, bool is_fault)
{
	bool is_call = is_fault && w->count == 1;
	uintptr_t caller;

#if defined(__aarch64__)
	struct gm_object object;

	caller = gm_step_strip(w->lr);
	if (!w->exact || (!is_call && !gm_object_find(w->pc, &object)) || !gm_step_is_after_call(caller))
		return false;
#else
	if (!is_call || !gm_window_read(&w->window, w->sp, &caller) || !gm_step_is_after_call(caller))
		return false;
	w->sp += 8;
#endif
	w->pc = caller;
	w->exact = false;
	return true;
}

/* Undo a frame without a rule by its frame record, and all later frames as well: the end of the frame is not known, so
 * the tables of its callers cannot be used. aarch64 only, whose ABI prescribes records in run-time code, too. */
static bool step_record(struct walk *w)
{
	uintptr_t record = w->fp;

	if (GM_CFI_RA == GM_CFI_PC)
		return false;
	w->pc = 0;
	if (!record)
		return w->by_records;
	if (record < w->sp || !gm_window_read(&w->window, record, &w->fp) ||
	    !gm_window_read(&w->window, record + 8, &w->pc))
		return false;
	w->pc = gm_step_strip(w->pc);
	if (!w->by_records && !gm_step_is_after_call(w->pc))
		return false;
	w->sp = record + 16;
	w->by_records = true;
	w->exact = false;
	return true;
}

/* Undo a frame by @rule. @is_fault: the walk began with the registers of a signal. */
static enum next step_rare(struct walk *w, uint64_t rule, bool is_fault)
{
	bool stepped = false;

	switch (gm_rule_kind(rule)) {
	case GM_RULE_END:
		return LAST_FRAME;
	case GM_RULE_FULL:
		return FULL_FRAME;
	case GM_RULE_SP:
	case GM_RULE_FP:
		stepped = step_plain(w, rule);
		break;
	case GM_RULE_DRAP:
		stepped = step_realigned(w, rule);
		break;
	case GM_RULE_NONE:
		stepped = step_unknown(w, is_fault) || step_record(w);
	}
	if (stepped && w->pc)
		return NEXT_FRAME;
	if (!stepped)
		w->flags |= GM_UNWIND_TRUNCATED;
	return LAST_FRAME;
}

/* Walk plain frames whose rules are known and whose words lie in the window, up to @max frames. Returns the rule of
 * the frame that stopped the walk; its pc is already in @pcs. The state stays in registers, because this loop is
 * the cost of a stack. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static uint64_t walk_plain(struct walk *w, uintptr_t *pcs, int max, uint32_t generation)
{
	const uint64_t generation_bits = gm_rule_wanted(0, generation);
	const uintptr_t lo = w->window.lo, hi = w->window.hi;
	uintptr_t pc = w->pc, sp = w->sp, fp = w->fp;
	uintptr_t address = pc - !w->exact;
	int count = w->count;
	uint64_t entry;

	for (;;) {
		uintptr_t cfa, save, next;

		pcs[count++] = pc;
		entry = gm_rule_find(address, generation_bits);
		if (__builtin_expect(!gm_entry_is_plain(entry), 0))
			break;
		cfa = (gm_entry_is_fp(entry) ? fp : sp) + gm_entry_offset(entry);
		save = gm_entry_save(entry);
		if (__builtin_expect(cfa <= sp || cfa > hi || (cfa & 7) || cfa - lo < save + 8, 0))
			break;
#if defined(__aarch64__)
		if (__builtin_expect(save == 0, 0))
			break;		/* the return address is in x30, or nowhere */
		next = gm_step_strip(*(const uintptr_t *)(cfa - save + 8));
#else
		next = *(const uintptr_t *)(cfa - 8);
#endif
		if (__builtin_expect(count == max || next == 0, 0))
			break;
		if (save)
			fp = *(const uintptr_t *)(cfa - save);
		pc = next;
		address = pc - 1;
		sp = cfa;
	}
	w->exact = w->exact && count == w->count + 1;
	w->pc = pc;
	w->sp = sp;
	w->fp = fp;
	w->count = count;
	return gm_entry_rule(entry);
}

/* Walk until the stack ends or has @max frames. Returns true when a frame needs all registers. */
static bool walk_cached(struct walk *w, uintptr_t *pcs, int max, bool is_fault)
{
	uint32_t generation = gm_rule_generation();

	while ((w->pc || !w->count) && w->count < max) {
		uint64_t rule = 0;
		enum next next;

		if (gm_unlikely(w->by_records))
			pcs[w->count++] = w->pc;
		else
			rule = walk_plain(w, pcs, max, generation);
		if (!rule && !w->by_records) {
			atomic_fetch_add_explicit(&gm_unwind_misses, 1, memory_order_relaxed);
			rule = gm_step_learn(w->pc - !w->exact, generation);
		}
		next = step_rare(w, rule, is_fault);
		if (next != NEXT_FRAME)
			return next == FULL_FRAME;
	}
	if (w->pc)
		w->flags |= GM_UNWIND_MORE;
	return false;
}

static void walk_begin(struct walk *w, const struct gm_regs *from)
{
	w->pc = from->r[GM_REG_PC];
	w->sp = from->r[GM_REG_SP];
	w->fp = from->r[GM_REG_FP];
	w->lr = from->r[GM_CFI_RA];
	w->exact = true;
	w->by_records = false;
	w->count = 0;
	w->flags = 0;
	gm_window_open(&w->window, w->sp);
}

/* Walk the first @frames frames with all registers. @w then stands before the next frame. Returns whether
 * there is a next frame. */
static bool walk_full(struct walk *w, const struct gm_regs *from, uintptr_t *pcs, int max,
		      int frames)
{
	struct gm_step_state state = { .exact = true };

	for (unsigned int i = 0; i < GM_REG_COUNT; i++)
		if (from->has_all || gm_reg_is_kept(i))
			state.regs[i] = from->r[i];
	walk_begin(w, from);
	while (w->count < frames) {
		int more;

		if (!state.regs[GM_CFI_PC])
			return false;
		if (w->count == max) {
			w->flags |= GM_UNWIND_MORE;
			return false;
		}
		pcs[w->count++] = state.regs[GM_CFI_PC];
		more = gm_step_full(&state, &w->window);
		if (more < 0)
			w->flags |= GM_UNWIND_TRUNCATED;
		if (more <= 0)
			return false;
		if (state.exact)
			w->flags |= GM_UNWIND_SIGNAL;
	}
	w->pc = state.regs[GM_CFI_PC];
	w->lr = state.regs[GM_CFI_RA];
	w->sp = state.regs[GM_CFI_SP];
	w->fp = state.regs[GM_CFI_FP];
	w->exact = state.exact;
	return true;
}

/* As gm_unwind. With @ret_ends it walks frame by frame, because sp is then the end of the frame just undone. */
static int walk_own(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		    unsigned int *ret_flags)
{
	unsigned int flags = 0;
	bool more = max > 0;
	struct walk w;

	walk_begin(&w, from);
	if (!ret_ends) {
		if (walk_cached(&w, ret_pcs, max, from->has_all) &&
		    walk_full(&w, from, ret_pcs, max, w.count) &&
		    walk_cached(&w, ret_pcs, max, false))
			/* At the second such frame, follow all registers to the end. */
			walk_full(&w, from, ret_pcs, max, INT32_MAX);
		*ret_flags = w.flags;
		return w.count;
	}
	while (more && w.count < max) {
		int at = w.count;

		if (walk_cached(&w, ret_pcs, at + 1, from->has_all))
			more = walk_full(&w, from, ret_pcs, max, at + 1);
		else
			more = w.flags & GM_UNWIND_MORE;	/* only our limit of one frame ended the walk */
		flags |= w.flags & ~(unsigned int)GM_UNWIND_MORE;
		w.flags = 0;
		ret_ends[at] = more ? w.sp : UINTPTR_MAX;
	}
	*ret_flags = flags | (more ? GM_UNWIND_MORE : 0);
	return w.count;
}

/* ---- the choice of an unwinder ----------------------------------------------------------------- */

_Atomic(uint32_t) gm_unwind_chosen;	/* enum gm_unwinder */

void gm_unwind_choose(enum gm_unwinder which)
{
	atomic_store_explicit(&gm_unwind_chosen, (uint32_t)which, memory_order_relaxed);
}

int gm_unwind_ends(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		   unsigned int *ret_flags)
{
	unsigned int flags = 0;
	int count;

	if (gm_likely(gm_unwind_is_own()))
		count = walk_own(from, ret_pcs, ret_ends, max, &flags);
	else
		count = walk_frames(from, ret_pcs, ret_ends, max, &flags);
	/* Follow frame records only if no object could be looked up at all. Otherwise they lead no further than
	 * the tables. */
	if (gm_unlikely(flags & GM_UNWIND_TRUNCATED) && count == 1 && max > 1 && !gm_object_is_exact())
		count = walk_frames(from, ret_pcs, ret_ends, max, &flags);
	if (ret_flags)
		*ret_flags = flags;
	return count;
}

int gm_unwind(const struct gm_regs *from, uintptr_t *ret_pcs, int max, unsigned int *ret_flags)
{
	return gm_unwind_ends(from, ret_pcs, NULL, max, ret_flags);
}
