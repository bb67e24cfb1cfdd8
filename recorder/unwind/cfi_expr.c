/*
 * cfi_expr.c - DWARF expressions, as far as call frame information uses them (see cfi.h).
 *
 * Owns nothing; any context.
 */
#include "recorder/unwind/cfi.h"

#include <errno.h>

enum {
	OP_ADDR = 0x03, OP_DEREF = 0x06, OP_CONST1U = 0x08, OP_CONST8S = 0x0f, OP_CONSTU = 0x10,
	OP_CONSTS = 0x11, OP_DUP = 0x12, OP_DROP = 0x13, OP_OVER = 0x14, OP_PICK = 0x15,
	OP_SWAP = 0x16, OP_ROT = 0x17, OP_ABS = 0x19, OP_AND = 0x1a, OP_DIV = 0x1b, OP_MINUS = 0x1c,
	OP_MOD = 0x1d, OP_MUL = 0x1e, OP_NEG = 0x1f, OP_NOT = 0x20, OP_OR = 0x21, OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23, OP_SHL = 0x24, OP_SHR = 0x25, OP_SHRA = 0x26, OP_XOR = 0x27,
	OP_BRA = 0x28, OP_EQ = 0x29, OP_GE = 0x2a, OP_GT = 0x2b, OP_LE = 0x2c, OP_LT = 0x2d,
	OP_NE = 0x2e, OP_SKIP = 0x2f, OP_LIT0 = 0x30, OP_LIT31 = 0x4f, OP_BREG0 = 0x70,
	OP_BREG31 = 0x8f, OP_BREGX = 0x92, OP_NOP = 0x96,
};

#define STACK_MAX 16
#define STEPS_MAX 256			/* branches may loop */

struct evaluation {
	struct gm_cfi_cursor cursor;
	const uintptr_t *regs;
	bool (*load)(void *ctx, uintptr_t address, uintptr_t *ret_word);
	void *load_ctx;
	uintptr_t begin;
	uintptr_t stack[STACK_MAX];
	unsigned int depth;
};

static void push(struct evaluation *e, uintptr_t value)
{
	if (e->depth == STACK_MAX)
		e->cursor.failed = true;
	else
		e->stack[e->depth++] = value;
}

static uintptr_t pop(struct evaluation *e)
{
	if (e->depth == 0) {
		e->cursor.failed = true;
		return 0;
	}
	return e->stack[--e->depth];
}

static void pick(struct evaluation *e, uint64_t from_top)
{
	if (from_top >= e->depth)
		e->cursor.failed = true;
	else
		push(e, e->stack[e->depth - 1 - from_top]);
}

static void push_register(struct evaluation *e, uint64_t reg)
{
	int64_t offset = gm_cfi_sleb(&e->cursor);

	if (reg >= GM_CFI_REGS)
		e->cursor.failed = true;
	else
		push(e, e->regs[reg] + (uintptr_t)offset);
}

static void branch(struct evaluation *e, bool taken)
{
	int64_t offset = gm_cfi_signed(&e->cursor, 2);
	uintptr_t to = e->cursor.at + (uintptr_t)offset;

	if (!taken)
		return;
	if (to < e->begin || to > e->cursor.end)
		e->cursor.failed = true;
	else
		e->cursor.at = to;
}

static uintptr_t binary(struct evaluation *e, uint8_t op, uintptr_t a, uintptr_t b)
{
	intptr_t sa = (intptr_t)a, sb = (intptr_t)b;

	switch (op) {
	case OP_AND: return a & b;
	case OP_OR: return a | b;
	case OP_XOR: return a ^ b;
	case OP_PLUS: return a + b;
	case OP_MINUS: return a - b;
	case OP_MUL: return a * b;
	case OP_SHL: return b < 64 ? a << b : 0;
	case OP_SHR: return b < 64 ? a >> b : 0;
	case OP_SHRA: return sa < 0 ? ~(b < 64 ? ~a >> b : 0) : b < 64 ? a >> b : 0;
	case OP_EQ: return sa == sb;
	case OP_NE: return sa != sb;
	case OP_GE: return sa >= sb;
	case OP_GT: return sa > sb;
	case OP_LE: return sa <= sb;
	case OP_LT: return sa < sb;
	case OP_MOD:
		if (b)
			return a % b;
		break;
	case OP_DIV:
		if (b && !(sa == INTPTR_MIN && sb == -1))
			return (uintptr_t)(sa / sb);
		break;
	}
	e->cursor.failed = true;
	return 0;
}

static void run_one(struct evaluation *e, uint8_t op)
{
	struct gm_cfi_cursor *c = &e->cursor;
	uintptr_t a, b, top, word = 0;
	unsigned int bytes;

	switch (op) {
	case OP_NOP:
		break;
	case OP_ADDR:
		push(e, gm_cfi_unsigned(c, 8));
		break;
	case OP_CONST1U ... OP_CONST8S:	/* of 1, 2, 4 and 8 bytes, each unsigned and signed */
		bytes = 1u << (op - OP_CONST1U) / 2;
		push(e, op & 1 ? (uintptr_t)gm_cfi_signed(c, bytes) : gm_cfi_unsigned(c, bytes));
		break;
	case OP_CONSTU:
		push(e, gm_cfi_uleb(c));
		break;
	case OP_CONSTS:
		push(e, (uintptr_t)gm_cfi_sleb(c));
		break;
	case OP_DUP:
		pick(e, 0);
		break;
	case OP_OVER:
		pick(e, 1);
		break;
	case OP_PICK:
		pick(e, gm_cfi_unsigned(c, 1));
		break;
	case OP_DROP:
		pop(e);
		break;
	case OP_SWAP:
		b = pop(e);
		a = pop(e);
		push(e, b);
		push(e, a);
		break;
	case OP_ROT:			/* the top becomes the third */
		top = pop(e);
		b = pop(e);
		a = pop(e);
		push(e, top);
		push(e, a);
		push(e, b);
		break;
	case OP_DEREF:
		a = pop(e);
		if (c->failed || !e->load(e->load_ctx, a, &word))
			c->failed = true;
		push(e, word);
		break;
	case OP_ABS:
		a = pop(e);
		push(e, (intptr_t)a < 0 ? 0 - a : a);
		break;
	case OP_NEG:
		push(e, 0 - pop(e));
		break;
	case OP_NOT:
		push(e, ~pop(e));
		break;
	case OP_PLUS_UCONST:
		a = pop(e);
		push(e, a + gm_cfi_uleb(c));
		break;
	case OP_SKIP:
		branch(e, true);
		break;
	case OP_BRA:
		branch(e, pop(e) != 0);
		break;
	case OP_LIT0 ... OP_LIT31:
		push(e, op - OP_LIT0);
		break;
	case OP_BREG0 ... OP_BREG31:
		push_register(e, op - OP_BREG0);
		break;
	case OP_BREGX:
		push_register(e, gm_cfi_uleb(c));
		break;
	default:
		b = pop(e);
		a = pop(e);
		push(e, binary(e, op, a, b));
	}
}

int gm_cfi_evaluate(const struct gm_cfi_source *source, uintptr_t address,
		    const uintptr_t regs[GM_CFI_REGS], const uintptr_t *initial,
		    bool (*load)(void *ctx, uintptr_t address, uintptr_t *ret_word), void *load_ctx,
		    uintptr_t *ret_value)
{
	struct evaluation e = { .regs = regs, .load = load, .load_ctx = load_ctx };
	uint64_t length;

	gm_cfi_cursor_open(&e.cursor, source, address, source->end);
	length = gm_cfi_uleb(&e.cursor);
	if (e.cursor.failed || length > e.cursor.end - e.cursor.at)
		return -EBADMSG;
	e.begin = e.cursor.at;
	e.cursor.end = e.cursor.at + length;
	if (initial)
		push(&e, *initial);
	for (unsigned int steps = 0; e.cursor.at < e.cursor.end && !e.cursor.failed; steps++) {
		if (steps == STEPS_MAX)
			return -EBADMSG;
		run_one(&e, (uint8_t)gm_cfi_unsigned(&e.cursor, 1));
	}
	if (e.cursor.failed || e.depth == 0)
		return -EBADMSG;
	*ret_value = e.stack[e.depth - 1];
	return 0;
}
