/*
 * text.c - slices of text, and lines that are built in a buffer: see text.h.
 */
#include <string.h>

#include "preload/options/text.h"

void gm_line_add_slice(struct gm_line *line, struct gm_slice slice)
{
	for (size_t i = 0; i < slice.length; i++, line->used++)
		if (line->used + 1 < line->room)
			line->text[line->used] = slice.text[i];
	if (line->room)
		line->text[line->used < line->room ? line->used : line->room - 1] = '\0';
}

void gm_line_add(struct gm_line *line, const char *text)
{
	gm_line_add_slice(line, gm_slice_of(text));
}

void gm_line_add_number(struct gm_line *line, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	gm_line_add_slice(line, (struct gm_slice){ digits + at, sizeof(digits) - at });
}

struct gm_slice gm_slice_of(const char *text)
{
	return (struct gm_slice){ text, strlen(text) };
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct gm_slice gm_slice_trim(struct gm_slice slice)
{
	while (slice.length && blank(slice.text[0])) {
		slice.text++;
		slice.length--;
	}
	while (slice.length && blank(slice.text[slice.length - 1]))
		slice.length--;
	return slice;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool gm_slice_equals(struct gm_slice a, struct gm_slice b)
{
	size_t i = 0;

	while (i < a.length && i < b.length && lower(a.text[i]) == lower(b.text[i]))
		i++;
	return i == a.length && i == b.length;
}

bool gm_slice_is(struct gm_slice slice, const char *word)
{
	return gm_slice_equals(slice, gm_slice_of(word));
}

struct gm_slice gm_slice_cut(struct gm_slice *rest, char separator)
{
	struct gm_slice part = { rest->text, 0 };
	int depth = 0;

	while (part.length < rest->length) {
		char c = rest->text[part.length];

		if (c == separator && depth == 0)
			break;
		depth += c == '[' ? 1 : c == ']' && depth ? -1 : 0;
		part.length++;
	}
	rest->text += part.length;
	rest->length -= part.length;
	if (rest->length) {
		rest->text++;
		rest->length--;
	}
	return gm_slice_trim(part);
}

bool gm_slice_is_near(struct gm_slice a, const char *word)
{
	struct gm_slice b = gm_slice_of(word);
	bool swapped;

	while (a.length && b.length && lower(a.text[0]) == lower(b.text[0])) {
		a.text++;
		b.text++;
		a.length--;
		b.length--;
	}
	while (a.length && b.length && lower(a.text[a.length - 1]) == lower(b.text[b.length - 1])) {
		a.length--;
		b.length--;
	}
	swapped = a.length == 2 && b.length == 2 && lower(a.text[0]) == lower(b.text[1]) &&
		  lower(a.text[1]) == lower(b.text[0]);
	return (a.length <= 1 && b.length <= 1) || swapped;
}
