/*
 * convert.h - the formats that `gpumem convert` knows, one file each. Single-threaded.
 */
#ifndef GM_TOOLS_CONVERT_H
#define GM_TOOLS_CONVERT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/read/load.h"
#include "tools/show/stacks.h"

#define GM_CONVERT_NO_EVENTS "there are no events in it: its history kept none (see the option history)"

/* Each writes @loaded to @out and returns 0 or -errno. @note gets a sentence where something is not carried over. */
typedef int gm_convert(FILE *out, struct gm_loaded *loaded, char note[256]);
gm_convert gm_convert_pickle, gm_convert_torch_json, gm_convert_snapshot, gm_convert_chrome, gm_convert_csv,
	   gm_convert_rmm, gm_convert_prometheus, gm_convert_folded, gm_convert_speedscope;

/* The part of a snapshot that is wanted: the @last seconds of its history, and what is not before @since
 * (gm_units_moment; NAN: no such bound); events of at least @min_size bytes; what is of @device (a number or "host";
 * NULL: of all). */
struct gm_cut { double last, since; uint64_t min_size; const char *device; };

/* Does @cut leave anything out? */
bool gm_cut_wanted(const struct gm_cut *cut);

/* Leave only that part in @snapshot. What is live stays, whenever it was allocated and however small it is: a block
 * whose events are left out for their size is marked untraced. Events that are left out for their time count as
 * dropped. Returns 0 or -ENOMEM. */
int gm_convert_cut(struct gm_snapshot *snapshot, const struct gm_cut *cut);

/* The events @rows as comma-separated values (RFC 4180, but lines end with a line feed alone), with their head.
 * With @stacks (else NULL) each has its stack as a cell, "main (app.c:12);f (f.c:3)", the outermost frame first.
 * With @numbers each has the number of its stack, too, and these two cells stand behind all others.
 *
 * Texts stand within quotes, their own doubled; what a terminal would obey is a '?', and one that a spreadsheet
 * would take for a formula begins with an apostrophe. Returns 0 or -errno. */
int gm_csv_events(FILE *file, const json_t *root, const struct gm_row *rows, size_t count,
		  const struct gm_stacks *stacks, bool numbers);

/*
 * The metrics of several living processes as one page: Prometheus' text format or, with @is_open, OpenMetrics. One
 * process after the other is added, and its snapshot may go then.
 */
struct gm_labels;
struct gm_prometheus *gm_prometheus_open(bool is_open);	/* NULL: out of memory */

/* Add a process. @labels may be NULL. @pid is the process as it is seen from here, since two containers may each have a
 * process 1, and no line may come twice; 0: as it calls itself. Returns 0; -ENOMEM, or -E2BIG when its lines have more
 * than 1 MiB: then none of them is on the page. */
int gm_prometheus_add(struct gm_prometheus *to, const json_t *root, const struct gm_labels *labels, int64_t pid);

/* Write the page. @unread: how many processes are not on it, which is said; SIZE_MAX: nothing is said. 0 or -ENOMEM. */
int gm_prometheus_write(struct gm_prometheus *of, FILE *out, size_t unread);
void gm_prometheus_free(struct gm_prometheus *of);

#endif
