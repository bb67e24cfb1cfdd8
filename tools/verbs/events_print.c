/*
 * events_print.c - events as CSV, as JSON lines and as a table: see events_print.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/verbs/events_print.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/csv.h"
#include "tools/show/groups.h"
#include "tools/show/lives.h"
#include "tools/read/load.h"
#include "tools/show/show.h"

/* ---- lines for machines ----------------------------------------------------------------------- */

/* @cells: of the stacks, NULL where they were not asked for. */
static void put_csv(struct gm_out *out, const json_t *root, const struct gm_row *row,
		    struct gm_csv_stacks *cells)
{
	gm_csv_begin_row(out, row);
	gm_out_number(out, row->stack);
	gm_out_text(out, ",");
	gm_csv_quoted(out, gm_show_module_path(root, row->module));
	gm_out_text(out, ",");
	gm_csv_annotation(out, root, row);
	if (cells) {
		gm_out_text(out, ",");
		gm_csv_stack(cells, out, row->stack);
	}
	gm_out_text(out, "\n");
}

static int print_csv(const struct gm_events *events)
{
	struct gm_out out = gm_out_to(stdout);
	struct gm_csv_stacks cells;
	int r;

	if (events->stacks && gm_csv_stacks_open(&cells, events->stacks))
		return -ENOMEM;
	gm_out_text(&out, "time_us,device,action,addr,size,stream,kind,thread,stack,module," GM_CSV_ANNOTATION);
	gm_out_text(&out, events->stacks ? ",frames\n" : "\n");
	for (size_t i = 0; i < events->count && !out.error; i++)
		put_csv(&out, events->root, &events->rows[i], events->stacks ? &cells : NULL);
	r = gm_out_end(&out);
	if (events->stacks)
		gm_csv_stacks_close(&cells);
	return r;
}

/* ,"name":"text" */
static int put_json_text(struct gm_out *out, const char *name, const char *text)
{
	char *quoted = NULL;
	json_t *string;
	size_t bytes;
	FILE *to;

	gm_out_text(out, name);
	/* Letters that begin with the last three may be such as a terminal obeys: see gm_show_control. */
	if (!text[strcspn(text, "\"\\\1\2\3\4\5\6\a\b\t\n\v\f\r\16\17\20\21\22\23\24\25\26\27\30\31\32"
			     "\33\34\35\36\37\177\302\330\342")]) {
		gm_out_text(out, "\"");
		gm_out_text(out, text);
		gm_out_text(out, "\"");
		return 0;
	}
	string = json_string(text);
	to = open_memstream(&quoted, &bytes);
	if (to && string)
		gm_show_json(to, string, JSON_ENCODE_ANY);
	if (to)
		fclose(to);
	if (quoted)
		gm_out_text(out, quoted);
	free(quoted);
	json_decref(string);
	return to && string ? 0 : -ENOMEM;
}

static void put_json_number(struct gm_out *out, const char *name, int64_t number)
{
	gm_out_text(out, name);
	gm_out_number(out, number);
}

static int put_json_annotation(struct gm_out *out, const json_t *annotation)
{
	const char *domain = gm_json_text(annotation, "domain");
	int r = put_json_text(out, ",\"stage\":", gm_json_text(annotation, "stage"));

	r = put_json_text(out, ",\"name\":", gm_json_text(annotation, "name")) ? -ENOMEM : r;
	if (json_is_string(json_object_get(annotation, "domain")))
		return put_json_text(out, ",\"domain\":", domain) ? -ENOMEM : r;
	gm_out_text(out, ",\"domain\":null");
	return r;
}

/* A list of objects, innermost frame first. */
static int put_json_frames(struct gm_out *out, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);
	int r = 0;

	gm_out_text(out, ",\"frames\":[");
	for (size_t i = 0; i < count && !r; i++) {
		const struct gm_frame *frame = &stacks->frames[ids[i]];

		r = put_json_text(out, i ? ",{\"name\":" : "{\"name\":", frame->name) ||
		    put_json_text(out, ",\"file\":", frame->file) ? -ENOMEM : 0;
		put_json_number(out, ",\"line\":", frame->line);
		r = put_json_text(out, ",\"module\":", frame->module) ? -ENOMEM : r;
		gm_out_text(out, "}");
	}
	gm_out_text(out, "]");
	return r;
}

static int put_jsonl(struct gm_out *out, const struct gm_events *events, const struct gm_row *row)
{
	const json_t *root = events->root, *annotation = gm_row_annotation(root, row);
	int r;

	put_json_number(out, "{\"time_us\":", row->time_us);
	r = put_json_text(out, ",\"action\":", row->action);
	put_json_number(out, ",\"addr\":", (int64_t)row->address);
	put_json_number(out, ",\"size\":", row->size);
	put_json_number(out, ",\"stream\":", row->stream);
	r = put_json_text(out, ",\"kind\":", row->kind) ? -ENOMEM : r;
	put_json_number(out, ",\"thread\":", row->thread);
	put_json_number(out, ",\"stack\":", row->stack);
	r = put_json_text(out, ",\"module\":", gm_show_module_path(root, row->module)) ? -ENOMEM : r;
	if (row->device == GM_ROW_HOST)
		gm_out_text(out, ",\"device\":null");
	else
		put_json_number(out, ",\"device\":", row->device);
	if (annotation)
		r = put_json_annotation(out, annotation) ? -ENOMEM : r;
	if (events->stacks)
		r = put_json_frames(out, events->stacks, row->stack) ? -ENOMEM : r;
	gm_out_text(out, "}\n");
	return r;
}

static int print_jsonl(const struct gm_events *events)
{
	struct gm_out out = gm_out_to(stdout);
	int r = 0, end;

	for (size_t i = 0; i < events->count && !out.error && !r; i++)
		r = put_jsonl(&out, events, &events->rows[i]);
	end = gm_out_end(&out);
	return r ? r : end;
}

/* ---- the table -------------------------------------------------------------------------------- */

/* Words as they are shown, by where they lie in the snapshot: a million events have few. */
#define WORDS 64u			/* a power of two */

struct word { const void *of; size_t length; char text[1024]; };
struct table {
	struct gm_out out;
	struct word words[WORDS];
	char **frames;			/* their lines, by number; NULL: not asked for yet */
};

/* @text is static memory of whoever cleaned it. */
static const struct word *keep_word(struct word *word, const void *of, const char *text)
{
	word->of = of;
	word->length = strlen(text);
	memcpy(word->text, text, word->length + 1);
	return word;
}

static struct word *place_of(struct table *table, const void *of)
{
	return &table->words[((uintptr_t)of >> 3) * UINT32_C(0x9e3779b1) >> 7 & (WORDS - 1)];
}

static const struct word *word_of(struct table *table, const char *text)
{
	struct word *word = place_of(table, text);

	return word->of == text ? word : keep_word(word, text, gm_show_clean(text));
}

static const struct word *module_of(struct table *table, const json_t *root, int64_t module)
{
	const char *path = gm_show_module_path(root, module);
	struct word *word = place_of(table, path);

	return word->of == path ? word : keep_word(word, path, gm_show_module(root, module));
}

static void put_blanks(struct gm_out *out, size_t length, size_t width)
{
	static const char blanks[] = "                                ";

	if (length < width)
		gm_out_put(out, blanks, width - length);
}

/* At the right of @width letters, and a blank. */
static void put_right(struct gm_out *out, const char *text, size_t length, size_t width)
{
	put_blanks(out, length, width);
	gm_out_put(out, text, length);
	gm_out_text(out, " ");
}

static void put_left(struct gm_out *out, const struct word *word, size_t width)
{
	gm_out_put(out, word->text, word->length);
	put_blanks(out, word->length, width);
	gm_out_text(out, " ");
}

/* Seconds, with six digits behind the point. */
static void put_seconds(struct gm_out *out, int64_t time_us)
{
	uint64_t us = time_us < 0 ? 0 - (uint64_t)time_us : (uint64_t)time_us;
	char text[40];
	int length = snprintf(text, sizeof(text), "%s%llu.%06llu", time_us < 0 ? "-" : "",
			      (unsigned long long)(us / 1000000), (unsigned long long)(us % 1000000));

	put_right(out, text, (size_t)length, 14);
}

static void put_signed(struct gm_out *out, int64_t number, size_t width)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%lld", (long long)number);

	put_right(out, text, (size_t)length, width);
}

/* What the program said stands where others have their address, size, kind and module. */
static void put_said(struct gm_out *out, const struct gm_row *row, const json_t *annotation)
{
	const char *domain = gm_json_text(annotation, "domain");

	put_blanks(out, 0, 18 + 1 + 12 + 1);
	put_blanks(out, 0, 8 + 1);
	put_signed(out, row->thread, 8);
	gm_out_text(out, " ");
	gm_out_text(out, gm_show_clean(gm_json_text(annotation, "stage")));
	gm_out_text(out, " ");
	gm_out_text(out, gm_show_clean(gm_json_text(annotation, "name")));
	if (domain[0]) {
		gm_out_text(out, " (");
		gm_out_text(out, gm_show_clean(domain));
		gm_out_text(out, ")");
	}
}

static void put_memory(struct table *table, const json_t *root, const struct gm_row *row)
{
	struct gm_out *out = &table->out;
	const struct word *module;
	char address[64];
	const char *size;
	int length;

	if (!strcmp(row->action, "oom"))
		length = snprintf(address, sizeof(address), "%s free", gm_show_bytes((int64_t)row->address));
	else
		length = snprintf(address, sizeof(address), "%#llx", (unsigned long long)row->address);
	put_right(out, address, (size_t)length, 18);
	size = gm_show_bytes(row->size);
	put_right(out, size, strlen(size), 12);
	put_left(out, word_of(table, row->kind), 8);
	put_signed(out, row->thread, 8);
	module = module_of(table, root, row->module);
	gm_out_text(out, " ");
	gm_out_put(out, module->text, module->length);
}

/* The stack below its event, a line a frame. Returns 0 or -ENOMEM. */
static int put_stack(struct table *table, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);

	for (size_t i = 0; i < count; i++) {
		char **line = &table->frames[ids[i]], text[GM_FRAME_TEXT];

		if (!*line)
			*line = strdup(gm_groups_frame_text(&stacks->frames[ids[i]], text));
		if (!*line)
			return -ENOMEM;
		put_blanks(&table->out, 0, 22);
		gm_out_text(&table->out, *line);
		gm_out_text(&table->out, "\n");
	}
	return 0;
}

static void put_table_row(struct table *table, const struct gm_events *events, const struct gm_row *row)
{
	const json_t *annotation = gm_row_annotation(events->root, row);
	struct gm_out *out = &table->out;

	put_seconds(out, gm_wrap_subtract(row->time_us, events->origin_us));
	if (row->device == GM_ROW_HOST)
		put_right(out, "host", 4, 6);
	else
		put_signed(out, row->device, 6);
	put_left(out, word_of(table, row->action), 14);
	if (annotation)
		put_said(out, row, annotation);
	else
		put_memory(table, events->root, row);
	gm_out_text(out, "\n");
}

static int print_table(const struct gm_events *events)
{
	size_t frames = events->stacks ? events->stacks->frame_count : 0;
	struct table *table = calloc(1, sizeof(*table));
	int r, end;

	if (!table)
		return -ENOMEM;
	table->out = gm_out_to(stdout);
	table->frames = calloc(frames + 1, sizeof(*table->frames));
	r = table->frames ? 0 : -ENOMEM;
	for (size_t i = 0; !r && i < events->count && !table->out.error; i++) {
		put_table_row(table, events, &events->rows[i]);
		if (events->stacks && (!events->only_ooms || !strcmp(events->rows[i].action, "oom")))
			r = put_stack(table, events->stacks, events->rows[i].stack);
	}
	end = gm_out_end(&table->out);
	for (size_t i = 0; table->frames && i < frames; i++)
		free(table->frames[i]);
	free(table->frames);
	free(table);
	return r ? r : end;
}

int gm_events_print(const struct gm_events *events, enum gm_events_format format)
{
	if (format == GM_EVENTS_CSV)
		return print_csv(events);
	if (format == GM_EVENTS_JSONL)
		return print_jsonl(events);
	gm_show_heading(stdout, "%14s %6s %-14s %18s %12s %-8s %8s  %s", "seconds", "device", "action",
			"address", "size", "kind", "thread", "module");
	return print_table(events);
}
