/*
 * python_lines.c - from an instruction to its line (see python_lines.h).
 *
 * The formats are those of Objects/lnotab_notes.txt (3.8, 3.9), PEP 626 (3.10) and
 * Objects/locations.md (3.11 and later). Owns no state.
 */
#include "recorder/python/python_lines.h"

#include <stdbool.h>

#include "recorder/journal/probe.h"

#define TABLE_MOST (16u << 20)		/* bytes; no function has as many */

struct reader {
	uintptr_t at, end;
	unsigned int used, have;
	uint8_t buffer[256];
};

/* The next byte of the table; -1 at its end. */
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

/* 3.8, 3.9: pairs of (bytes of code, lines) to step on by. */
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

/* 3.10: ranges of (bytes of code, lines to add first); -128 lines: the range has none. */
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

/* Six bits a byte, the lowest first; the sign is the lowest bit of all. */
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

/* 3.11 and later: entries that begin with a byte whose top bit is set: form, code units less 1. */
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
	if (bytes > TABLE_MOST)
		return 0;
	if (minor < 10)
		line = line_by_steps(&r, first, at);
	else if (minor == 10)
		line = line_by_ranges(&r, first, at);
	else
		line = line_by_entries(&r, first, at);
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}
