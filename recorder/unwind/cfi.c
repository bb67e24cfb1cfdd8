/*
 * cfi.c - find an entry of .eh_frame by .eh_frame_hdr, and the rules that undo one frame (see cfi.h).
 */
#include "recorder/unwind/cfi.h"

#include <errno.h>
#include <string.h>

enum {
	CFA_ADVANCE_LOC = 0x40, CFA_OFFSET = 0x80, CFA_RESTORE = 0xc0, CFA_PRIMARY = 0xc0,
	CFA_NOP = 0x00, CFA_SET_LOC = 0x01, CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC4 = 0x04, CFA_OFFSET_EXTENDED = 0x05, CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07, CFA_SAME_VALUE = 0x08, CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a, CFA_RESTORE_STATE = 0x0b, CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d, CFA_DEF_CFA_OFFSET = 0x0e, CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10, CFA_OFFSET_EXTENDED_SF = 0x11, CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13, CFA_VAL_OFFSET = 0x14, CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16, CFA_AARCH64_NEGATE_RA_STATE = 0x2d, CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET = 0x2f,
};

#define REMEMBERED_MAX 4		/* remembered rows: compilers nest one, hand-written assembly two */
#define INSTRUCTIONS_MAX 65536		/* in one entry: bounds the time on bad tables */

struct cie {
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra_register;
	uintptr_t instructions, end;
	uint8_t pointer_encoding;
	bool has_augmentation_data, is_signal;
};

struct machine {
	struct gm_cfi_cursor *cursor;
	struct cie cie;
	struct gm_cfi_row *row;		/* the row that instructions change */
	struct gm_cfi_row initial;	/* the row after the CIE's instructions */
	struct gm_cfi_row remembered[REMEMBERED_MAX];
	unsigned int remembered_count;
	unsigned int steps;
	uintptr_t location;
};

/* Read the length of the entry at the cursor. The cursor then stands at the entry's id and ends with the
 * entry. Returns false at the terminator or on bad data. */
static bool entry_begin(struct gm_cfi_cursor *cursor, bool *ret_wide)
{
	uint64_t length = gm_cfi_unsigned(cursor, 4);

	*ret_wide = length == 0xffffffffu;
	if (*ret_wide)
		length = gm_cfi_unsigned(cursor, 8);
	if (cursor->failed || length == 0 || length > cursor->end - cursor->at) {
		cursor->failed = true;
		return false;
	}
	cursor->end = cursor->at + length;
	return true;
}

/* Read the augmentation string (at most "zRPLSB", in any order) and the data that its letters announce. */
static void read_augmentation(struct gm_cfi_cursor *cursor, const char *letters, struct cie *cie)
{
	uintptr_t end;

	if (!letters[0])
		return;
	if (letters[0] != 'z') {
		cursor->failed = true;	/* "eh", which only gcc 2 wrote */
		return;
	}
	cie->has_augmentation_data = true;
	end = gm_cfi_uleb(cursor);
	if (end > cursor->end - cursor->at) {
		cursor->failed = true;
		return;
	}
	end += cursor->at;
	for (letters++; *letters && !cursor->failed; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R':
			cie->pointer_encoding = (uint8_t)gm_cfi_unsigned(cursor, 1);
			break;
		case 'P':
			encoding = (uint8_t)gm_cfi_unsigned(cursor, 1);
			gm_cfi_pointer(cursor, encoding, 0);
			break;
		case 'L':
			gm_cfi_unsigned(cursor, 1);
			break;
		case 'S':
			cie->is_signal = true;
			break;
		case 'B':		/* aarch64: return addresses are signed with key B */
			break;
		default:		/* unknown; "z" gives the length of its data */
			letters = " ";
		}
	}
	gm_cfi_cursor_seek(cursor, end, cursor->end);
}

static void read_cie(struct gm_cfi_cursor *cursor, uintptr_t at, struct cie *cie)
{
	char letters[8];
	unsigned int count = 0;
	uint64_t version;
	bool wide;

	memset(cie, 0, sizeof(*cie));
	gm_cfi_cursor_seek(cursor, at, cursor->source->end);
	if (!entry_begin(cursor, &wide))
		return;
	if (gm_cfi_unsigned(cursor, wide ? 8 : 4) != 0)
		cursor->failed = true;
	version = gm_cfi_unsigned(cursor, 1);
	if (version != 1 && version != 3)
		cursor->failed = true;
	while ((letters[count] = (char)gm_cfi_unsigned(cursor, 1)) != 0)
		if (++count == sizeof(letters)) {
			cursor->failed = true;
			return;
		}
	cie->code_align = gm_cfi_uleb(cursor);
	cie->data_align = gm_cfi_sleb(cursor);
	cie->ra_register = version == 1 ? gm_cfi_unsigned(cursor, 1) : gm_cfi_uleb(cursor);
	read_augmentation(cursor, letters, cie);
	cie->instructions = cursor->at;
	cie->end = cursor->end;
	if (cie->ra_register != GM_CFI_RA)
		cursor->failed = true;
}

/* Narrow an offset to 32 bits, because no compiler writes offsets beyond 2 GiB. */
static int32_t narrow(struct machine *m, int64_t value)
{
	if (value < INT32_MIN || value > INT32_MAX)
		m->cursor->failed = true;
	return (int32_t)value;
}

static void set_rule(struct machine *m, uint64_t reg, enum gm_cfi_how how, int64_t value)
{
	if (reg >= GM_CFI_REGS)
		return;			/* a vector register, which no walk needs */
	m->row->how[reg] = (uint8_t)how;
	m->row->value[reg] = narrow(m, value);
}

static void restore_rule(struct machine *m, uint64_t reg)
{
	if (reg < GM_CFI_REGS)
		set_rule(m, reg, m->initial.how[reg], m->initial.value[reg]);
}

static void def_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
	if (reg >= GM_CFI_REGS) {
		m->cursor->failed = true;
		return;
	}
	m->row->cfa_register = (uint8_t)reg;
	m->row->cfa_offset = narrow(m, offset);
	m->row->cfa_is_expression = false;
}

/* Skip the expression at the cursor and return its place, because rules keep the place only. */
static int32_t skip_expression(struct machine *m)
{
	uintptr_t place = m->cursor->at - m->cursor->source->start;
	uint64_t length = gm_cfi_uleb(m->cursor);

	if (length > m->cursor->end - m->cursor->at)
		m->cursor->failed = true;
	else
		m->cursor->at += length;
	if (place > UINT32_MAX)
		m->cursor->failed = true;
	return (int32_t)(uint32_t)place;
}

static void remember(struct machine *m, bool restore)
{
	if (restore ? m->remembered_count == 0 : m->remembered_count == REMEMBERED_MAX)
		m->cursor->failed = true;
	else if (restore)
		*m->row = m->remembered[--m->remembered_count];
	else
		m->remembered[m->remembered_count++] = *m->row;
}

/* Multiply by the alignment factor. Both factors come from the table, so the product may wrap. */
static int64_t factored(const struct machine *m, int64_t offset)
{
	return (int64_t)((uint64_t)offset * (uint64_t)m->cie.data_align);
}

static void advance(struct machine *m, uint64_t delta)
{
	uintptr_t to = m->location + delta * m->cie.code_align;

	if (to < m->location)
		m->cursor->failed = true;
	m->location = to;
}

/* Set a new offset of the CFA from its present register. */
static void def_cfa_offset(struct machine *m, int64_t offset)
{
	if (m->row->cfa_is_expression)
		m->cursor->failed = true;
	m->row->cfa_offset = narrow(m, offset);
}

/* Run an instruction whose first operand is a register. */
static void run_register(struct machine *m, uint8_t op)
{
	struct gm_cfi_cursor *c = m->cursor;
	uint64_t reg = gm_cfi_uleb(c);

	switch (op) {
	case CFA_DEF_CFA:
		def_cfa(m, reg, (int64_t)gm_cfi_uleb(c));
		break;
	case CFA_DEF_CFA_SF:
		def_cfa(m, reg, factored(m, gm_cfi_sleb(c)));
		break;
	case CFA_DEF_CFA_REGISTER:
		if (m->row->cfa_is_expression)
			c->failed = true;
		def_cfa(m, reg, m->row->cfa_offset);
		break;
	case CFA_OFFSET_EXTENDED:
		set_rule(m, reg, GM_CFI_OFFSET, factored(m, (int64_t)gm_cfi_uleb(c)));
		break;
	case CFA_OFFSET_EXTENDED_SF:
		set_rule(m, reg, GM_CFI_OFFSET, factored(m, gm_cfi_sleb(c)));
		break;
	case CFA_GNU_NEGATIVE_OFFSET:
		set_rule(m, reg, GM_CFI_OFFSET,
			 (int64_t)(0 - (uint64_t)factored(m, (int64_t)gm_cfi_uleb(c))));
		break;
	case CFA_VAL_OFFSET:
		set_rule(m, reg, GM_CFI_VAL_OFFSET, factored(m, (int64_t)gm_cfi_uleb(c)));
		break;
	case CFA_VAL_OFFSET_SF:
		set_rule(m, reg, GM_CFI_VAL_OFFSET, factored(m, gm_cfi_sleb(c)));
		break;
	case CFA_RESTORE_EXTENDED:
		restore_rule(m, reg);
		break;
	case CFA_UNDEFINED:
		set_rule(m, reg, GM_CFI_UNDEFINED, 0);
		break;
	case CFA_SAME_VALUE:
		set_rule(m, reg, GM_CFI_SAME, 0);
		break;
	case CFA_REGISTER:
		set_rule(m, reg, GM_CFI_REGISTER, (int64_t)gm_cfi_uleb(c));
		break;
	case CFA_EXPRESSION:
		set_rule(m, reg, GM_CFI_EXPRESSION, skip_expression(m));
		break;
	case CFA_VAL_EXPRESSION:
		set_rule(m, reg, GM_CFI_VAL_EXPRESSION, skip_expression(m));
		break;
	default:
		c->failed = true;
	}
}

static void run_one(struct machine *m, uint8_t op)
{
	struct gm_cfi_cursor *c = m->cursor;

	switch (op & CFA_PRIMARY) {
	case CFA_ADVANCE_LOC:
		advance(m, op & 0x3f);
		return;
	case CFA_OFFSET:
		set_rule(m, op & 0x3f, GM_CFI_OFFSET, factored(m, (int64_t)gm_cfi_uleb(c)));
		return;
	case CFA_RESTORE:
		restore_rule(m, op & 0x3f);
		return;
	}
	switch (op) {
	case CFA_NOP:
		break;
	case CFA_SET_LOC:
		m->location = gm_cfi_pointer(c, m->cie.pointer_encoding, 0);
		break;
	case CFA_ADVANCE_LOC1 ... CFA_ADVANCE_LOC4:
		advance(m, gm_cfi_unsigned(c, 1u << (op - CFA_ADVANCE_LOC1)));
		break;
	case CFA_REMEMBER_STATE:
	case CFA_RESTORE_STATE:
		remember(m, op == CFA_RESTORE_STATE);
		break;
	case CFA_DEF_CFA_OFFSET:
		def_cfa_offset(m, (int64_t)gm_cfi_uleb(c));
		break;
	case CFA_DEF_CFA_OFFSET_SF:
		def_cfa_offset(m, factored(m, gm_cfi_sleb(c)));
		break;
	case CFA_DEF_CFA_EXPRESSION:
		m->row->cfa_offset = skip_expression(m);
		m->row->cfa_is_expression = true;
		break;
	case CFA_AARCH64_NEGATE_RA_STATE:	/* ignored: every return address is stripped of its signature */
		break;
	case CFA_GNU_ARGS_SIZE:
		gm_cfi_uleb(c);
		break;
	default:
		run_register(m, op);
	}
}

/* Run the instructions in [@at, @end), up to those for code beyond @pc. */
static void run(struct machine *m, uintptr_t at, uintptr_t end, uintptr_t pc)
{
	gm_cfi_cursor_seek(m->cursor, at, end);
	while (!m->cursor->failed && m->cursor->at < m->cursor->end && m->location <= pc) {
		if (++m->steps > INSTRUCTIONS_MAX)
			m->cursor->failed = true;
		else
			run_one(m, (uint8_t)gm_cfi_unsigned(m->cursor, 1));
	}
}

/* Read the CIE at @at and run its instructions, which hold for all code. Uses its own cursor, so that the FDE
 * need not be read twice. */
static __attribute__((noinline)) int run_cie(struct machine *m, const struct gm_cfi_source *source,
					     uintptr_t at)
{
	struct gm_cfi_cursor cursor;

	gm_cfi_cursor_open(&cursor, source, source->start, source->end);
	read_cie(&cursor, at, &m->cie);
	/* cppcheck-suppress autoVariables ; reset to NULL below */
	m->cursor = &cursor;
	m->location = 0;
	if (!cursor.failed)
		run(m, m->cie.instructions, m->cie.end, UINTPTR_MAX);
	m->cursor = NULL;
	m->initial = *m->row;
	return cursor.failed ? -EBADMSG : 0;
}

int gm_cfi_run(const struct gm_cfi_source *source, uintptr_t fde, uintptr_t pc,
	       struct gm_cfi_frame *ret_frame)
{
	struct machine m;
	struct gm_cfi_cursor c;
	uintptr_t id_at, cie_at;
	uint64_t id;
	bool wide;

	memset(ret_frame, 0, sizeof(*ret_frame));
	memset(&m.initial, 0, sizeof(m.initial));
	m.remembered_count = 0;
	m.steps = 0;
	m.row = &ret_frame->row;
	gm_cfi_cursor_open(&c, source, fde, source->end);
	if (!entry_begin(&c, &wide))
		return -EBADMSG;
	id_at = c.at;
	id = gm_cfi_unsigned(&c, wide ? 8 : 4);
	cie_at = id_at - id;
	if (c.failed || id == 0 || cie_at < source->start || cie_at >= id_at ||
	    run_cie(&m, source, cie_at) != 0)
		return -EBADMSG;
	m.cursor = &c;
	ret_frame->start = gm_cfi_pointer(&c, m.cie.pointer_encoding, 0);
	ret_frame->end = ret_frame->start + gm_cfi_pointer(&c, m.cie.pointer_encoding & 0x0f, 0);
	if (m.cie.has_augmentation_data) {
		uint64_t length = gm_cfi_uleb(&c);

		gm_cfi_cursor_seek(&c, length > c.end - c.at ? c.end + 1 : c.at + length, c.end);
	}
	if (c.failed)
		return -EBADMSG;
	if (pc < ret_frame->start || pc >= ret_frame->end)
		return -ENOENT;
	ret_frame->is_signal = m.cie.is_signal;
	m.location = ret_frame->start;
	run(&m, c.at, c.end, pc);
	return c.failed ? -EBADMSG : 0;
}

/* ---- .eh_frame_hdr ---- */

/* The sorted table: pairs of offsets from @hdr, of a piece of code and of its FDE. */
struct table {
	struct gm_cfi_cursor cursor;
	uintptr_t at;
};

#define ENTRY_BYTES 8u

static int64_t table_code(struct table *table, uint64_t i)
{
	gm_cfi_cursor_seek(&table->cursor, table->at + i * ENTRY_BYTES, table->cursor.source->end);
	return gm_cfi_signed(&table->cursor, 4);
}

/* Find the last of @count entries whose code begins at or before @wanted (an offset from hdr). */
static uint64_t table_search(struct table *table, uint64_t count, int64_t wanted)
{
	uint64_t low = 0, high = count;			/* the entry is in [low, high) */

	while (high - low > 1 && !table->cursor.failed) {
		uint64_t middle = low + (high - low) / 2;

		if (table_code(table, middle) <= wanted)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Return the address of the FDE; 0: no tables. Not inlined, so that the buffer here has left the stack when the
 * FDE is run. */
static __attribute__((noinline)) uintptr_t find_fde(const struct gm_cfi_source *source,
						    uintptr_t hdr, uintptr_t pc)
{
	enum { UDATA4 = 0x03, DATAREL_SDATA4 = 0x3b };
	struct table table;
	struct gm_cfi_cursor *c = &table.cursor;
	uint64_t count, entry;
	uintptr_t fde;
	uint8_t head[4];

	gm_cfi_cursor_open(c, source, hdr, source->end);
	for (unsigned int i = 0; i < 4; i++)
		head[i] = (uint8_t)gm_cfi_unsigned(c, 1);
	gm_cfi_pointer(c, head[1], hdr);		/* skip the address of .eh_frame */
	count = gm_cfi_pointer(c, head[2], hdr);
	table.at = c->at;
	/* Every linker writes the sorted table in this encoding. Without the table there is nothing to search. */
	if (c->failed || head[0] != 1 || head[2] != UDATA4 || head[3] != DATAREL_SDATA4 ||
	    count == 0 || count > (source->end - table.at) / ENTRY_BYTES)
		return 0;
	entry = table_search(&table, count, (int64_t)(pc - hdr));
	gm_cfi_cursor_seek(c, table.at + entry * ENTRY_BYTES + 4, source->end);
	fde = hdr + (uintptr_t)gm_cfi_signed(c, 4);
	return c->failed ? 0 : fde;
}

int gm_cfi_find(const struct gm_cfi_source *source, uintptr_t hdr, uintptr_t pc,
		struct gm_cfi_frame *ret_frame)
{
	uintptr_t fde = find_fde(source, hdr, pc);

	return fde ? gm_cfi_run(source, fde, pc, ret_frame) : -EBADMSG;
}
