/*
 * unwind_step.c - undo one frame by its tables (see unwind_step.h).
 */
#include "recorder/unwind/unwind_step.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "recorder/modules/object.h"
#include "recorder/journal/probe.h"
#include "recorder/unwind/unwind_rules.h"

#if defined(__x86_64__)
const uint8_t gm_step_gregs[GM_CFI_REGS] = {
	8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, GM_CFI_RA
};
#endif

static size_t read_table(void *ctx, void *dst, uintptr_t address, size_t bytes)
{
	(void)ctx;
	return gm_probe_copy(dst, address, bytes);
}

/* Find the rules in the tables of the object that holds @address. The tables are copied, never read in place: @address
 * may come from a broken stack, and another thread may be unloading its object. */
static int find_frame(uintptr_t address, struct gm_cfi_source *ret_source,
		      struct gm_cfi_frame *ret_frame)
{
	struct gm_object object;

	if (!gm_object_find(address, &object) || !object.eh_frame_hdr)
		return -ENOENT;
	ret_source->read = read_table;
	ret_source->ctx = NULL;
	ret_source->start = object.start;
	ret_source->end = object.end;
	return gm_cfi_find(ret_source, object.eh_frame_hdr, address, ret_frame);
}

static bool fits(int64_t value, int64_t low, int64_t high)
{
	return value >= low && value <= high;
}

#if defined(__x86_64__)

/*
 * Expressions are recognised by their result, not by their operations. They are evaluated with made-up values
 * in the registers, and with a load that notes its address and returns a made-up word.
 */
#define MADE_UP_RBP UINT64_C(0x100000000)
#define MADE_UP_RSP UINT64_C(0x200000000)
#define MADE_UP_CFA UINT64_C(0x300000000)
#define MADE_UP_WORD UINT64_C(0x400000000)
#define MADE_UP_OTHER UINT64_C(0x7000000000)

struct noted_load {
	uintptr_t address;
	unsigned int count;
};

static bool note_load(void *ctx, uintptr_t address, uintptr_t *ret_word)
{
	struct noted_load *noted = ctx;

	noted->address = address;
	noted->count++;
	*ret_word = MADE_UP_WORD;
	return true;
}

static bool evaluates_to(const struct gm_cfi_source *source, int32_t expression, bool is_rule,
			 uintptr_t *ret_value, struct noted_load *ret_noted)
{
	uintptr_t regs[GM_CFI_REGS];
	const uintptr_t cfa = MADE_UP_CFA;

	for (unsigned int i = 0; i < GM_CFI_REGS; i++)
		regs[i] = MADE_UP_OTHER + i * UINT64_C(0x100000000);
	regs[GM_CFI_FP] = MADE_UP_RBP;
	regs[GM_CFI_SP] = MADE_UP_RSP;
	ret_noted->address = 0;
	ret_noted->count = 0;
	return gm_cfi_evaluate(source, gm_cfi_expression(source, expression), regs,
			       is_rule ? &cfa : NULL, note_load, ret_noted, ret_value) == 0;
}

/* Make the rule of a frame that is realigned in its prologue: the CFA was stored next to rbp. */
static uint64_t pack_realigned(const struct gm_cfi_source *source, const struct gm_cfi_row *row)
{
	struct noted_load noted;
	uintptr_t cfa, saved;
	int64_t offset, save;

	if (!evaluates_to(source, row->cfa_offset, false, &cfa, &noted) || noted.count != 1 ||
	    cfa != MADE_UP_WORD || row->how[GM_CFI_FP] != GM_CFI_EXPRESSION)
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	offset = (int64_t)(noted.address - MADE_UP_RBP);
	if (!evaluates_to(source, row->value[GM_CFI_FP], true, &saved, &noted) || noted.count)
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	save = (int64_t)(saved - MADE_UP_RBP);
	if (!fits(offset, -(1 << 20), 1 << 20) || save % 8 || !fits(save / 8, -2048, 2047))
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	return gm_rule_make(GM_RULE_DRAP, (int32_t)offset, (int32_t)(save / 8));
}

static uint64_t pack(const struct gm_cfi_source *source, const struct gm_cfi_frame *frame)
{
	const struct gm_cfi_row *row = &frame->row;
	int64_t save = 0;

	if (row->how[GM_CFI_RA] == GM_CFI_UNDEFINED)
		return gm_rule_make(GM_RULE_END, 0, 0);
	if (frame->is_signal || row->how[GM_CFI_RA] != GM_CFI_OFFSET ||
	    row->value[GM_CFI_RA] != -8 || row->how[GM_CFI_SP] != GM_CFI_SAME)
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	if (row->cfa_is_expression)
		return pack_realigned(source, row);
	if (row->how[GM_CFI_FP] == GM_CFI_OFFSET) {
		save = row->value[GM_CFI_FP];
		if (save % 8 || !fits(-(save / 8), 1, 2047))
			return gm_rule_make(GM_RULE_FULL, 0, 0);
	} else if (row->how[GM_CFI_FP] != GM_CFI_SAME) {
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	}
	if ((row->cfa_register != GM_CFI_SP && row->cfa_register != GM_CFI_FP) ||
	    !fits(row->cfa_offset, 8, INT32_MAX))
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	return gm_rule_make(row->cfa_register == GM_CFI_SP ? GM_RULE_SP : GM_RULE_FP,
			    (int32_t)row->cfa_offset, (int32_t)(-save / 8));
}

bool gm_step_is_after_call(uintptr_t pc)
{
	static const uint8_t indirect[] = { 2, 3, 4, 6, 7 };	/* lengths of call r/m64 */
	struct gm_object object;
	uint8_t code[7];

	if (!gm_object_find(pc, &object) || gm_probe_copy(code, pc - 7, 7) != 7)
		return false;
	if (code[2] == 0xe8)			/* call rel32 */
		return true;
	for (unsigned int i = 0; i < sizeof(indirect); i++)
		if (code[7 - indirect[i]] == 0xff && (code[8 - indirect[i]] >> 3 & 7) == 2)
			return true;
	return false;
}

static bool is_trampoline(uintptr_t address)
{
	(void)address;
	return false;			/* x86-64: the trampoline has tables */
}

static int undo_signal(struct gm_step_state *state, struct gm_window *window)
{
	(void)state, (void)window;
	return -EBADMSG;
}

#else	/* aarch64 */

/* Make the rule if the frame record {fp, return address} lies in one place, or if neither was saved. */
static uint64_t pack(const struct gm_cfi_source *source, const struct gm_cfi_frame *frame)
{
	const struct gm_cfi_row *row = &frame->row;
	int64_t save = 0;

	(void)source;
	if (row->how[GM_CFI_RA] == GM_CFI_UNDEFINED)
		return gm_rule_make(GM_RULE_END, 0, 0);
	if (row->how[GM_CFI_RA] == GM_CFI_OFFSET && row->how[GM_CFI_FP] == GM_CFI_OFFSET) {
		save = row->value[GM_CFI_FP];
		if (save % 8 || row->value[GM_CFI_RA] != save + 8 || !fits(-(save / 8), 2, 2047))
			return gm_rule_make(GM_RULE_FULL, 0, 0);
	} else if (row->how[GM_CFI_RA] != GM_CFI_SAME || row->how[GM_CFI_FP] != GM_CFI_SAME) {
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	}
	if (frame->is_signal || row->how[GM_CFI_SP] != GM_CFI_SAME || row->cfa_is_expression ||
	    (row->cfa_register != GM_CFI_SP && row->cfa_register != GM_CFI_FP) ||
	    !fits(row->cfa_offset, 0, INT32_MAX))
		return gm_rule_make(GM_RULE_FULL, 0, 0);
	return gm_rule_make(row->cfa_register == GM_CFI_SP ? GM_RULE_SP : GM_RULE_FP,
			    (int32_t)row->cfa_offset, (int32_t)(-save / 8));
}

bool gm_step_is_after_call(uintptr_t pc)
{
	uint32_t code;			/* in an object, or made at run time */

	if (pc % 4 || gm_probe_copy(&code, pc - 4, 4) != 4)
		return false;
	return (code & 0xfc000000) == 0x94000000 ||	/* bl */
	       (code & 0xfffffc1f) == 0xd63f0000 ||	/* blr */
	       (code & 0xfefff800) == 0xd63f0800;	/* blraa, blrab and those without a modifier */
}

/* Is @address the code to which a signal handler returns (mov x8, #SYS_rt_sigreturn; svc #0)? If that code has tables,
 * they lead to the frame record of the interrupted function, which lacks the interrupted instruction and all
 * registers. */
static bool is_trampoline(uintptr_t address)
{
	static const uint32_t wanted[] = { 0xd2801168, 0xd4000001 };
	uint32_t code[2];

	return gm_probe_copy(code, (address + 3) & ~UINT64_C(3), sizeof(code)) == sizeof(code) &&
	       memcmp(code, wanted, sizeof(code)) == 0;
}

#define SIGINFO_BYTES 128u		/* Linux puts siginfo_t at the stack pointer, then the ucontext_t */

static int undo_signal(struct gm_step_state *state, struct gm_window *window)
{
	uintptr_t at = state->regs[GM_CFI_SP] + SIGINFO_BYTES +
		       offsetof(ucontext_t, uc_mcontext) + offsetof(mcontext_t, regs);

	for (unsigned int i = 0; i < GM_CFI_REGS; i++)	/* mcontext_t has the same order: x0 to x30, sp, pc */
		if (!gm_window_read(window, at + 8 * i, &state->regs[i]))
			return -EFAULT;
	state->exact = true;
	return 1;
}

#endif

uint64_t gm_step_learn(uintptr_t address, uint32_t generation)
{
	struct gm_cfi_source source;
	struct gm_cfi_frame frame;
	uint64_t rule;

	if (find_frame(address, &source, &frame) != 0)
		return is_trampoline(address) ? gm_rule_make(GM_RULE_FULL, 0, 0) : 0;
	rule = pack(&source, &frame);
	gm_rule_add(address, generation, rule);
	return rule;
}

static bool load_word(void *ctx, uintptr_t address, uintptr_t *ret_word)
{
	return gm_window_read(ctx, address, ret_word);
}

static int apply(const struct gm_cfi_source *source, const struct gm_cfi_row *row,
		 unsigned int reg, uintptr_t cfa, const uintptr_t old[GM_CFI_REGS],
		 struct gm_window *window, uintptr_t *ret_value)
{
	int32_t value = row->value[reg];
	uintptr_t at = cfa + (uintptr_t)(intptr_t)value;

	switch (row->how[reg]) {
	case GM_CFI_OFFSET:
		return gm_window_read(window, at, ret_value) ? 0 : -EFAULT;
	case GM_CFI_VAL_OFFSET:
		*ret_value = at;
		return 0;
	case GM_CFI_REGISTER:
		if ((uint32_t)value >= GM_CFI_REGS)
			return -EBADMSG;
		*ret_value = old[value];
		return 0;
	case GM_CFI_EXPRESSION:
		if (gm_cfi_evaluate(source, gm_cfi_expression(source, value), old, &cfa,
				    load_word, window, &at) != 0)
			return -EBADMSG;
		return gm_window_read(window, at, ret_value) ? 0 : -EFAULT;
	case GM_CFI_VAL_EXPRESSION:
		return gm_cfi_evaluate(source, gm_cfi_expression(source, value), old, &cfa,
				       load_word, window, ret_value);
	}
	return 0;			/* unchanged */
}

int gm_step_full(struct gm_step_state *state, struct gm_window *window)
{
	struct gm_cfi_source source;
	struct gm_cfi_frame frame;
	const struct gm_cfi_row *row = &frame.row;
	uintptr_t old[GM_CFI_REGS];
	uintptr_t address = state->regs[GM_CFI_PC] - !state->exact;
	/* aarch64: a leaf function may keep its return address in x30 and not touch the stack. */
	bool may_stay = GM_CFI_RA != GM_CFI_PC && state->exact;
	uintptr_t cfa;
	int err = find_frame(address, &source, &frame);

	if ((err || frame.is_signal) && is_trampoline(address))
		return undo_signal(state, window);
	if (err)
		return err;
	if (row->how[GM_CFI_RA] == GM_CFI_UNDEFINED)
		return 0;
	may_stay = may_stay && row->how[GM_CFI_RA] == GM_CFI_SAME;
	if (row->how[GM_CFI_RA] == GM_CFI_SAME && !may_stay)
		return -EBADMSG;
	memcpy(old, state->regs, sizeof(old));
	if (!row->cfa_is_expression)
		cfa = old[row->cfa_register] + (uintptr_t)(intptr_t)row->cfa_offset;
	else if (gm_cfi_evaluate(&source, gm_cfi_expression(&source, row->cfa_offset), old, NULL,
				 load_word, window, &cfa) != 0)
		return -EBADMSG;
	state->regs[GM_CFI_SP] = cfa;
	for (unsigned int reg = 0; reg < GM_CFI_REGS; reg++) {
		err = apply(&source, row, reg, cfa, old, window, &state->regs[reg]);
		if (err)
			return err;
	}
	state->regs[GM_CFI_PC] = gm_step_strip(state->regs[GM_CFI_RA]);
	state->exact = frame.is_signal;
	/* The caller's sp must be higher, except beyond a signal frame. This also ends a loop of bad frames. */
	if (!frame.is_signal && state->regs[GM_CFI_SP] < old[GM_CFI_SP] + !may_stay)
		return -EBADMSG;
	return 1;
}
