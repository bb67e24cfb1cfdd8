/*
 * python_code.c - name, file and line of a Python frame, read once for each frame (see python.h).
 *
 * Owns the table of frames that have ids, by their keys. The table is lossy: the two words of an entry are
 * valid only together, as in stacks.c. Names and tables are read through the kernel. Contexts as python.h.
 */
#include <string.h>

#include "recorder/python/python.h"
#include "recorder/python/python_view.h"
#include "recorder/journal/recorder.h"

#define KNOWN 8192u			/* entries; a power of two */
#define TEXT_BYTES 1024u		/* of a name or a path; the rest is cut off */
#define LINES_MOST (16u << 20)		/* bytes; no function has so large a line table */

struct known_frame {
	_Atomic(uint64_t) key;		/* key ^ value */
	_Atomic(uint64_t) value;	/* frame id; 0: empty */
};

static struct known_frame known[KNOWN];

struct text {
	char bytes[TEXT_BYTES];
	uint32_t length;
};

/* Append @c as UTF-8. Append U+FFFD for what is no character, such as half of a surrogate pair in an
 * undecodable file name. Returns false when there is no room. */
static bool put(struct text *text, uint32_t c)
{
	uint8_t *out = (uint8_t *)text->bytes + text->length;
	unsigned int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const uint8_t lead[] = { 0, 0xc0, 0xe0, 0xf0 };

	if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff) {
		c = 0xfffd;
		more = 2;
	}
	if (text->length + more + 1 > TEXT_BYTES)
		return false;
	text->length += more + 1;
	out[0] = (uint8_t)(lead[more] | c >> 6 * more);
	for (unsigned int i = 1; i <= more; i++)
		out[i] = (uint8_t)(0x80 | (c >> 6 * (more - i) & 0x3f));
	return true;
}

/* Append @count characters of @kind bytes (1, 2 or 4) each, from @at, until @text is full. Returns false when
 * they cannot be read. */
static bool put_all(struct text *text, uintptr_t at, uint64_t count, unsigned int kind)
{
	uint8_t part[256];

	while (count) {
		uint64_t here = sizeof(part) / kind;

		here = here < count ? here : count;
		if (gm_probe_copy(part, at, here * kind) != here * kind)
			return false;
		for (uint64_t i = 0; i < here; i++) {
			uint32_t c = 0;

			memcpy(&c, part + i * kind, kind);	/* little-endian, as are all machines that we support */
			if (!put(text, c))
				return true;
		}
		at += here * kind;
		count -= here;
	}
	return true;
}

/* Intern the str at @at. Returns its id; GM_NONE when it cannot be read or there is no room. */
static uint32_t intern_text(const struct gm_python *python, uintptr_t at)
{
	const struct gm_python_layout *layout = python->layout;
	uint8_t copy[GM_PY_OBJECT_BYTES];
	struct text text;
	unsigned int state, kind;
	bool ascii;

	if (!gm_py_view(true, at, copy, layout->text_ascii) ||
	    gm_py_word(copy, layout->objects.type) != python->text_type)
		return GM_NONE;
	state = (unsigned int)gm_py_int(copy, layout->objects.text_state) >> layout->objects.text_kind;
	kind = state & 7;
	ascii = state >> 4 & 1;
	if (!(state >> 3 & 1) || (kind != 1 && kind != 2 && kind != 4))	/* not compact */
		return GM_NONE;
	text.length = 0;
	if (!put_all(&text, at + (ascii ? layout->text_ascii : layout->text_wide),
		     gm_py_word(copy, layout->objects.text_length), kind))
		return GM_NONE;
	return gm_intern_string(text.bytes, text.length);
}

/* ---- from an instruction to its line, in the formats of Objects/lnotab_notes.txt (3.8, 3.9), PEP 626 (3.10)
 * and Objects/locations.md (3.11 and later) ---- */

struct reader {
	uintptr_t at, end;
	unsigned int used, have;
	uint8_t buffer[256];
};

/* Return the next byte of the table; -1 at its end. */
static int next(struct reader *r)
{
	if (r->used == r->have) {
		size_t rest = r->end - r->at;

		rest = rest < sizeof(r->buffer) ? rest : sizeof(r->buffer);
		r->have = rest ? (unsigned int)gm_probe_copy(r->buffer, r->at, rest) : 0;
		r->used = 0;
		r->at += r->have;
		if (!r->have) {
			r->end = r->at;
			return -1;
		}
	}
	return r->buffer[r->used++];
}

/* 3.8, 3.9: pairs of steps (bytes of code, lines). */
static int64_t line_by_steps(struct reader *r, int64_t line, int64_t at)
{
	int64_t address = 0;

	for (;;) {
		int bytes = next(r), lines = next(r);

		if (lines < 0 || (address += bytes) > at)
			return line;
		line += (int8_t)lines;
	}
}

/* 3.10: ranges (bytes of code, lines to add first); -128 lines: the range has no line. */
static int64_t line_by_ranges(struct reader *r, int64_t line, int64_t at)
{
	int64_t end = 0;

	for (;;) {
		int bytes = next(r), lines = next(r);

		if (lines < 0)
			return 0;
		end += bytes;
		if ((int8_t)lines != -128)
			line += (int8_t)lines;
		if (at < end)
			return (int8_t)lines == -128 ? 0 : line;
	}
}

/* Read a signed number: six bits a byte, the lowest first; bit 0 of the value is the sign. */
static int64_t signed_number(struct reader *r)
{
	uint64_t value = 0;
	unsigned int shift = 0;
	int byte;

	do {
		byte = next(r);
		if (byte < 0)
			return 0;
		if (shift < 36)
			value |= (uint64_t)(byte & 63) << shift;
		shift += 6;
	} while (byte & 64);
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* 3.11 and later: each entry begins with a byte whose top bit is set, which has the form and the code units
 * less 1. */
static int64_t line_by_entries(struct reader *r, int64_t line, int64_t at)
{
	enum { FORM_LINE_0 = 10, FORM_LINE_2 = 12, FORM_NO_COLUMNS, FORM_LONG, FORM_NONE };
	int64_t end = 0;
	int byte = next(r);

	while (byte >= 0) {
		int form = byte >> 3 & 15;

		end += ((byte & 7) + 1) * 2;
		if (form == FORM_NO_COLUMNS || form == FORM_LONG)
			line += signed_number(r);
		else if (form >= FORM_LINE_0 && form <= FORM_LINE_2)
			line += form - FORM_LINE_0;
		if (at < end)
			return form == FORM_NONE ? 0 : line;
		do
			byte = next(r);
		while (byte >= 0 && !(byte & 128));
	}
	return 0;
}

uint32_t gm_python_line(unsigned int minor, uintptr_t table, size_t bytes, uint32_t first,
			int64_t at)
{
	struct reader r = { .at = table, .end = table + bytes };
	int64_t line;

	if (at < 0)
		return first;
	if (bytes > LINES_MOST)
		return 0;
	if (minor < 10)
		line = line_by_steps(&r, first, at);
	else if (minor == 10)
		line = line_by_ranges(&r, first, at);
	else
		line = line_by_entries(&r, first, at);
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* Return how many bytes into its code the frame is; below 0: before its first instruction. */
static int64_t place_of(const struct gm_python_layout *layout, uintptr_t code_at, uintptr_t instr)
{
	switch (layout->chain) {
	case GM_CHAIN_PLAIN:
		return (intptr_t)instr;
	case GM_CHAIN_PAIRS:		/* 3.10 counts code units */
		return (intptr_t)instr * 2;
	default:
		return (intptr_t)(instr - code_at - layout->code_units);
	}
}

static uint32_t line_of(const struct gm_python *python, const uint8_t *code, int64_t place)
{
	const struct gm_python_layout *layout = python->layout;
	uintptr_t lines = gm_py_word(code, layout->code_lines);
	uint32_t first = (uint32_t)gm_py_int(code, layout->code_first_line);
	uint8_t copy[GM_PY_OBJECT_BYTES];

	if (!gm_py_view(true, lines, copy, layout->objects.bytes_size + 8u) ||
	    gm_py_word(copy, layout->objects.type) != python->bytes_type)
		return 0;
	return gm_python_line(layout->minor, lines + layout->objects.bytes_data,
			      gm_py_word(copy, layout->objects.bytes_size), first, place);
}

/* Convert @instr, an address in copy @index of the code, to an address in the code itself. 0: there is no such
 * copy, or the address is not in it. */
static uintptr_t in_code(const struct gm_python_layout *layout, uintptr_t code_at,
			 const uint8_t *code, uint32_t index, uintptr_t instr)
{
	uintptr_t copies = gm_py_word(code, layout->code_copies);
	uintptr_t bytes = gm_py_word(code, layout->objects.bytes_size) * 2, copy;

	if (index >= gm_py_word_at(true, copies, 0))
		return 0;
	copy = gm_py_word_at(true, copies, 8 + 8 * (size_t)index);
	return copy && instr - copy < bytes ? code_at + layout->code_units + (instr - copy) : 0;
}

#define LOOKS 4			/* attempts to read a table that another thread may be replacing */

GM_PYTHON_RAW
uintptr_t gm_python_instr(const struct gm_python_layout *layout, const uint8_t *frame,
			  uintptr_t code_at)
{
	uintptr_t instr = gm_py_instr(layout, frame), found = 0;
	uint8_t copy[GM_PY_CODE_BYTES];
	const uint8_t *code;
	int32_t index;

	if (!layout->code_copies)
		return instr;
	index = gm_py_int(frame, layout->frame_copy);
	if (index == 0)			/* 0 is the code itself */
		return instr;
	for (int i = 0; i < LOOKS && index > 0 && !found; i++) {
		code = gm_py_view(true, code_at, copy, layout->code_bytes);
		found = code ? in_code(layout, code_at, code, (uint32_t)index, instr) : 0;
	}
	return found;
}

static uint32_t intern_new(const struct gm_python *python, uintptr_t code_at, uintptr_t instr)
{
	const struct gm_python_layout *layout = python->layout;
	uint8_t code[GM_PY_CODE_BYTES];
	struct gm_frame frame = { .flags = GM_FRAME_PYTHON };
	int64_t place = place_of(layout, code_at, instr);

	if (!gm_py_view(true, code_at, code, layout->code_bytes))
		return GM_NONE;
	frame.offset = place < 0 ? 0 : (uint64_t)place;
	frame.filename = intern_text(python, gm_py_word(code, layout->code_filename));
	frame.name = intern_text(python, gm_py_word(code, layout->code_name));
	if (!frame.name)
		frame.name = gm_intern_string("?", 1);
	frame.line = line_of(python, code, place);
	return gm_intern_frame(&frame);
}

/* Is the frame still being made, or a helper frame of 3.12's calls of classes? Python shows neither. */
GM_PYTHON_RAW static bool is_incomplete(const struct gm_python_layout *layout,
					const uint8_t *frame, uintptr_t code_at,
					const uint8_t *code, uintptr_t instr)
{
	if (!layout->code_traceable || frame[layout->frame_owner] == GM_PY_OWNER_GENERATOR)
		return false;
	return place_of(layout, code_at, instr) <
	       (int64_t)gm_py_int(code, layout->code_traceable) * 2;
}

GM_PYTHON_RAW
uint32_t gm_python_intern(struct gm_python *python, uintptr_t frame_at, bool *ret_skip)
{
	uint8_t frame_copy[GM_PY_FRAME_BYTES], code_copy[GM_PY_CODE_BYTES];
	const struct gm_python_layout *layout = python->layout;
	bool probed = !gm_python_is_proved(python);
	const uint8_t *frame, *code;
	struct known_frame *entry;
	uint64_t key, value;
	uintptr_t code_at, instr;
	uint32_t id;

	*ret_skip = false;
	frame = gm_py_view(probed, frame_at, frame_copy, layout->frame_bytes);
	if (!frame)
		return GM_NONE;
	code_at = gm_py_code(layout, frame);
	code = gm_py_view(probed, code_at, code_copy, layout->code_bytes);
	if (!code)
		return GM_NONE;
	instr = gm_python_instr(layout, frame, code_at);
	*ret_skip = is_incomplete(layout, frame, code_at, code, instr);
	if (*ret_skip)
		return GM_NONE;
	key = gm_py_key(0, code_at, gm_py_content(layout, &layout->objects, probed, code), instr);
	entry = &known[(key >> 20) % KNOWN];
	value = atomic_load_explicit(&entry->value, memory_order_acquire);
	if (value && (atomic_load_explicit(&entry->key, memory_order_acquire) ^ value) == key)
		return (uint32_t)value;
	id = intern_new(python, code_at, instr);
	if (id) {
		atomic_store_explicit(&entry->value, id, memory_order_release);
		atomic_store_explicit(&entry->key, key ^ id, memory_order_release);
	}
	return id;
}
