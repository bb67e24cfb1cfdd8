/*
 * csv.h - events as comma-separated values (RFC 4180, but lines end with a line feed alone).
 * Single-threaded.
 */
#ifndef GM_TOOLS_CSV_H
#define GM_TOOLS_CSV_H

#include <stdio.h>

#include "tools/read/snapshot.h"
#include "tools/show/stacks.h"

/* The events @rows with their head. @stacks: each with its stack as a cell, "main (app.c:12);f (f.c:3)", the
 * outermost frame first; NULL: without. @numbers: the numbers of the stacks, too, and the cells behind all others.
 *
 * Texts stand within quotes, their own doubled; what a terminal would obey is a '?', and one that a spreadsheet
 * would take for a formula begins with an apostrophe. Returns 0 or -errno. */
int gm_csv_events(FILE *file, const json_t *root, const struct gm_row *rows, size_t count,
		  const struct gm_stacks *stacks, bool numbers);

#endif
