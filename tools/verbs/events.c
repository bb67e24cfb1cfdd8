/*
 * events.c - gpumem events FILE|JOURNAL|PID: the trace, filtered, as a table, CSV or JSON lines.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/symbols/symbols.h"
#include "tools/verbs/opened.h"
#include "tools/write/convert.h"
#include "tools/write/writer.h"

#define BLANKS "                  "

enum format { GM_EVENTS_TABLE, GM_EVENTS_CSV, GM_EVENTS_JSONL };

struct events {
	const json_t *root;
	const struct gm_row *rows;
	size_t count;
	int64_t origin_us;		/* the times of a table count from here */
	const struct gm_stacks *stacks;	/* show the stack of each event; NULL: no stacks */
	bool only_ooms;			/* in a table: show the stacks of failed requests only */
};

struct filter {
	const char *actions, *kinds, *module, *device, *stack;
	uint64_t min_size, max_size;
	struct gm_asked address, stream;
	double since, until;			/* NAN: no limit */
	int64_t since_us, until_us;
	size_t last;
	bool *found;			/* does stack i contain the text @stack? */
	bool with_stacks;		/* show each event's stack */
	struct gm_stacks stacks;	/* opened if @stack, @with_stacks or a failed request needs them */
};

/* Is @word one of the words of @list, which has commas between them? */
static bool among(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, word, length) && (at[length] == ',' || !at[length]))
			return true;
	return false;
}

static bool passes(const struct filter *filter, const json_t *root, const struct gm_row *row)
{
	bool note = !strcmp(row->action, "annotate");
	int64_t size = note ? 0 : row->size;

	if (filter->actions && !among(filter->actions, row->action) &&
	    !(!strncmp(row->action, "free_", 5) && among(filter->actions, "free")))
		return false;
	if (filter->kinds && !among(filter->kinds, row->kind))
		return false;
	if (filter->device && (row->device == GM_ROW_HOST ? strcmp(filter->device, "host") != 0 :
			       strtol(filter->device, NULL, 10) != row->device ||
			       !strcmp(filter->device, "host")))
		return false;
	/* An annotation's size is the number of its range. */
	if (size < 0 || (uint64_t)size < filter->min_size || (uint64_t)size > filter->max_size)
		return false;
	if ((filter->stream.is && (uint64_t)row->stream != filter->stream.number) ||
	    (filter->stack && (row->stack < 0 || (uint64_t)row->stack >= filter->stacks.count ||
			       !filter->found[row->stack])))
		return false;
	/* An oom has the device's free bytes in place of an address. */
	if (filter->address.is &&
	    (note || !strcmp(row->action, "oom") || filter->address.number < row->address ||
	     (filter->address.number - row->address >= (uint64_t)size &&
	      filter->address.number != row->address)))
		return false;
	if ((!isnan(filter->since) && row->time_us < filter->since_us) ||
	    (!isnan(filter->until) && row->time_us > filter->until_us))
		return false;
	return !filter->module || strstr(gm_show_module_path(root, row->module), filter->module);
}

/* Find the stacks with a frame whose function or source file contains the text @filter->stack. Returns 0 or -ENOMEM. */
static int find_stacks(struct filter *filter)
{
	const struct gm_stacks *stacks = &filter->stacks;
	bool *frames = calloc(stacks->frame_count, sizeof(*frames));
	size_t count;

	filter->found = calloc(stacks->count + 1, sizeof(*filter->found));
	for (size_t i = 0; frames && i < stacks->frame_count; i++)
		frames[i] = strstr(stacks->frames[i].name, filter->stack) ||
			    strstr(stacks->frames[i].symbol, filter->stack) ||
			    strstr(stacks->frames[i].file, filter->stack);
	for (size_t i = 0; frames && filter->found && i < stacks->count; i++) {
		const uint32_t *ids = gm_stack(stacks, (int64_t)i, &count);

		while (count--)
			filter->found[i] |= frames[ids[count]];
	}
	count = frames && filter->found;
	free(frames);
	return count ? 0 : -ENOMEM;
}

/* ---- lines for machines ----------------------------------------------------------------------- */

/* Write "frames": a list of objects, innermost frame first. */
static void put_json_frames(struct gm_writer *w, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);

	gm_writer_string(w, "frames");
	if (count && gm_writer_again(w, (uint64_t)stack + 1, true))
		return;
	gm_writer_begin(w, GM_WRITER_LIST);
	for (size_t i = 0; i < count; i++) {
		const struct gm_frame *frame = &stacks->frames[ids[i]];

		gm_writer_begin(w, GM_WRITER_DICT);
		gm_writer_put_string(w, "name", frame->name);
		gm_writer_put_string(w, "file", frame->file);
		gm_writer_put_int(w, "line", frame->line);
		gm_writer_put_string(w, "module", frame->module);
		gm_writer_end(w);
	}
	gm_writer_end(w);
}

static void put_jsonl(struct gm_writer *w, const struct events *events, const struct gm_row *row)
{
	const json_t *root = events->root, *annotation = gm_row_annotation(root, row);

	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_int(w, "time_us", row->time_us);
	gm_writer_put_string(w, "action", row->action);
	gm_writer_put_int(w, "addr", (int64_t)row->address);
	gm_writer_put_int(w, "size", row->size);
	gm_writer_put_int(w, "stream", row->stream);
	gm_writer_put_string(w, "kind", row->kind);
	gm_writer_put_int(w, "thread", row->thread);
	gm_writer_put_int(w, "stack", row->stack);
	gm_writer_put_string(w, "module", gm_show_module_path(root, row->module));
	gm_writer_string(w, "device");
	if (row->device == GM_ROW_HOST)
		gm_writer_null(w);
	else
		gm_writer_int(w, row->device);
	if (annotation) {
		gm_writer_put_string(w, "stage", gm_json_text(annotation, "stage"));
		gm_writer_put_string(w, "name", gm_json_text(annotation, "name"));
		gm_writer_string(w, "domain");
		if (json_is_string(json_object_get(annotation, "domain")))
			gm_writer_string(w, gm_json_text(annotation, "domain"));
		else
			gm_writer_null(w);
	}
	if (events->stacks)
		put_json_frames(w, events->stacks, row->stack);
	gm_writer_end(w);
}

static int print_jsonl(const struct events *events)
{
	struct gm_writer *writer = events->count ? gm_writer_open(stdout, false) : NULL;

	if (!writer)
		return events->count ? -ENOMEM : 0;
	for (size_t i = 0; i < events->count; i++)
		put_jsonl(writer, events, &events->rows[i]);
	return gm_writer_close(writer);
}

/* ---- the table -------------------------------------------------------------------------------- */

/* The columns of a row. Without a terminal they are fixed, on a terminal as narrow as the rows allow. */
struct cells { int time, device, action, address, size, kind, thread; size_t columns; };

enum { FRAME_INDENT = 22, NARROW_INDENT = 4, LEAST = 12 };	/* LEAST: columns of a module's name */

/* Write the last column behind @used columns. On a terminal, write it in the next line if it has no room. */
static void put_last(struct gm_out *out, const struct cells *cells, int used, const char *text)
{
	char fit[GM_SITE_FIT];
	size_t left = cells->columns > (size_t)used ? cells->columns - (size_t)used : 0;
	bool here = left >= LEAST || strlen(text) <= left;

	if (cells->columns == SIZE_MAX) {
		gm_out_text(out, text);
		gm_out_text(out, "\n");
		return;
	}
	gm_text_fit(strcpy(fit, text), here ? left : cells->columns - NARROW_INDENT);
	gm_out_format(out, "%s%*s%s\n", here ? "" : "\n", here ? 0 : NARROW_INDENT, "", fit);
}

/* Write an annotation in place of address, size, kind and module. */
static void put_said(struct gm_out *out, const struct cells *cells, const struct gm_row *row, const json_t *annotation)
{
	const char *domain = gm_json_text(annotation, "domain");
	int blanks = cells->address + cells->size + cells->kind + 2;
	char text[GM_SITE_FIT];

	gm_out_format(out, "%*s %*lld  ", blanks, "", cells->thread, (long long)row->thread);
	snprintf(text, sizeof(text), "%s %s%s%s%s", gm_show_clean(gm_json_text(annotation, "stage")),
		 gm_show_clean(gm_json_text(annotation, "name")), domain[0] ? " (" : "",
		 gm_show_clean(domain), domain[0] ? ")" : "");
	put_last(out, cells, cells->time + cells->device + cells->action + blanks + cells->thread + 6, text);
}

/* Write a cell like printf's %*s, in a fifth of the time. @width < 0: aligned to the left. */
static void put_cell(struct gm_out *out, int width, const char *text)
{
	int blanks = abs(width) - (int)strlen(text);

	if (width > 0 && blanks > 0)
		gm_out_put(out, BLANKS, (size_t)blanks);
	gm_out_text(out, text);
	if (width < 0 && blanks > 0)
		gm_out_put(out, BLANKS, (size_t)blanks);
	gm_out_put(out, BLANKS, 1);
}

/* Write the address of an event, or what was free at an oom, which has no address. */
static void put_address(char text[64], const struct gm_row *row)
{
	if (!strcmp(row->action, "oom"))
		snprintf(text, 64, "%s free", gm_show_bytes((int64_t)row->address));
	else
		snprintf(text, 64, "%#llx", (unsigned long long)row->address);
}

static void put_memory(struct gm_out *out, const struct cells *cells, const json_t *root, const struct gm_row *row)
{
	char text[64];

	put_address(text, row);
	put_cell(out, cells->address, text);
	put_cell(out, cells->size, gm_show_bytes(row->size));
	put_cell(out, -cells->kind, gm_show_clean(row->kind));
	gm_out_format(out, "%*lld  ", cells->thread, (long long)row->thread);
	put_last(out, cells, cells->time + cells->device + cells->action + cells->address + cells->size + cells->kind +
		 cells->thread + 8, gm_show_module(root, row->module));
}

/* Write the time of an event in seconds since the origin: "0.038123". */
static void put_time(char text[64], const struct events *events, const struct gm_row *row)
{
	int64_t time_us = gm_wrap_subtract(row->time_us, events->origin_us);
	uint64_t us = time_us < 0 ? 0 - (uint64_t)time_us : (uint64_t)time_us;

	snprintf(text, 64, "%s%" PRIu64 ".%06" PRIu64, time_us < 0 ? "-" : "", us / 1000000, us % 1000000);
}

static void put_row(struct gm_out *out, const struct cells *cells, const struct events *events,
		    const struct gm_row *row)
{
	const json_t *annotation = gm_row_annotation(events->root, row);
	char text[64];

	put_time(text, events, row);
	put_cell(out, cells->time, text);
	snprintf(text, sizeof(text), row->device == GM_ROW_HOST ? "host" : "%d", row->device);
	put_cell(out, cells->device, text);
	put_cell(out, -cells->action, gm_show_clean(row->action));
	if (annotation)
		put_said(out, cells, row, annotation);
	else
		put_memory(out, cells, events->root, row);
}

/* Write the stack below its event, a line a frame. */
static void put_stack(struct gm_out *out, const struct cells *cells, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);
	int indent = cells->columns == SIZE_MAX ? FRAME_INDENT : NARROW_INDENT;

	for (size_t i = 0; i < count; i++) {
		char text[GM_FRAME_TEXT], fit[GM_SITE_FIT];
		const char *line = gm_groups_frame_text(&stacks->frames[ids[i]], text);

		if (cells->columns != SIZE_MAX)
			line = gm_site_fit(line, cells->columns - NARROW_INDENT, fit);
		gm_out_format(out, "%*s%s\n", indent, "", line);
	}
}

static void widen(int *cell, const char *text)
{
	int length = (int)strlen(text);

	*cell = length > *cell ? length : *cell;
}

static struct cells cells_of(const struct events *events)
{
	const struct cells wide = { 14, 6, 14, 18, 12, 8, 8, gm_show_columns(stdout) };
	struct cells cells = { 7, 4, 6, 7, 4, 4, 6, wide.columns };
	char text[64];

	if (wide.columns == SIZE_MAX)
		return wide;
	for (size_t i = 0; i < events->count; i++) {
		const struct gm_row *row = &events->rows[i];

		put_time(text, events, row);
		widen(&cells.time, text);
		widen(&cells.action, gm_show_clean(row->action));
		snprintf(text, sizeof(text), "%lld", (long long)row->thread);
		widen(&cells.thread, text);
		if (gm_row_annotation(events->root, row))
			continue;
		put_address(text, row);
		widen(&cells.address, text);
		widen(&cells.size, gm_show_bytes(row->size));
		widen(&cells.kind, gm_show_clean(row->kind));
	}
	return cells;
}

static int print_table(const struct events *events)
{
	const struct cells cells = cells_of(events);
	struct gm_out out = gm_out_to(stdout);

	gm_show_heading(stdout, "%*s %*s %-*s %*s %*s %-*s %*s  %s", cells.time, "seconds", cells.device,
			cells.columns == SIZE_MAX ? "device" : "dev.", cells.action, "action", cells.address, "address",
			cells.size, "size", cells.kind, "kind", cells.thread, "thread", "module");
	for (size_t i = 0; i < events->count && !out.error; i++) {
		const struct gm_row *row = &events->rows[i];

		put_row(&out, &cells, events, row);
		if (events->stacks && (!events->only_ooms || !strcmp(row->action, "oom")))
			put_stack(&out, &cells, events->stacks, row->stack);
	}
	return gm_out_end(&out);
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* Say that there are no events to show: below the table's heading, or on stderr if the output is for machines. */
static void say_nothing(size_t count, enum format format)
{
	FILE *out = format == GM_EVENTS_TABLE ? stdout : stderr;

	if (format != GM_EVENTS_TABLE)
		fputs("gpumem events: ", out);
	if (count)
		fprintf(out, "none of %s passes the filter\n", gm_show_count((int64_t)count, "event"));
	else
		fputs("no events: the history kept none (see the option history)\n", out);
}

/* Move the events that pass the filter to the front of the rows, and print them. Returns 0 or -errno. */
static int print_rows(struct gm_snapshot *snapshot, struct filter *filter, enum format format)
{
	const json_t *root = snapshot->root;
	struct gm_row *rows = snapshot->rows;
	size_t count = snapshot->row_count;
	bool stacks = filter->with_stacks || (format == GM_EVENTS_TABLE && filter->stacks.count);
	struct events events = { .root = root, .stacks = stacks ? &filter->stacks : NULL,
				    .only_ooms = !filter->with_stacks };
	int64_t origin_us = gm_show_origin(snapshot);
	size_t kept = 0, first;
	int r;

	if (!isnan(filter->since))
		filter->since_us = gm_show_moment(snapshot, filter->since);
	if (!isnan(filter->until))
		filter->until_us = gm_show_moment(snapshot, filter->until);
	for (size_t i = 0; i < count; i++)
		if (passes(filter, root, &rows[i]))
			rows[kept++] = rows[i];
	first = kept > filter->last ? kept - filter->last : 0;
	events.rows = rows + first;
	events.count = kept - first;
	events.origin_us = origin_us;
	r = format == GM_EVENTS_CSV ? gm_csv_events(stdout, root, events.rows, events.count, events.stacks, true) :
	    format == GM_EVENTS_JSONL ? print_jsonl(&events) : print_table(&events);
	if (!r && !events.count)
		say_nothing(count, format);
	return r;
}

/* Is there an event of a failed request? Its stack is always shown, because everybody asks for it. */
static bool has_oom(const struct gm_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rows[i].action[0] == 'o' && !strcmp(rows[i].action, "oom"))
			return true;
	return false;
}

static int print_events(const char *word, struct filter *filter, enum gm_pool_level level, enum format format)
{
	struct gm_loaded loaded;
	int status, r;

	if (gm_load(word, GM_LOAD_WHOLE, &loaded))
		return gm_input_bad("events", word, loaded.error);
	status = gm_device_check("events", filter->device, word, loaded.snapshot.root);
	if (status) {
		gm_load_free(&loaded);
		return status;
	}
	r = gm_level_apply(&loaded.snapshot, level);
	if (!r)
		r = gm_snapshot_annotate(&loaded.snapshot);
	if (!r && (filter->stack || filter->with_stacks || has_oom(loaded.snapshot.rows, loaded.snapshot.row_count))) {
		r = gm_names_show("events", &loaded.snapshot);
		r = r ? r : gm_stacks_open(&filter->stacks, &loaded.snapshot);
	}
	if (!r && filter->stack)
		r = find_stacks(filter);
	r = r ? r : print_rows(&loaded.snapshot, filter, format);
	free(filter->found);
	gm_stacks_close(&filter->stacks);
	gm_load_free(&loaded);
	if (r == -ENOMEM || r == -E2BIG)
		return gm_input_bad("events", word, gm_limit_why(r));
	if (r) {
		fprintf(stderr, "gpumem events: the output could not be written: %s\n", gm_limit_why(r));
		return GM_EXIT_FAILED;
	}
	return gm_show_finish("events", GM_EXIT_OK);
}

int gm_verb_events(int argc, char **argv)
{
	struct filter filter = { .last = SIZE_MAX, .max_size = UINT64_MAX, .since = NAN, .until = NAN };
	bool csv = false, jsonl = false;
	int level = GM_LEVEL_POOL;
	const struct gm_argument arguments[] = {
		{ "action", GM_ARG_WORDS, &filter.actions }, { "kind", GM_ARG_WORDS, &filter.kinds },
		{ "device", GM_ARG_DEVICE_OR_HOST, &filter.device }, { "module", GM_ARG_TEXT, &filter.module },
		{ "min-size", GM_ARG_SIZE, &filter.min_size }, { "max-size", GM_ARG_SIZE, &filter.max_size },
		{ "stream", GM_ARG_STREAM, &filter.stream },
		{ "stack", GM_ARG_TEXT, &filter.stack },
		{ "address", GM_ARG_ADDRESS, &filter.address },
		{ "since", GM_ARG_TIME, &filter.since },
		{ "until", GM_ARG_TIME, &filter.until }, { "last", GM_ARG_COUNT, &filter.last },
		{ "level", GM_ARG_WORD, &level }, { "stacks", GM_ARG_FLAG, &filter.with_stacks },
		{ "csv", GM_ARG_FLAG, &csv }, { "jsonl", GM_ARG_FLAG, &jsonl },
		{ "json", GM_ARG_FLAG, &jsonl }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, 1);

	if (status >= 0)
		return status;
	return print_events(argv[optind], &filter, (enum gm_pool_level)level,
			    csv ? GM_EVENTS_CSV : jsonl ? GM_EVENTS_JSONL : GM_EVENTS_TABLE);
}
