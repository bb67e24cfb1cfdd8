/*
 * text.c - see text.h.
 */
#include <string.h>

#include "preload/options/text.h"

void gm_line_add_span(struct gm_line *line, struct gm_span span)
{
	for (size_t i = 0; i < span.length; i++, line->used++)
		if (line->used + 1 < line->room)
			line->text[line->used] = span.text[i];
	if (line->room)
		line->text[line->used < line->room ? line->used : line->room - 1] = '\0';
}

void gm_line_add(struct gm_line *line, const char *text)
{
	gm_line_add_span(line, gm_span_of(text));
}

void gm_line_add_number(struct gm_line *line, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	gm_line_add_span(line, (struct gm_span){ digits + at, sizeof(digits) - at });
}

struct gm_span gm_span_of(const char *text)
{
	return (struct gm_span){ text, strlen(text) };
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct gm_span gm_span_trim(struct gm_span span)
{
	while (span.length && blank(span.text[0])) {
		span.text++;
		span.length--;
	}
	while (span.length && blank(span.text[span.length - 1]))
		span.length--;
	return span;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool gm_span_is(struct gm_span span, const char *word)
{
	size_t i = 0;

	while (i < span.length && word[i] && lower(span.text[i]) == lower(word[i]))
		i++;
	return i == span.length && !word[i];
}

struct gm_span gm_span_cut(struct gm_span *rest, char separator)
{
	struct gm_span part = { rest->text, 0 };
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
	return gm_span_trim(part);
}
