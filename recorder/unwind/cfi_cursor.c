/*
 * cfi_cursor.c - read numbers in DWARF's encodings from memory that may end anywhere (cfi.h).
 */
#include "recorder/unwind/cfi.h"

#include <string.h>

enum {
	PE_ABSPTR = 0x00, PE_ULEB = 0x01, PE_UDATA2 = 0x02, PE_UDATA8 = 0x04,
	PE_SLEB = 0x09, PE_SDATA2 = 0x0a, PE_SDATA8 = 0x0c,
	PE_FORMAT = 0x0f,
	PE_PCREL = 0x10, PE_DATAREL = 0x30, PE_APPLICATION = 0x70,
	PE_INDIRECT = 0x80, PE_OMIT = 0xff,
};

void gm_cfi_cursor_open(struct gm_cfi_cursor *cursor, const struct gm_cfi_source *source,
			uintptr_t at, uintptr_t end)
{
	cursor->source = source;
	cursor->buffered = cursor->buffered_end = 0;
	cursor->failed = false;
	gm_cfi_cursor_seek(cursor, at, end);
}

void gm_cfi_cursor_seek(struct gm_cfi_cursor *cursor, uintptr_t at, uintptr_t end)
{
	cursor->at = at;
	cursor->end = end;
	if (at < cursor->source->start || end > cursor->source->end || at > end) {
		cursor->failed = true;
		cursor->end = cursor->at;
	}
}

/* Fill the buffer so that it holds @bytes at the cursor. */
static bool fill(struct gm_cfi_cursor *cursor, unsigned int bytes)
{
	size_t want = sizeof(cursor->buffer);

	if (cursor->failed || cursor->end - cursor->at < bytes) {
		cursor->failed = true;
		return false;
	}
	if (cursor->at >= cursor->buffered && cursor->at <= cursor->buffered_end &&
	    cursor->buffered_end - cursor->at >= bytes)
		return true;
	if (want > cursor->source->end - cursor->at)
		want = cursor->source->end - cursor->at;
	cursor->buffered = cursor->at;
	cursor->buffered_end = cursor->at + cursor->source->read(cursor->source->ctx,
								 cursor->buffer, cursor->at, want);
	if (cursor->buffered_end - cursor->at < bytes)
		cursor->failed = true;
	return !cursor->failed;
}

uint64_t gm_cfi_unsigned(struct gm_cfi_cursor *cursor, unsigned int bytes)
{
	uint64_t value = 0;

	if (!fill(cursor, bytes))
		return 0;
	/* Both machines are little-endian. */
	memcpy(&value, cursor->buffer + (cursor->at - cursor->buffered), bytes);
	cursor->at += bytes;
	return value;
}

int64_t gm_cfi_signed(struct gm_cfi_cursor *cursor, unsigned int bytes)
{
	unsigned int shift = 64 - 8 * bytes;

	return (int64_t)(gm_cfi_unsigned(cursor, bytes) << shift) >> shift;
}

/* @extend: extend the sign, which is the highest bit of the last byte. */
static uint64_t leb(struct gm_cfi_cursor *cursor, bool extend)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		uint64_t byte = gm_cfi_unsigned(cursor, 1);

		if (shift < 64)
			value |= (byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value | (extend && shift + 7 < 64 && byte & 0x40 ? ~UINT64_C(0) << (shift + 7) : 0);
	}
	cursor->failed = true;
	return 0;
}

uint64_t gm_cfi_uleb(struct gm_cfi_cursor *cursor)
{
	return leb(cursor, false);
}

int64_t gm_cfi_sleb(struct gm_cfi_cursor *cursor)
{
	return (int64_t)leb(cursor, true);
}

uintptr_t gm_cfi_pointer(struct gm_cfi_cursor *cursor, uint8_t encoding, uintptr_t data_base)
{
	uintptr_t place = cursor->at;
	unsigned int format = encoding & PE_FORMAT;
	uintptr_t value;

	if (encoding == PE_OMIT)
		return 0;
	switch (format) {
	case PE_ABSPTR:
		value = gm_cfi_unsigned(cursor, 8);
		break;
	case PE_ULEB:
		value = gm_cfi_uleb(cursor);
		break;
	case PE_UDATA2 ... PE_UDATA8:
		value = gm_cfi_unsigned(cursor, 2u << (format - PE_UDATA2));
		break;
	case PE_SLEB:
		value = (uintptr_t)gm_cfi_sleb(cursor);
		break;
	case PE_SDATA2 ... PE_SDATA8:
		value = (uintptr_t)gm_cfi_signed(cursor, 2u << (format - PE_SDATA2));
		break;
	default:
		cursor->failed = true;
		return 0;
	}
	switch (encoding & PE_APPLICATION) {
	case 0:
		break;
	case PE_PCREL:
		value += place;
		break;
	case PE_DATAREL:
		value += data_base;
		break;
	default:
		cursor->failed = true;
	}
	/* Only the pointer to a personality routine is indirect, and this unwinder does not use it. */
	return value;
}
