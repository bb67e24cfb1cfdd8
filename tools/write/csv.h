/*
 * csv.h - rows of comma-separated values (RFC 4180, but lines end with a line feed alone), and the
 * texts of stacks in them. Single-threaded.
 */
#ifndef GM_TOOLS_CSV_H
#define GM_TOOLS_CSV_H

#include "tools/read/snapshot.h"
#include "tools/show/stacks.h"
#include "tools/write/writer.h"

/* A text within quotes, its own doubled; what a terminal would obey is a '?', and one that a spreadsheet
 * would take for a formula begins with an apostrophe. */
void gm_csv_quoted(struct gm_out *out, const char *text);

/* time_us, device, action, address, size, stream, kind and thread, with the comma behind them. */
void gm_csv_begin_row(struct gm_out *out, const struct gm_row *row);

/* The stage and the text of what the program said; two empty cells of other events. */
#define GM_CSV_ANNOTATION "stage,text"
void gm_csv_annotation(struct gm_out *out, const json_t *root, const struct gm_row *row);

/* Stacks as cells, made up once and kept. */
struct gm_csv_stacks {
	const struct gm_stacks *stacks;
	char **cells;			/* by stack; NULL: not asked for yet */
	size_t kept;			/* bytes */
};

/* Returns 0 or -ENOMEM. @stacks must outlive it. */
int gm_csv_stacks_open(struct gm_csv_stacks *of, const struct gm_stacks *stacks);
void gm_csv_stacks_close(struct gm_csv_stacks *of);

/* "main (app.c:12);f (f.c:3)" likewise: the outermost first. */
void gm_csv_stack(struct gm_csv_stacks *of, struct gm_out *out, int64_t stack);

#endif
