/*
 * cfi.h - call frame information: from .eh_frame_hdr to the rules that undo one frame.
 *
 * Sources: Linux Standard Base 5.0 "Exception Frames"; DWARF 5 sections 6.4 and 2.5; System V
 * ABI for x86-64, 3.6; DWARF for the Arm 64-bit Architecture, 4.1. All tables are read through a
 * gm_cfi_source, which may fail at any byte. Tables are not trusted: bad data gives -EBADMSG.
 *
 * Pure functions; any context. Stack: under 1.5 KiB, aarch64: 2 KiB.
 */
#ifndef GM_RECORDER_CFI_H
#define GM_RECORDER_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Registers by their DWARF numbers. On x86-64 the return address has its own rule. On aarch64 it is in x30, and
 * the number after sp, which no table names, stands for the pc. */
#if defined(__aarch64__)
#define GM_CFI_REGS 33
#define GM_CFI_RA 30
#define GM_CFI_PC 32
#define GM_CFI_FP 29
#define GM_CFI_SP 31
#else
#define GM_CFI_REGS 17
#define GM_CFI_RA 16
#define GM_CFI_PC 16
#define GM_CFI_FP 6
#define GM_CFI_SP 7
#endif

/* Where tables are read from. @read copies up to @bytes from @address and returns how many. */
struct gm_cfi_source {
	size_t (*read)(void *ctx, void *dst, uintptr_t address, size_t bytes);
	void *ctx;
	uintptr_t start, end;		/* the tables lie within these addresses */
};

/* How to find the caller's value of a register. */
enum gm_cfi_how {
	GM_CFI_SAME,			/* the register still has it (the default) */
	GM_CFI_UNDEFINED,		/* no value; for the return address: the outermost frame */
	GM_CFI_OFFSET,			/* saved at CFA + value */
	GM_CFI_VAL_OFFSET,		/* equals CFA + value */
	GM_CFI_REGISTER,		/* in register number value */
	GM_CFI_EXPRESSION,		/* saved at the address that an expression yields */
	GM_CFI_VAL_EXPRESSION,		/* equals the result of an expression */
};

/* The rules of one frame. Kept small, because several lie on the stack of the program's thread. A value
 * that is an expression is the place of the expression in the source: gm_cfi_expression. */
struct gm_cfi_row {
	int32_t cfa_offset;		/* CFA = register + offset; or the place of an expression */
	int32_t value[GM_CFI_REGS];
	uint8_t how[GM_CFI_REGS];	/* enum gm_cfi_how */
	uint8_t cfa_register;
	bool cfa_is_expression;
};

struct gm_cfi_frame {
	struct gm_cfi_row row;
	uintptr_t start, end;		/* the code that the FDE covers */
	bool is_signal;			/* augmentation 'S': the frame of a signal trampoline */
};

/* Return the address of the expression whose place is @value. */
static inline uintptr_t gm_cfi_expression(const struct gm_cfi_source *source, int32_t value)
{
	return source->start + (uint32_t)value;
}

/* Find the rules for the instruction at @pc by the .eh_frame_hdr at @hdr. Returns 0; -ENOENT when no
 * entry covers @pc; -EBADMSG when the tables cannot be read or make no sense. */
int gm_cfi_find(const struct gm_cfi_source *source, uintptr_t hdr, uintptr_t pc,
		struct gm_cfi_frame *ret_frame);

/* Find the rules for @pc in the one entry (FDE) at @fde. For gm_cfi_find and the tests. */
int gm_cfi_run(const struct gm_cfi_source *source, uintptr_t fde, uintptr_t pc,
	       struct gm_cfi_frame *ret_frame);

/* Evaluate the expression (uleb128 length, then operations) at @address over the registers @regs.
 * @initial is pushed first unless NULL (register rules push the CFA). @load reads a word of memory and
 * returns false when it cannot. Returns 0 or -EBADMSG. */
int gm_cfi_evaluate(const struct gm_cfi_source *source, uintptr_t address,
		    const uintptr_t regs[GM_CFI_REGS], const uintptr_t *initial,
		    bool (*load)(void *ctx, uintptr_t address, uintptr_t *ret_word), void *load_ctx,
		    uintptr_t *ret_value);

/* A position in a source, read through a small buffer. A read past the end, or of bytes that the source
 * cannot give, returns zeros and sets @failed. */
struct gm_cfi_cursor {
	const struct gm_cfi_source *source;
	uintptr_t at, end;
	uintptr_t buffered, buffered_end;
	bool failed;
	uint8_t buffer[256];
};

void gm_cfi_cursor_open(struct gm_cfi_cursor *cursor, const struct gm_cfi_source *source,
			uintptr_t at, uintptr_t end);
void gm_cfi_cursor_seek(struct gm_cfi_cursor *cursor, uintptr_t at, uintptr_t end);
uint64_t gm_cfi_unsigned(struct gm_cfi_cursor *cursor, unsigned int bytes);	/* 1, 2, 4, 8 */
int64_t gm_cfi_signed(struct gm_cfi_cursor *cursor, unsigned int bytes);
uint64_t gm_cfi_uleb(struct gm_cfi_cursor *cursor);
int64_t gm_cfi_sleb(struct gm_cfi_cursor *cursor);
/* Read a pointer in a DW_EH_PE_ encoding. DW_EH_PE_datarel adds @data_base. */
uintptr_t gm_cfi_pointer(struct gm_cfi_cursor *cursor, uint8_t encoding, uintptr_t data_base);

#endif
