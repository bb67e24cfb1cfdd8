/*
 * csv.c - rows of comma-separated values: see csv.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/write/csv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/write/convert.h"

#define KEPT_MOST ((size_t)128 << 20)	/* bytes of texts */

/* Spreadsheets take a cell that begins so for a formula, quoted or not: an apostrophe keeps it a text. */
static bool is_formula(const char *text)
{
	return *text && strchr("=+-@\t\r", *text);
}

/* @text as it stands within quotes. */
static void put_inside(struct gm_out *out, const char *text)
{
	size_t plain = 0, odd, i;

	for (i = 0; text[i]; i += odd ? odd : 1) {
		odd = text[i] == '"' ? 1 : gm_show_control(text + i);
		if (!odd)
			continue;
		gm_out_put(out, text + plain, i - plain);
		gm_out_text(out, text[i] == '"' ? "\"\"" : "?");
		plain = i + odd;
	}
	gm_out_put(out, text + plain, i - plain);
}

void gm_csv_quoted(struct gm_out *out, const char *text)
{
	gm_out_text(out, is_formula(text) ? "\"'" : "\"");
	put_inside(out, text);
	gm_out_text(out, "\"");
}

/* "17,0,": when and where. */
static void put_moment(struct gm_out *out, const struct gm_row *row)
{
	gm_out_number(out, row->time_us);
	if (row->device == GM_ROW_HOST) {
		gm_out_text(out, ",host,");
		return;
	}
	gm_out_text(out, ",");
	gm_out_number(out, row->device);
	gm_out_text(out, ",");
}

void gm_csv_begin_row(struct gm_out *out, const struct gm_row *row)
{
	put_moment(out, row);
	gm_csv_quoted(out, row->action);
	gm_out_text(out, ",");
	gm_out_word(out, row->address);
	gm_out_text(out, ",");
	gm_out_number(out, row->size);
	gm_out_text(out, ",");
	gm_out_number(out, row->stream);
	gm_out_text(out, ",");
	gm_csv_quoted(out, row->kind);
	gm_out_text(out, ",");
	gm_out_number(out, row->thread);
	gm_out_text(out, ",");
}

void gm_csv_annotation(struct gm_out *out, const json_t *root, const struct gm_row *row)
{
	const json_t *annotation = gm_row_annotation(root, row);

	if (annotation)
		gm_csv_quoted(out, gm_json_text(annotation, "stage"));
	gm_out_text(out, ",");
	if (annotation)
		gm_csv_quoted(out, gm_json_text(annotation, "name"));
}

/* ---- stacks ----------------------------------------------------------------------------------- */

int gm_csv_stacks_open(struct gm_csv_stacks *of, const struct gm_stacks *stacks)
{
	*of = (struct gm_csv_stacks){ .stacks = stacks, .cells = calloc(stacks->count + 1, sizeof(*of->cells)) };
	return of->cells ? 0 : -ENOMEM;
}

void gm_csv_stacks_close(struct gm_csv_stacks *of)
{
	for (size_t i = 0; of->cells && i < of->stacks->count; i++)
		free(of->cells[i]);
	free(of->cells);
}

static void put_stack(struct gm_out *out, const struct gm_stacks *stacks, const uint32_t *ids,
		      size_t count)
{
	gm_out_text(out, is_formula(stacks->frames[ids[count - 1]].name) ? "\"'" : "\"");
	while (count-- && !out->error) {
		const struct gm_frame *frame = &stacks->frames[ids[count]];

		put_inside(out, frame->name);
		if (frame->line > 0) {
			gm_out_text(out, " (");
			put_inside(out, frame->file);
			gm_out_text(out, ":");
			gm_out_number(out, frame->line);
			gm_out_text(out, ")");
		}
		gm_out_text(out, count ? ";" : "\"");
	}
}

/* The same in memory. NULL: there is none for it. */
static char *cell_of(const struct gm_stacks *stacks, const uint32_t *ids, size_t count)
{
	char *cell = NULL;
	size_t bytes;
	FILE *to = open_memstream(&cell, &bytes);
	struct gm_out out = gm_out_to(to);

	if (to)
		put_stack(&out, stacks, ids, count);
	if (!to || fclose(to) || out.error) {
		free(cell);
		return NULL;
	}
	return cell;
}

/* Whether there is room for one more cell. */
static bool is_to_keep(const struct gm_csv_stacks *of, const uint32_t *ids, size_t count)
{
	size_t bytes = of->kept;

	for (size_t i = 0; i < count && bytes < KEPT_MOST; i++)
		bytes += strlen(of->stacks->frames[ids[i]].name) + strlen(of->stacks->frames[ids[i]].file);
	return bytes < KEPT_MOST;
}

void gm_csv_stack(struct gm_csv_stacks *of, struct gm_out *out, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(of->stacks, stack, &count);

	if (count && !of->cells[stack] && is_to_keep(of, ids, count)) {
		of->cells[stack] = cell_of(of->stacks, ids, count);
		of->kept += of->cells[stack] ? strlen(of->cells[stack]) : 0;
	}
	if (!count)
		gm_out_text(out, "\"\"");
	else if (of->cells[stack])
		gm_out_text(out, of->cells[stack]);
	else
		put_stack(out, of->stacks, ids, count);
}

/* ---- for gpumem convert ----------------------------------------------------------------------- */

static void put_event(struct gm_out *out, const json_t *root, struct gm_csv_stacks *stacks,
		    const struct gm_row *row)
{
	gm_csv_begin_row(out, row);
	gm_csv_quoted(out, gm_show_module_path(root, row->module));
	gm_out_text(out, ",");
	gm_csv_stack(stacks, out, row->stack);
	gm_out_text(out, ",");
	gm_csv_annotation(out, root, row);
	gm_out_text(out, "\n");
}

static int put_events(FILE *file, const struct gm_snapshot *snapshot, const struct gm_stacks *stacks)
{
	struct gm_out out = gm_out_to(file);
	struct gm_csv_stacks cells;
	int r;

	if (gm_csv_stacks_open(&cells, stacks))
		return -ENOMEM;
	gm_out_text(&out, "time_us,device,action,addr,size,stream,kind,thread,module,stack,"
		    GM_CSV_ANNOTATION "\n");
	for (size_t i = 0; i < snapshot->row_count && !out.error; i++)
		put_event(&out, snapshot->root, &cells, &snapshot->rows[i]);
	r = gm_out_end(&out);
	gm_csv_stacks_close(&cells);
	return r;
}

int gm_convert_csv(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct gm_snapshot *snapshot = &loaded->snapshot;
	struct gm_stacks stacks;
	int r = gm_snapshot_annotate(snapshot);

	if (!r && !snapshot->row_count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	r = r ? r : gm_stacks_open(&stacks, snapshot);
	if (r)
		return r;
	r = put_events(out, snapshot, &stacks);
	gm_stacks_close(&stacks);
	return r;
}
