/*
 * csv.c - rows of comma-separated values: see csv.h. One thread.
 */
#define _GNU_SOURCE
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
	*of = (struct gm_csv_stacks){
		.stacks = stacks, .texts = calloc(stacks->count + 1, sizeof(*of->texts)),
		.frames = calloc(stacks->frame_count + 1, sizeof(*of->frames)),
	};
	for (size_t i = 0; of->frames && i < stacks->frame_count; i++) {
		const struct gm_frame *frame = &stacks->frames[i];
		size_t name = strlen(frame->name), file = strlen(frame->file);

		of->frames[i] = (struct gm_csv_frame){
			name, file, memchr(frame->name, '"', name) || memchr(frame->file, '"', file)
		};
	}
	if (of->texts && of->frames)
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
}

/* A name, which stays where it is as long as the snapshot does. */
static void put_text(struct gm_sink *sink, const char *text, size_t bytes, bool quoted)
{
	const char *quote;

	while (quoted && (quote = memchr(text, '"', bytes))) {
		gm_sink_put(sink, text, (size_t)(quote + 1 - text));
		gm_sink_put(sink, "\"", 1);
		bytes -= (size_t)(quote + 1 - text);
		text = quote + 1;
	}
	gm_sink_put_kept(sink, text, bytes);
}

/* Stacks whose texts are too many to be kept. */
static void put_frame(const struct gm_csv_stacks *of, struct gm_sink *sink, uint32_t id, bool last)
{
	const struct gm_frame *frame = &of->stacks->frames[id];
	const struct gm_csv_frame *about = &of->frames[id];

	put_text(sink, frame->name, about->name, about->quoted);
	if (frame->line > 0) {
		gm_sink_put(sink, " (", 2);
		put_text(sink, frame->file, about->file, about->quoted);
		gm_sink_put(sink, ":", 1);
		gm_sink_number(sink, frame->line);
		gm_sink_put(sink, ")", 1);
	}
	if (!last)
		gm_sink_put(sink, ";", 1);
}

/* The same at the end of what is made up. */
static char *copy_text(char *to, const char *text, size_t bytes, bool quoted)
{
	const char *quote;

	while (quoted && (quote = memchr(text, '"', bytes))) {
		to = mempcpy(to, text, (size_t)(quote + 1 - text));
		*to++ = '"';
		bytes -= (size_t)(quote + 1 - text);
		text = quote + 1;
	}
	return mempcpy(to, text, bytes);
}

static char *copy_frame(const struct gm_csv_stacks *of, char *to, uint32_t id, bool last)
{
	const struct gm_frame *frame = &of->stacks->frames[id];
	const struct gm_csv_frame *about = &of->frames[id];
	char room[24], *line;

	to = copy_text(to, frame->name, about->name, about->quoted);
	if (frame->line > 0) {
		to = mempcpy(to, " (", 2);
		to = copy_text(to, frame->file, about->file, about->quoted);
		*to++ = ':';
		line = gm_sink_digits(room, (uint64_t)frame->line, false);
		to = mempcpy(to, line, (size_t)(room + sizeof(room) - line));
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

	for (size_t i = 0; i < count; i++) {
		const struct gm_csv_frame *about = &of->frames[ids[i]];

		most += (about->quoted ? 2 : 1) * (about->name + about->file) + 32;
	}
	ret->text = most <= KEPT_MOST - of->kept ? malloc(most + 1) : NULL;
	if (!ret->text)
		return;
	at = ret->text;
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
	else
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
