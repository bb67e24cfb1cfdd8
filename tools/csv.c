/*
 * csv.c - rows of comma-separated values: see csv.h. One thread.
 */
#include "tools/csv.h"

#include <errno.h>
#include <stdlib.h>

#define KEPT_MOST ((size_t)128 << 20)	/* bytes of texts */

void gm_csv_quoted(struct gm_sink *sink, const char *text)
{
	const char *quote;

	gm_sink_put(sink, "\"", 1);
	for (; (quote = strchr(text, '"')); text = quote + 1) {
		gm_sink_put(sink, text, (size_t)(quote + 1 - text));
		gm_sink_put(sink, "\"", 1);
	}
	gm_sink_text(sink, text);
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

/* ---- stacks ----------------------------------------------------------------------------------- */

int gm_csv_stacks_open(struct gm_csv_stacks *of, const struct gm_stacks *stacks)
{
	*of = (struct gm_csv_stacks){ .stacks = stacks, .texts = calloc(stacks->count + 1, sizeof(*of->texts)) };
	return of->texts ? 0 : -ENOMEM;
}

void gm_csv_stacks_close(struct gm_csv_stacks *of)
{
	for (size_t i = 0; of->texts && i < of->stacks->count; i++)
		free(of->texts[i].text);
	free(of->texts);
	free(of->scratch);
}

/* @text without a quote alone, at the end of the scratch. Returns 0 or -ENOMEM. */
static int add(struct gm_csv_stacks *of, const char *text, size_t bytes)
{
	if (of->count + 2 * bytes > of->room) {
		size_t room = 2 * (of->count + 2 * bytes) + 4096;
		char *larger = realloc(of->scratch, room);

		if (!larger)
			return -ENOMEM;
		of->scratch = larger;
		of->room = room;
	}
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '"')
			of->scratch[of->count++] = '"';
		of->scratch[of->count++] = text[i];
	}
	return 0;
}

static int add_frame(struct gm_csv_stacks *of, const struct gm_frame *frame, bool last)
{
	char room[24], *line = gm_sink_digits(room, frame->line > 0 ? (uint64_t)frame->line : 0, false);
	int r = add(of, frame->name, strlen(frame->name));

	if (!r && frame->line > 0) {
		r = add(of, " (", 2);
		if (!r)
			r = add(of, frame->file, strlen(frame->file));
		if (!r)
			r = add(of, ":", 1);
		if (!r)
			r = add(of, line, (size_t)(room + sizeof(room) - line));
		if (!r)
			r = add(of, ")", 1);
	}
	return r || last ? r : add(of, ";", 1);
}

/* The text of @stack, in the scratch. Returns 0 or -ENOMEM. */
static int make(struct gm_csv_stacks *of, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(of->stacks, stack, &count);
	int r = 0;

	of->count = 0;
	while (count-- && !r)
		r = add_frame(of, &of->stacks->frames[ids[count]], !count);
	return r;
}

/* @known gets the text that is in the scratch, while there is room for more of them. */
static void remember(struct gm_csv_stacks *of, struct gm_csv_text *known)
{
	if (!of->count || of->kept + of->count > KEPT_MOST)
		return;
	known->text = malloc(of->count);
	if (!known->text)
		return;
	memcpy(known->text, of->scratch, of->count);
	known->bytes = of->count;
	of->kept += of->count;
}

int gm_csv_stack(struct gm_csv_stacks *of, struct gm_sink *sink, int64_t stack)
{
	bool is_one = stack >= 0 && (uint64_t)stack < of->stacks->count;
	const struct gm_csv_text *known = is_one ? &of->texts[stack] : NULL;

	gm_sink_put(sink, "\"", 1);
	if (known && known->text) {
		gm_sink_put(sink, known->text, known->bytes);
	} else if (is_one) {
		if (make(of, stack))
			return -ENOMEM;
		if (of->count)
			gm_sink_put(sink, of->scratch, of->count);
		remember(of, &of->texts[stack]);
	}
	gm_sink_put(sink, "\"", 1);
	return 0;
}
