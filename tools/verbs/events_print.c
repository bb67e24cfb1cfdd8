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

/* @name and the quoted text. */
static void put_json_text(struct gm_out *out, const char *name, const char *text)
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
		return;
	}
	string = json_string(text);
	to = open_memstream(&quoted, &bytes);
	if (to && string)
		gm_show_json(to, string, JSON_ENCODE_ANY);
	if (!to || fclose(to) || !string)
		out->error = -ENOMEM;
	else
		gm_out_text(out, quoted);
	free(quoted);
	json_decref(string);
}

static void put_json_number(struct gm_out *out, const char *name, int64_t number)
{
	gm_out_text(out, name);
	gm_out_number(out, number);
}

static void put_json_annotation(struct gm_out *out, const json_t *annotation)
{
	put_json_text(out, ",\"stage\":", gm_json_text(annotation, "stage"));
	put_json_text(out, ",\"name\":", gm_json_text(annotation, "name"));
	if (json_is_string(json_object_get(annotation, "domain")))
		put_json_text(out, ",\"domain\":", gm_json_text(annotation, "domain"));
	else
		gm_out_text(out, ",\"domain\":null");
}

/* A list of objects, innermost frame first. */
static void put_json_frames(struct gm_out *out, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);

	gm_out_text(out, ",\"frames\":[");
	for (size_t i = 0; i < count; i++) {
		const struct gm_frame *frame = &stacks->frames[ids[i]];

		put_json_text(out, i ? ",{\"name\":" : "{\"name\":", frame->name);
		put_json_text(out, ",\"file\":", frame->file);
		put_json_number(out, ",\"line\":", frame->line);
		put_json_text(out, ",\"module\":", frame->module);
		gm_out_text(out, "}");
	}
	gm_out_text(out, "]");
}

static void put_jsonl(struct gm_out *out, const struct gm_events *events, const struct gm_row *row)
{
	const json_t *root = events->root, *annotation = gm_row_annotation(root, row);

	put_json_number(out, "{\"time_us\":", row->time_us);
	put_json_text(out, ",\"action\":", row->action);
	put_json_number(out, ",\"addr\":", (int64_t)row->address);
	put_json_number(out, ",\"size\":", row->size);
	put_json_number(out, ",\"stream\":", row->stream);
	put_json_text(out, ",\"kind\":", row->kind);
	put_json_number(out, ",\"thread\":", row->thread);
	put_json_number(out, ",\"stack\":", row->stack);
	put_json_text(out, ",\"module\":", gm_show_module_path(root, row->module));
	if (row->device == GM_ROW_HOST)
		gm_out_text(out, ",\"device\":null");
	else
		put_json_number(out, ",\"device\":", row->device);
	if (annotation)
		put_json_annotation(out, annotation);
	if (events->stacks)
		put_json_frames(out, events->stacks, row->stack);
	gm_out_text(out, "}\n");
}

static int print_jsonl(const struct gm_events *events)
{
	struct gm_out out = gm_out_to(stdout);

	for (size_t i = 0; i < events->count && !out.error; i++)
		put_jsonl(&out, events, &events->rows[i]);
	return gm_out_end(&out);
}

/* ---- the table -------------------------------------------------------------------------------- */

/* What the program said stands where others have their address, size, kind and module. */
static void put_said(struct gm_out *out, const struct gm_row *row, const json_t *annotation)
{
	const char *domain = gm_json_text(annotation, "domain");

	gm_out_format(out, "%40s %8lld  %s %s%s%s%s\n", "", (long long)row->thread,
		      gm_show_clean(gm_json_text(annotation, "stage")),
		      gm_show_clean(gm_json_text(annotation, "name")), domain[0] ? " (" : "",
		      gm_show_clean(domain), domain[0] ? ")" : "");
}

static void put_memory(struct gm_out *out, const json_t *root, const struct gm_row *row)
{
	char address[64];

	if (!strcmp(row->action, "oom"))
		snprintf(address, sizeof(address), "%s free", gm_show_bytes((int64_t)row->address));
	else
		snprintf(address, sizeof(address), "%#llx", (unsigned long long)row->address);
	gm_out_format(out, "%18s %12s %-8s %8lld  %s\n", address, gm_show_bytes(row->size),
		      gm_show_clean(row->kind), (long long)row->thread, gm_show_module(root, row->module));
}

static void put_row(struct gm_out *out, const struct gm_events *events, const struct gm_row *row)
{
	const json_t *annotation = gm_row_annotation(events->root, row);
	int64_t time_us = gm_wrap_subtract(row->time_us, events->origin_us);
	uint64_t us = time_us < 0 ? 0 - (uint64_t)time_us : (uint64_t)time_us;
	char seconds[40], device[16] = "host";

	snprintf(seconds, sizeof(seconds), "%s%llu.%06llu", time_us < 0 ? "-" : "",
		 (unsigned long long)(us / 1000000), (unsigned long long)(us % 1000000));
	if (row->device != GM_ROW_HOST)
		snprintf(device, sizeof(device), "%d", row->device);
	gm_out_format(out, "%14s %6s %-14s ", seconds, device, gm_show_clean(row->action));
	if (annotation)
		put_said(out, row, annotation);
	else
		put_memory(out, events->root, row);
}

/* The stack below its event, a line a frame. */
static void put_stack(struct gm_out *out, const struct gm_stacks *stacks, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, stack, &count);

	for (size_t i = 0; i < count; i++) {
		char text[GM_FRAME_TEXT];

		gm_out_format(out, "%22s%s\n", "", gm_groups_frame_text(&stacks->frames[ids[i]], text));
	}
}

static int print_table(const struct gm_events *events)
{
	struct gm_out out = gm_out_to(stdout);

	gm_show_heading(stdout, "%14s %6s %-14s %18s %12s %-8s %8s  %s", "seconds", "device", "action",
			"address", "size", "kind", "thread", "module");
	for (size_t i = 0; i < events->count && !out.error; i++) {
		const struct gm_row *row = &events->rows[i];

		put_row(&out, events, row);
		if (events->stacks && (!events->only_ooms || !strcmp(row->action, "oom")))
			put_stack(&out, events->stacks, row->stack);
	}
	return gm_out_end(&out);
}

int gm_events_print(const struct gm_events *events, enum gm_events_format format)
{
	return format == GM_EVENTS_CSV ? print_csv(events) :
	       format == GM_EVENTS_JSONL ? print_jsonl(events) : print_table(events);
}
