/*
 * cfi_expr.c - DWARF expressions, as far as call frame information uses them (see cfi.h).
 *
 * Compilers, linkers (in PLTs) and hand-written assembly use only these operations, as a count over 1,500
 * libraries of Debian and CUDA showed. A frame with any other operation ends the stack.
 * Owns nothing; any context.
 */
#include "recorder/unwind/cfi.h"

#include <errno.h>

enum {
	OP_DEREF = 0x06, OP_CONST1U = 0x08, OP_CONST8S = 0x0f, OP_CONSTU = 0x10, OP_CONSTS = 0x11,
	OP_DUP = 0x12, OP_DROP = 0x13, OP_AND = 0x1a, OP_MINUS = 0x1c, OP_MUL = 0x1e, OP_OR = 0x21,
	OP_PLUS = 0x22, OP_PLUS_UCONST = 0x23, OP_SHL = 0x24, OP_SHR = 0x25, OP_GE = 0x2a,
	OP_LIT0 = 0x30, OP_LIT31 = 0x4f, OP_BREG0 = 0x70, OP_BREG31 = 0x8f,
};

#define STACK_MAX 16

struct evaluation {
	struct gm_cfi_cursor cursor;
	const uintptr_t *regs;
	bool (*load)(void *ctx, uintptr_t address, uintptr_t *ret_word);
	void *load_ctx;
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

static void push_register(struct evaluation *e, uint64_t reg)
{
	int64_t offset = gm_cfi_sleb(&e->cursor);

	if (reg >= GM_CFI_REGS)
		e->cursor.failed = true;
	else
		push(e, e->regs[reg] + (uintptr_t)offset);
}

static uintptr_t binary(struct evaluation *e, uint8_t op, uintptr_t a, uintptr_t b)
{
	switch (op) {
	case OP_AND: return a & b;
	case OP_OR: return a | b;
	case OP_PLUS: return a + b;
	case OP_MINUS: return a - b;
	case OP_MUL: return a * b;
	case OP_SHL: return b < 64 ? a << b : 0;
	case OP_SHR: return b < 64 ? a >> b : 0;
	case OP_GE: return (intptr_t)a >= (intptr_t)b;
	}
	e->cursor.failed = true;
	return 0;
}

static void run_one(struct evaluation *e, uint8_t op)
{
	struct gm_cfi_cursor *c = &e->cursor;
	uintptr_t a, b, word = 0;
	unsigned int bytes;

	switch (op) {
	case OP_CONST1U ... OP_CONST8S:	/* 1, 2, 4 and 8 bytes, each unsigned and signed */
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
		a = pop(e);
		push(e, a);
		push(e, a);
		break;
	case OP_DROP:
		pop(e);
		break;
	case OP_DEREF:
		a = pop(e);
		if (c->failed || !e->load(e->load_ctx, a, &word))
			c->failed = true;
		push(e, word);
		break;
	case OP_PLUS_UCONST:
		a = pop(e);
		push(e, a + gm_cfi_uleb(c));
		break;
	case OP_LIT0 ... OP_LIT31:
		push(e, op - OP_LIT0);
		break;
	case OP_BREG0 ... OP_BREG31:
		push_register(e, op - OP_BREG0);
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
	e.cursor.end = e.cursor.at + length;
	if (initial)
		push(&e, *initial);
	while (e.cursor.at < e.cursor.end && !e.cursor.failed)
		run_one(&e, (uint8_t)gm_cfi_unsigned(&e.cursor, 1));
	if (e.cursor.failed || e.depth == 0)
		return -EBADMSG;
	*ret_value = e.stack[e.depth - 1];
	return 0;
}
