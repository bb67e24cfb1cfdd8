/*
 * csv.c - rows of comma-separated values: see csv.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/write/csv.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/read/json_flat.h"
#include "tools/read/load.h"
#include "tools/show/show.h"

#define KEPT_MOST ((size_t)128 << 20)	/* bytes of texts */

/* Spreadsheets take a cell that begins so for a formula, quoted or not: an apostrophe keeps it a text. */
static bool is_formula(const char *text)
{
	return *text && strchr("=+-@\t\r", *text);
}

/* How many bytes of @text can stand in a cell as they are. */
static size_t plain_bytes(const char *text, size_t bytes)
{
	size_t at = 0;

	while (bytes - at >= 8 && gm_flat_plain(text + at))
		at += 8;
	while (at < bytes && text[at] != '"' && !gm_show_control(text + at))
		at++;
	return at;
}

/* What the bytes behind those become; they are @ret_bytes. */
static const char *instead(const char *text, size_t *ret_bytes)
{
	*ret_bytes = *text == '"' ? 1 : gm_show_control(text);
	return *text == '"' ? "\"\"" : "?";
}

void gm_csv_quoted(struct gm_sink *sink, const char *text)
{
	size_t left = strlen(text), bytes;

	gm_sink_put(sink, "\"'", is_formula(text) ? 2 : 1);
	while (left) {
		bytes = plain_bytes(text, left);
		gm_sink_put(sink, text, bytes);
		left -= bytes;
		text += bytes;
		if (!left)
			break;
		gm_sink_text(sink, instead(text, &bytes));
		left -= bytes;
		text += bytes;
	}
	gm_sink_put(sink, "\"", 1);
}

/* "17,0,": when and where. */
static void put_moment(struct gm_sink *sink, const struct gm_row *row)
{
	gm_sink_number(sink, row->time_us);
	if (row->device == GM_ROW_HOST) {
		gm_sink_text(sink, ",host,");
		return;
	}
	gm_sink_put(sink, ",", 1);
	gm_sink_number(sink, row->device);
	gm_sink_put(sink, ",", 1);
}

void gm_csv_begin_row(struct gm_sink *sink, const struct gm_row *row)
{
	put_moment(sink, row);
	gm_csv_quoted(sink, row->action);
	gm_sink_put(sink, ",", 1);
	gm_sink_word(sink, row->address);
	gm_sink_put(sink, ",", 1);
	gm_sink_number(sink, row->size);
	gm_sink_put(sink, ",", 1);
	gm_sink_number(sink, row->stream);
	gm_sink_put(sink, ",", 1);
	gm_csv_quoted(sink, row->kind);
	gm_sink_put(sink, ",", 1);
	gm_sink_number(sink, row->thread);
	gm_sink_put(sink, ",", 1);
}

void gm_csv_annotation(struct gm_sink *sink, const json_t *root, const struct gm_row *row)
{
	const json_t *annotation = gm_row_annotation(root, row);

	if (annotation)
		gm_csv_quoted(sink, gm_json_text(annotation, "stage"));
	gm_sink_put(sink, ",", 1);
	if (annotation)
		gm_csv_quoted(sink, gm_json_text(annotation, "name"));
}

/* ---- stacks ----------------------------------------------------------------------------------- */

/* A name as it stands in a cell: most are there already. NULL: out of memory. */
static const char *made_up(struct gm_csv_stacks *of, const char *text, size_t *ret_bytes)
{
	size_t left = strlen(text), bytes = plain_bytes(text, left);
	const struct gm_value *value;
	char *made, *at;

	*ret_bytes = left;
	if (bytes == left)
		return text;
	made = at = malloc(2 * left);
	for (; made && left; left -= bytes, text += bytes) {
		bytes = plain_bytes(text, left);
		at = mempcpy(at, text, bytes);
		if (bytes < left) {
			left -= bytes;
			text += bytes;
			at = stpcpy(at, instead(text, &bytes));
		}
	}
	value = made ? gm_value_text(of->values, made, (size_t)(at - made)) : NULL;
	*ret_bytes = (size_t)(at - made);
	free(made);
	return value ? value->u.text : NULL;
}

int gm_csv_stacks_open(struct gm_csv_stacks *of, const struct gm_stacks *stacks)
{
	bool whole;

	*of = (struct gm_csv_stacks){
		.stacks = stacks, .texts = calloc(stacks->count + 1, sizeof(*of->texts)),
		.frames = calloc(stacks->frame_count + 1, sizeof(*of->frames)), .values = gm_values_open(SIZE_MAX),
	};
	whole = of->texts && of->frames && of->values;
	for (size_t i = 0; whole && i < stacks->frame_count; i++) {
		struct gm_csv_frame *frame = &of->frames[i];

		frame->name = made_up(of, stacks->frames[i].name, &frame->name_bytes);
		frame->file = made_up(of, stacks->frames[i].file, &frame->file_bytes);
		whole = frame->name && frame->file;
	}
	if (whole)
		return 0;
	gm_csv_stacks_close(of);
	return -ENOMEM;
}

void gm_csv_stacks_close(struct gm_csv_stacks *of)
{
	for (size_t i = 0; of->texts && i < of->stacks->count; i++)
		free(of->texts[i].text);
	free(of->texts);
	free(of->frames);
	gm_values_close(of->values);
}

/* Stacks whose texts are too many to be kept. */
static void put_frame(const struct gm_csv_stacks *of, struct gm_sink *sink, uint32_t id, bool last)
{
	const struct gm_csv_frame *frame = &of->frames[id];
	int64_t line = of->stacks->frames[id].line;

	gm_sink_put_kept(sink, frame->name, frame->name_bytes);
	if (line > 0) {
		gm_sink_put(sink, " (", 2);
		gm_sink_put_kept(sink, frame->file, frame->file_bytes);
		gm_sink_put(sink, ":", 1);
		gm_sink_number(sink, line);
		gm_sink_put(sink, ")", 1);
	}
	if (!last)
		gm_sink_put(sink, ";", 1);
}

/* The same at the end of what is made up. */
static char *copy_frame(const struct gm_csv_stacks *of, char *to, uint32_t id, bool last)
{
	const struct gm_csv_frame *frame = &of->frames[id];
	int64_t line = of->stacks->frames[id].line;
	char room[24], *digits;

	to = mempcpy(to, frame->name, frame->name_bytes);
	if (line > 0) {
		to = mempcpy(to, " (", 2);
		to = mempcpy(to, frame->file, frame->file_bytes);
		*to++ = ':';
		digits = gm_sink_digits(room, (uint64_t)line, false);
		to = mempcpy(to, digits, (size_t)(room + sizeof(room) - digits));
		*to++ = ')';
	}
	if (!last)
		*to++ = ';';
	return to;
}

/* Make up the text of @stack, as long as there is room for more of them. */
static void make(struct gm_csv_stacks *of, struct gm_csv_text *ret, const uint32_t *ids, size_t count)
{
	size_t most = 0;
	char *at;

	for (size_t i = 0; i < count; i++)
		most += of->frames[ids[i]].name_bytes + of->frames[ids[i]].file_bytes + 32;
	ret->text = most <= KEPT_MOST - of->kept ? malloc(most + 2) : NULL;
	if (!ret->text)
		return;
	at = ret->text;
	if (is_formula(of->frames[ids[count - 1]].name))
		*at++ = '\'';
	while (count--)
		at = copy_frame(of, at, ids[count], !count);
	ret->bytes = (size_t)(at - ret->text);
	of->kept += ret->bytes;
	at = realloc(ret->text, ret->bytes + 1);
	ret->text = at ? at : ret->text;
}

void gm_csv_stack(struct gm_csv_stacks *of, struct gm_sink *sink, int64_t stack)
{
	bool is_one = stack >= 0 && (uint64_t)stack < of->stacks->count;
	struct gm_csv_text *known = is_one ? &of->texts[stack] : NULL;
	size_t count = 0;
	const uint32_t *ids = known && !known->text ? gm_stack(of->stacks, stack, &count) : NULL;

	gm_sink_put(sink, "\"", 1);
	if (count)
		make(of, known, ids, count);
	if (known && known->text)
		gm_sink_put_kept(sink, known->text, known->bytes);
	else if (count && is_formula(of->frames[ids[count - 1]].name))
		gm_sink_put(sink, "'", 1);
	if (!known || !known->text)
		while (count--)
			put_frame(of, sink, ids[count], !count);
	gm_sink_put(sink, "\"", 1);
}

void gm_csv_expect(const struct gm_csv_stacks *of, int64_t stack, bool soon)
{
	const struct gm_csv_text *text = stack >= 0 && (uint64_t)stack < of->stacks->count ? &of->texts[stack] : NULL;

	if (text && !soon)
		__builtin_prefetch(text);
	for (size_t at = 0; text && soon && text->text && at < 4; at++)
		__builtin_prefetch(text->text + 64 * at);
}
