/*
 * merge_print.c - the report of gpumem merge: see merge.h. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/lives.h"
#include "tools/verbs/merge.h"
#include "tools/show/show.h"

#define SIDE_BY_SIDE 8u			/* ranks that have a column each; more are summed up */

/* "35% above the others": by a tenth and 16 MiB at least. "" for one that is as the others. */
static const char *oddity(int64_t value, int64_t median)
{
	static char text[64];
	double share = median > 0 ? 100 * ((double)value - (double)median) / (double)median : 0;

	text[0] = '\0';
	if (value > median && gm_wrap_subtract(value, median) > (16 << 20) &&
	    (median <= 0 || share > 10))
		snprintf(text, sizeof(text), "  <- %s above the median",
			 gm_show_bytes(gm_wrap_subtract(value, median)));
	else if (value < median && gm_wrap_subtract(median, value) > (16 << 20) && share < -10)
		snprintf(text, sizeof(text), "  <- %s below the median",
			 gm_show_bytes(gm_wrap_subtract(median, value)));
	return text;
}

static void print_ranks(const struct gm_merge *merge)
{
	int64_t *peaks = calloc(merge->rank_count + 1, sizeof(*peaks)), median;

	if (!peaks)
		return;
	for (size_t i = 0; i < merge->rank_count; i++)
		peaks[i] = merge->ranks[i].peak;
	median = gm_merge_median(peaks, merge->rank_count);
	gm_show_heading(stdout, "%5s %9s %11s %11s %13s %9s %5s  %s", "rank", "pid", "live", "peak",
			"reserved peak", "blocks", "ooms", "snapshot");
	for (size_t i = 0; i < merge->rank_count; i++) {
		const struct gm_merge_rank *rank = &merge->ranks[i];

		printf("%5s %9lld %11s %11s %13s %9lld %5lld  %s%s%s%s\n", rank->label,
		       (long long)rank->pid, gm_show_bytes(rank->live), gm_show_bytes(rank->peak),
		       gm_show_bytes(rank->reserved_peak), (long long)rank->blocks,
		       (long long)rank->ooms, gm_show_clean(rank->input),
		       rank->host[0] ? " on " : "", gm_show_clean(rank->host),
		       oddity(rank->peak, median));
	}
	free(peaks);
}

static void print_head(const struct gm_merge *merge)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "%11s %11s", "apart", "median");

	if (merge->rank_count <= SIDE_BY_SIDE)
		for (size_t i = 0; i < merge->rank_count; i++)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " %6s%5s", "rank ",
				      merge->ranks[i].label);
	else
		snprintf(line + n, sizeof(line) - (size_t)n, " %11s %5s %11s %5s", "least", "rank",
			 "most", "rank");
	gm_show_heading(stdout, "%s  %s", line, merge->by);
}

static void print_row(const struct gm_merge *merge, const struct gm_merge_row *row)
{
	printf("%11s %11s", gm_show_bytes(row->off), gm_show_bytes(row->median));
	if (merge->rank_count <= SIDE_BY_SIDE)
		for (size_t i = 0; i < merge->rank_count; i++)
			printf(" %11s", gm_show_bytes(row->bytes[i]));
	else
		printf(" %11s %5s %11s %5s", gm_show_bytes(row->least),
		       merge->ranks[row->least_rank].label, gm_show_bytes(row->most),
		       merge->ranks[row->most_rank].label);
	printf("  %s\n", gm_show_clean(row->name));
	for (size_t i = 0; i < json_array_size(row->stack); i++)
		printf("%26s%s\n", "", gm_show_clean(json_string_value(json_object_get(
			json_array_get(row->stack, i), "name"))));
}

void gm_merge_text(const struct gm_merge *merge)
{
	print_ranks(merge);
	printf("\nbytes %s, by %s; first where one rank is farthest from the median of all\n",
	       merge->at_peak ? "at each rank's highest moment in its history"
			      : "live in each snapshot",
	       merge->by);
	print_head(merge);
	for (size_t i = 0; i < merge->row_count && i < merge->top; i++)
		print_row(merge, &merge->rows[i]);
	if (merge->row_count > merge->top)
		printf("... and %zu more (--top)\n", merge->row_count - merge->top);
	if (!merge->row_count)
		puts("nothing was live then in any of them");
}

static json_t *numbers(const int64_t *values, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer((json_int_t)values[i]));
	return list;
}

static json_t *rank_object(const struct gm_merge_rank *rank)
{
	json_t *object = json_pack(
		"{ss ss sI ss ss ss sI sI sI sI sI sI}", "label", rank->label, "input",
		gm_show_clean(rank->input), "pid", (json_int_t)rank->pid, "command",
		gm_show_clean(rank->command), "host", gm_show_clean(rank->host), "reason",
		gm_show_clean(rank->reason), "live_bytes", (json_int_t)rank->live, "peak_bytes",
		(json_int_t)rank->peak, "reserved_peak_bytes", (json_int_t)rank->reserved_peak,
		"blocks", (json_int_t)rank->blocks, "ooms", (json_int_t)rank->ooms,
		"history_peak_bytes", (json_int_t)rank->shown_peak);

	json_object_set_new(object, "rank",
			    rank->rank < 0 ? json_null() : json_integer((json_int_t)rank->rank));
	return object;
}

void gm_merge_json(const struct gm_merge *merge)
{
	json_t *ranks = json_array(), *rows = json_array(), *all;

	for (size_t i = 0; i < merge->rank_count; i++)
		json_array_append_new(ranks, rank_object(&merge->ranks[i]));
	for (size_t i = 0; i < merge->row_count; i++) {
		const struct gm_merge_row *row = &merge->rows[i];
		json_t *object = json_pack(
			"{ss sI sI sI sI ss so so}", "name", gm_show_clean(row->name),
			"apart_bytes", (json_int_t)row->off, "median_bytes",
			(json_int_t)row->median, "least_bytes", (json_int_t)row->least,
			"most_bytes", (json_int_t)row->most, "farthest",
			merge->ranks[row->off_rank].label, "bytes",
			numbers(row->bytes, merge->rank_count), "blocks",
			numbers(row->blocks, merge->rank_count));

		if (row->stack)
			json_object_set(object, "stack", row->stack);
		json_array_append_new(rows, object);
	}
	all = json_pack("{ss ss so so}", "by", merge->by, "weigh", merge->at_peak ? "peak" : "live",
			"ranks", ranks, "rows", rows);
	gm_show_json(stdout, all, JSON_INDENT(1));
	putchar('\n');
	json_decref(all);
}
