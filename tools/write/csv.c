/*
 * csv.c - rows of comma-separated values: see convert.h. One thread.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/write/convert.h"
#include "tools/write/writer.h"

#define KEPT_MOST ((size_t)128 << 20)	/* bytes of cells */

/* Would a spreadsheet take a cell with @text for a formula? Quotes do not prevent that; a leading apostrophe does. */
static bool is_formula(const char *text)
{
	return *text && strchr("=+-@\t\r", *text);
}

/* Write @text as it is within quotes. */
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

static void put_quoted(struct gm_out *out, const char *text)
{
	gm_out_text(out, is_formula(text) ? "\"'" : "\"");
	put_inside(out, text);
	gm_out_text(out, "\"");
}

/* ---- stacks ----------------------------------------------------------------------------------- */

/* The cells of stacks, each made once and kept. */
struct cells {
	const struct gm_stacks *stacks;
	char **of;			/* by stack; NULL: not made yet, or not kept */
	size_t kept;			/* bytes of @of */
};

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

/* Return in memory what put_stack writes; free() it. NULL: out of memory. */
static char *cell_of(const struct gm_stacks *stacks, const uint32_t *ids, size_t count)
{
	char *cell = NULL;
	size_t bytes;
	FILE *to = open_memstream(&cell, &bytes);
	struct gm_out out = gm_out_to(to);

	if (to)
		put_stack(&out, stacks, ids, count);
	if (!to || gm_out_end(&out) | fclose(to)) {
		free(cell);
		return NULL;
	}
	return cell;
}

/* Is there room to keep the cell of the frames @ids? */
static bool is_to_keep(const struct cells *cells, const uint32_t *ids, size_t count)
{
	size_t bytes = cells->kept;

	for (size_t i = 0; i < count && bytes < KEPT_MOST; i++)
		bytes += strlen(cells->stacks->frames[ids[i]].name) + strlen(cells->stacks->frames[ids[i]].file);
	return bytes < KEPT_MOST;
}

static void put_cell(struct cells *cells, struct gm_out *out, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(cells->stacks, stack, &count);

	if (count && !cells->of[stack] && is_to_keep(cells, ids, count)) {
		cells->of[stack] = cell_of(cells->stacks, ids, count);
		cells->kept += cells->of[stack] ? strlen(cells->of[stack]) : 0;
	}
	if (!count)
		gm_out_text(out, "\"\"");
	else if (cells->of[stack])
		gm_out_text(out, cells->of[stack]);
	else
		put_stack(out, cells->stacks, ids, count);
}

/* ---- events ----------------------------------------------------------------------------------- */

static void put_number(struct gm_out *out, int64_t number)
{
	gm_out_number(out, number);
	gm_out_text(out, ",");
}

static void put_text(struct gm_out *out, const char *text)
{
	put_quoted(out, text);
	gm_out_text(out, ",");
}

/* Write one event. @cells: NULL without frames. */
static void put_event(struct gm_out *out, const json_t *root, const struct gm_row *row, struct cells *cells,
		      bool numbers)
{
	const json_t *annotation = gm_row_annotation(root, row);

	put_number(out, row->time_us);
	if (row->device == GM_ROW_HOST)
		gm_out_text(out, "host,");
	else
		put_number(out, row->device);
	put_text(out, row->action);
	gm_out_word(out, row->address);
	gm_out_text(out, ",");
	put_number(out, row->size);
	put_number(out, row->stream);
	put_text(out, row->kind);
	put_number(out, row->thread);
	if (numbers)
		put_number(out, row->stack);
	put_text(out, gm_show_module_path(root, row->module));
	if (cells && !numbers) {
		put_cell(cells, out, row->stack);
		gm_out_text(out, ",");
	}
	if (annotation)
		put_quoted(out, gm_json_text(annotation, "stage"));
	gm_out_text(out, ",");
	if (annotation)
		put_quoted(out, gm_json_text(annotation, "name"));
	if (cells && numbers) {
		gm_out_text(out, ",");
		put_cell(cells, out, row->stack);
	}
	gm_out_text(out, "\n");
}

int gm_csv_events(FILE *file, const json_t *root, const struct gm_row *rows, size_t count,
		  const struct gm_stacks *stacks, bool numbers)
{
	struct cells cells = { .stacks = stacks };
	struct gm_out out = gm_out_to(file);
	int r;

	if (stacks)
		cells.of = calloc(stacks->count + 1, sizeof(*cells.of));
	if (stacks && !cells.of)
		return -ENOMEM;
	gm_out_text(&out, "time_us,device,action,addr,size,stream,kind,thread,");
	gm_out_text(&out, !numbers ? "module,stack,stage,text\n" : stacks ?
		    "stack,module,stage,text,frames\n" : "stack,module,stage,text\n");
	for (size_t i = 0; i < count && !out.error; i++)
		put_event(&out, root, &rows[i], stacks ? &cells : NULL, numbers);
	r = gm_out_end(&out);
	for (size_t i = 0; stacks && i < stacks->count; i++)
		free(cells.of[i]);
	free(cells.of);
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
	r = gm_csv_events(out, snapshot->root, snapshot->rows, snapshot->row_count, &stacks, false);
	gm_stacks_close(&stacks);
	return r;
}
