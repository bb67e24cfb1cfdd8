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

/* Write @loaded to @out in one format. Return 0 or -errno. @note gets a sentence if the output lacks something. */
typedef int gm_convert(FILE *out, struct gm_loaded *loaded, char note[256]);
gm_convert gm_convert_pickle, gm_convert_torch_json, gm_convert_snapshot, gm_convert_chrome, gm_convert_csv,
	   gm_convert_rmm, gm_convert_prometheus, gm_convert_folded, gm_convert_speedscope;

/* The part of a snapshot to keep: events of the last @last seconds and from @since on (gm_show_moment; NAN: no such
 * bound), of at least @min_size bytes, on @device (a number or "host"; NULL: all devices and the host). */
struct gm_cut { double last, since; uint64_t min_size; const char *device; };

/* Does @cut leave anything out? */
bool gm_cut_wanted(const struct gm_cut *cut);

/* Reduce @snapshot to the part that @cut describes. Live blocks of that device stay, however old or small. A block
 * below @min_size is marked untraced, because its events are removed. Events removed because of their time count as
 * dropped. Return 0 or -ENOMEM. */
int gm_convert_cut(struct gm_snapshot *snapshot, const struct gm_cut *cut);

/* Write the events @rows as comma-separated values: RFC 4180, but lines end with a line feed alone. The first line
 * names the columns. With @stacks (or NULL), each event has its stack as a cell, "main (app.c:12);f (f.c:3)", outermost
 * frame first. With @numbers, each event also has the number of its stack, and the cell of frames is the last one.
 *
 * Texts are in quotes, and quotes within a text are doubled. A control character becomes '?'. A text that a
 * spreadsheet would take for a formula gets a leading apostrophe. Return 0 or -errno. */
int gm_csv_events(FILE *file, const json_t *root, const struct gm_row *rows, size_t count,
		  const struct gm_stacks *stacks, bool numbers);

/*
 * The metrics of several processes as one page, in Prometheus' text format or, with @is_openmetrics, in OpenMetrics.
 * gm_prometheus_free frees the page; NULL is allowed.
 */
struct gm_labels;
struct gm_prometheus *gm_prometheus_open(bool is_openmetrics);	/* NULL: out of memory */

/* Add the lines of one process, whose snapshot has the members @root; the snapshot may be freed then. @labels may be
 * NULL. @pid is the process's number in our PID namespace, because two containers may each have a process 1, and a
 * page must not have a line twice; 0: the number in the snapshot. Return 0, -ENOMEM, or -E2BIG if the lines have more
 * than 1 MiB. After an error the page has no line of this process. */
int gm_prometheus_add(struct gm_prometheus *to, const json_t *root, const struct gm_labels *labels, int64_t pid);

/* Write the page to @out. @unread: a metric for the number of processes that could not be read; SIZE_MAX: no such
 * metric. Return 0 or -ENOMEM. */
int gm_prometheus_write(struct gm_prometheus *of, FILE *out, size_t unread);
void gm_prometheus_free(struct gm_prometheus *of);

#endif
