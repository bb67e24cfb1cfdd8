/*
 * text.c - see text.h.
 */
#include <string.h>

#include "preload/options/text.h"

void gm_line_add_span(struct gm_line *line, struct gm_page_map map)
{
	for (size_t i = 0; i < map.length; i++, line->used++)
		if (line->used + 1 < line->room)
			line->text[line->used] = map.text[i];
	if (line->room)
		line->text[line->used < line->room ? line->used : line->room - 1] = '\0';
}

void gm_line_add(struct gm_line *line, const char *text)
{
	gm_line_add_span(line, gm_page_map_of(text));
}

void gm_line_add_number(struct gm_line *line, uint64_t number)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	gm_line_add_span(line, (struct gm_page_map){ digits + at, sizeof(digits) - at });
}

struct gm_page_map gm_page_map_of(const char *text)
{
	return (struct gm_page_map){ text, strlen(text) };
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct gm_page_map gm_page_map_trim(struct gm_page_map map)
{
	while (map.length && blank(map.text[0])) {
		map.text++;
		map.length--;
	}
	while (map.length && blank(map.text[map.length - 1]))
		map.length--;
	return map;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool gm_page_map_is(struct gm_page_map map, const char *word)
{
	size_t i = 0;

	while (i < map.length && word[i] && lower(map.text[i]) == lower(word[i]))
		i++;
	return i == map.length && !word[i];
}

struct gm_page_map gm_page_map_cut(struct gm_page_map *rest, char separator)
{
	struct gm_page_map part = { rest->text, 0 };
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
	return gm_page_map_trim(part);
}
