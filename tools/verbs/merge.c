/*
 * merge.c - gpumem merge FILE...: the ranks of one job side by side, the rank that differs most first.
 *
 * The snapshots are read one after the other; only the sums of each stay in memory. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/symbols/symbols.h"
#include "tools/verbs/opened.h"

#define SIDE_BY_SIDE 8u			/* with more ranks, a row shows only the least and the most */

struct ask {
	const char *device;
	enum gm_by by;
	int level;			/* enum gm_pool_level */
	bool at_peak;			/* sum what was live at the peak, else in the end */
	bool json;
	size_t top;
};

struct rank {
	size_t place;			/* among the inputs */
	char label[24];			/* the rank; "3b": rank 3 again; "#2": the second input, without a rank */
	int64_t rank, pid;		/* @rank -1: none */
	char command[64], host[64], reason[32];
	const char *input;
	struct gm_totals of;		/* of the device, or of all */
	int64_t shown_peak;		/* the most bytes live at once in the history */
};

struct row {
	char *name;
	json_t *stack;			/* with --by stack only */
	int64_t *bytes, *blocks;	/* for each input, by its place */
	int64_t median, least, most;
	int64_t off;			/* distance of the farthest rank from the median */
	size_t least_rank, most_rank, off_rank;
};

struct merge {
	const struct ask *ask;
	struct rank *ranks;
	size_t rank_count;
	struct row *rows;
	size_t row_count;
	bool of_history;		/* for some rank, "at the peak" is the highest moment of its history */
};

/* ---- one rank -------------------------------------------------------------------------------- */

static void describe(const struct ask *ask, const json_t *root, struct rank *rank)
{
	const json_t *process = gm_json_object(root, "process");
	const json_t *number = json_object_get(process, "rank");

	rank->rank = json_is_integer(number) ? json_integer_value(number) : -1;
	rank->pid = gm_json_number(process, "pid");
	snprintf(rank->command, sizeof(rank->command), "%s", gm_json_text(process, "command"));
	snprintf(rank->host, sizeof(rank->host), "%s", gm_json_text(process, "host"));
	snprintf(rank->reason, sizeof(rank->reason), "%s", gm_json_text(root, "reason"));
	rank->of = gm_show_totals(root, ask->device);
}

static void free_row(struct row *row)
{
	free(row->name);
	free(row->bytes);
	free(row->blocks);
	json_decref(row->stack);
	row->name = NULL;
}

static int rename_row(struct row *row, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	free(row->name);
	row->name = copy;
	return 0;
}

/* Add rows for the groups that the last snapshot was the first to have. Returns 0 or -ENOMEM. */
static int widen(struct merge *merge, const struct gm_groups *groups)
{
	struct row *larger = realloc(merge->rows, (groups->count + 1) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	merge->rows = larger;
	while (merge->row_count < groups->count) {
		const struct gm_group *group = &groups->list[merge->row_count];
		struct row *row = &merge->rows[merge->row_count];

		*row = (struct row){ .name = strdup(group->key),
					      .bytes = calloc(merge->rank_count, sizeof(int64_t)),
					      .blocks = calloc(merge->rank_count, sizeof(int64_t)) };
		if (groups->by == GM_BY_STACK)
			row->stack = gm_groups_json_stack(group->scene, group->stack);
		merge->row_count++;
		if (!row->name || !row->bytes || !row->blocks)
			return -ENOMEM;
	}
	return 0;
}

/* Sum one snapshot into @groups, side 1, move its sums to the rows, and set @groups back to 0. Returns 0 or -errno. */
static int add(struct merge *merge, struct gm_groups *groups, const struct gm_snapshot *snapshot, size_t place)
{
	const struct ask *ask = merge->ask;
	struct gm_scene scene;
	int64_t row;
	int r = gm_scene_open(&scene, snapshot);

	if (r)
		return r;
	merge->ranks[place].shown_peak = gm_lives_shown_peak(&scene.lives, ask->device, &row);
	merge->of_history |= !scene.lives.at_peak_known || !gm_by_has_peak(ask->by);
	if (scene.lives.at_peak_known && gm_by_has_peak(ask->by))
		row = GM_LIVES_PEAK;
	merge->ranks[place].of = gm_scene_totals(&scene, ask->device, ask->level == GM_LEVEL_POOL);
	r = gm_groups_add(groups, 1, &scene, ask->device, ask->at_peak ? row : GM_LIVES_END, NULL);
	if (!r)
		r = widen(merge, groups);
	for (size_t i = 0; !r && i < groups->count; i++) {
		merge->rows[i].bytes[place] = groups->list[i].bytes[1];
		merge->rows[i].blocks[place] = groups->list[i].count[1];
		groups->list[i].bytes[1] = groups->list[i].count[1] = 0;
	}
	gm_scene_close(&scene);
	return r;
}

/* Merge the rows of one function in two builds, because line numbers of two builds do not match. Returns 0 or
 * -ENOMEM. */
static int join_builds(struct merge *merge, struct gm_groups *groups)
{
	size_t *into, kept = 0;
	int r = gm_groups_join_builds(groups, &into);

	for (size_t i = 0; into && !r && i < merge->row_count; i++) {
		struct row *from = &merge->rows[i], *to = &merge->rows[into[i]];

		for (size_t n = 0; to != from && n < merge->rank_count; n++) {
			to->bytes[n] = gm_wrap_add(to->bytes[n], from->bytes[n]);
			to->blocks[n] = gm_wrap_add(to->blocks[n], from->blocks[n]);
		}
		if (to != from)
			free_row(from);
		else if (strcmp(from->name, groups->list[i].key))
			r = rename_row(from, groups->list[i].key);
	}
	for (size_t i = 0; i < merge->row_count; i++)	/* a freed row has no name */
		if (merge->rows[i].name)
			merge->rows[kept++] = merge->rows[i];
	merge->row_count = kept;
	free(into);
	return r;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
	int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;

	return p < q ? -1 : p > q;
}

static int64_t median_of(const int64_t *values, size_t count)
{
	int64_t *copy = calloc(count + 1, sizeof(*copy)), median;

	if (!copy || !count) {
		free(copy);
		return 0;
	}
	memcpy(copy, values, count * sizeof(*copy));
	qsort(copy, count, sizeof(*copy), by_number);
	median = copy[(count - 1) / 2];
	free(copy);
	return median;
}

static int64_t apart(int64_t a, int64_t b)
{
	int64_t off = gm_wrap_subtract(a, b);

	return off == INT64_MIN ? INT64_MAX : off < 0 ? -off : off;
}

/* Return the bytes of the @i-th rank in @row. */
static int64_t bytes_of(const struct merge *merge, const struct row *row, size_t i)
{
	return row->bytes[merge->ranks[i].place];
}

static void judge(const struct merge *merge, struct row *row)
{
	row->median = median_of(row->bytes, merge->rank_count);
	for (size_t i = 0; i < merge->rank_count; i++) {
		int64_t bytes = bytes_of(merge, row, i);

		if (bytes < bytes_of(merge, row, row->least_rank))
			row->least_rank = i;
		if (bytes > bytes_of(merge, row, row->most_rank))
			row->most_rank = i;
		if (apart(bytes, row->median) >
		    apart(bytes_of(merge, row, row->off_rank), row->median))
			row->off_rank = i;
	}
	row->least = bytes_of(merge, row, row->least_rank);
	row->most = bytes_of(merge, row, row->most_rank);
	row->off = apart(bytes_of(merge, row, row->off_rank), row->median);
}

static int by_off(const void *a, const void *b)
{
	const struct row *p = a, *q = b;

	if (p->off != q->off)
		return p->off < q->off ? 1 : -1;
	if (p->most != q->most)
		return p->most < q->most ? 1 : -1;
	return strcmp(p->name, q->name);
}

/* Ranks by number; then inputs without a rank, in their order. */
static int by_rank(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;
	uint64_t p = (uint64_t)x->rank, q = (uint64_t)y->rank;

	return p != q ? (p < q ? -1 : 1) : x->place < y->place ? -1 : x->place > y->place;
}

static void order_ranks(struct merge *merge)
{
	struct rank *ranks = merge->ranks;

	qsort(ranks, merge->rank_count, sizeof(*ranks), by_rank);
	for (size_t i = 0, again = 0; i < merge->rank_count; i++) {
		again = i && ranks[i].rank >= 0 && ranks[i].rank == ranks[i - 1].rank ? again + 1 : 0;
		if (ranks[i].rank < 0)
			snprintf(ranks[i].label, sizeof(ranks[i].label), "#%zu", ranks[i].place + 1);
		else if (again && again < 26)
			snprintf(ranks[i].label, sizeof(ranks[i].label), "%lld%c", (long long)ranks[i].rank,
				 (int)('a' + again));
		else
			snprintf(ranks[i].label, sizeof(ranks[i].label), "%lld", (long long)ranks[i].rank);
	}
}

static void close_merge(struct merge *merge)
{
	for (size_t i = 0; i < merge->row_count; i++)
		free_row(&merge->rows[i]);
	free(merge->rows);
	free(merge->ranks);
}

/* ---- the report ------------------------------------------------------------------------------- */

/* Return "  <- 3.00 GiB above the median" if the distance is more than a tenth and more than 16 MiB; else "". Static
 * memory. */
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

static void print_ranks(const struct merge *merge)
{
	int64_t *peaks = calloc(merge->rank_count + 1, sizeof(*peaks)), median;
	size_t columns = gm_show_columns(stdout);

	if (!peaks)
		return;
	for (size_t i = 0; i < merge->rank_count; i++)
		peaks[i] = merge->ranks[i].of.peak;
	median = median_of(peaks, merge->rank_count);
	gm_show_heading(stdout, "%5s %9s %11s %11s %13s %9s %5s  %s", "rank", "pid", "live", "peak",
			"reserved peak", "blocks", "ooms", "snapshot");
	for (size_t i = 0; i < merge->rank_count; i++) {
		const struct rank *rank = &merge->ranks[i];

		int used = printf("%5s %9lld %11s %11s %13s %9lld %5lld", rank->label, (long long)rank->pid,
				  gm_show_bytes(rank->of.live), gm_show_bytes(rank->of.peak),
				  gm_show_bytes(rank->of.reserved_peak), (long long)rank->of.blocks,
				  (long long)rank->of.ooms);
		const char *odd = oddity(rank->of.peak, median);
		char name[2200];

		snprintf(name, sizeof(name), "%s%s%s%s", gm_show_clean(rank->input), rank->host[0] ? " on " : "",
			 gm_show_clean(rank->host), odd);
		printf("%s%s\n", (size_t)used + 2 + strlen(name) > columns ? "\n    " : "  ", name);
	}
	free(peaks);
}

/* Has each rank a column? On a terminal, three or more ranks have columns only if all columns fit. */
static bool are_side_by_side(const struct merge *merge)
{
	return merge->rank_count <= SIDE_BY_SIDE &&
	       (merge->rank_count < 3 || 25 + 12 * merge->rank_count <= gm_show_columns(stdout));
}

static void print_head(const struct merge *merge)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "%11s %11s", "apart", "median");

	if (are_side_by_side(merge))
		for (size_t i = 0; i < merge->rank_count; i++)
			n += snprintf(line + n, sizeof(line) - (size_t)n, " %6s%5s", "rank ",
				      merge->ranks[i].label);
	else
		snprintf(line + n, sizeof(line) - (size_t)n, " %11s %5s %11s %5s", "least", "rank",
			 "most", "rank");
	gm_show_heading(stdout, "%s  %s", line, gm_by_name(merge->ask->by));
}

static void print_row(const struct merge *merge, const struct row *row)
{
	int used = printf("%11s %11s", gm_show_bytes(row->off), gm_show_bytes(row->median));

	if (are_side_by_side(merge))
		for (size_t i = 0; i < merge->rank_count; i++)
			used += printf(" %11s", gm_show_bytes(bytes_of(merge, row, i)));
	else
		used += printf(" %11s %5s %11s %5s", gm_show_bytes(row->least),
			       merge->ranks[row->least_rank].label, gm_show_bytes(row->most),
			       merge->ranks[row->most_rank].label);
	gm_groups_put_key(stdout, merge->ask->by == GM_BY_STACK ? GM_BY_SITE : merge->ask->by, row->name, (size_t)used);
	for (size_t i = 0; i < json_array_size(row->stack); i++)
		printf("%26s%s\n", "", gm_show_clean(json_string_value(json_object_get(
			json_array_get(row->stack, i), "name"))));
}

static void print_text(const struct merge *merge)
{
	char text[256];

	print_ranks(merge);
	snprintf(text, sizeof(text), "bytes %s, by %s; first where one rank is farthest from the median of all",
		 !merge->ask->at_peak ? "live in each snapshot" :
		 merge->of_history ? "at each rank's highest moment in its history" : "at each rank's peak",
		 gm_by_name(merge->ask->by));
	putchar('\n');
	gm_show_wrapped(stdout, text, 0, "", gm_show_columns(stdout));
	print_head(merge);
	for (size_t i = 0; i < merge->row_count && i < merge->ask->top; i++)
		print_row(merge, &merge->rows[i]);
	if (merge->row_count > merge->ask->top)
		gm_more_rows(stdout, merge->row_count - merge->ask->top, "more row");
	if (!merge->row_count)
		puts("nothing was live then in any of them");
}

/* Return @values, which are in the order of the inputs, in the order of the ranks. */
static json_t *numbers(const struct merge *merge, const int64_t *values)
{
	json_t *list = json_array();

	for (size_t i = 0; i < merge->rank_count; i++)
		json_array_append_new(list, json_integer((json_int_t)values[merge->ranks[i].place]));
	return list;
}

static json_t *rank_object(const struct rank *rank)
{
	json_t *object = json_pack(
		"{ss ss sI ss ss ss sI sI sI sI sI sI}", "label", rank->label, "input",
		gm_show_clean(rank->input), "pid", (json_int_t)rank->pid, "command",
		gm_show_clean(rank->command), "host", gm_show_clean(rank->host), "reason",
		gm_show_clean(rank->reason), "live_bytes", (json_int_t)rank->of.live, "peak_bytes",
		(json_int_t)rank->of.peak, "reserved_peak_bytes", (json_int_t)rank->of.reserved_peak,
		"blocks", (json_int_t)rank->of.blocks, "ooms", (json_int_t)rank->of.ooms,
		"history_peak_bytes", (json_int_t)rank->shown_peak);

	json_object_set_new(object, "rank", gm_show_number(rank->rank >= 0, rank->rank));
	return object;
}

static void print_json(const struct merge *merge)
{
	json_t *ranks = json_array(), *rows = json_array(), *all;

	for (size_t i = 0; i < merge->rank_count; i++)
		json_array_append_new(ranks, rank_object(&merge->ranks[i]));
	for (size_t i = 0; i < merge->row_count; i++) {
		const struct row *row = &merge->rows[i];
		json_t *object = json_pack(
			"{ss sI sI sI sI ss so so}", "name", gm_show_clean(row->name),
			"apart_bytes", (json_int_t)row->off, "median_bytes",
			(json_int_t)row->median, "least_bytes", (json_int_t)row->least,
			"most_bytes", (json_int_t)row->most, "farthest",
			merge->ranks[row->off_rank].label, "bytes",
			numbers(merge, row->bytes), "blocks",
			numbers(merge, row->blocks));

		if (row->stack)
			json_object_set(object, "stack", row->stack);
		json_array_append_new(rows, object);
	}
	all = json_pack("{ss ss so so}", "by", gm_by_name(merge->ask->by),
			"weigh", merge->ask->at_peak ? "peak" : "live", "ranks", ranks, "rows", rows);
	gm_show_document(stdout, all, 1);
}

/* ---- the verb --------------------------------------------------------------------------------- */

static int read_all(struct merge *merge, char **words)
{
	const struct ask *ask = merge->ask;
	struct gm_groups groups;
	int r = gm_groups_open(&groups, ask->by);
	bool there = false;

	if (r)
		return r;
	groups.many = true;
	for (size_t i = 0; !r && i < merge->rank_count; i++) {
		struct gm_loaded loaded;

		gm_progress("gpumem merge: snapshots read", i, merge->rank_count);
		if (gm_load(words[i], GM_LOAD_WHOLE, &loaded)) {
			gm_progress_end();
			gm_input_bad("merge", words[i], loaded.error);
			gm_groups_close(&groups);
			return -EBADMSG;
		}
		merge->ranks[i].input = words[i];
		merge->ranks[i].place = i;
		there |= gm_device_is_in(loaded.snapshot.root, ask->device);
		describe(ask, loaded.snapshot.root, &merge->ranks[i]);
		r = gm_level_apply(&loaded.snapshot, (enum gm_pool_level)ask->level);
		if (!r)
			r = gm_names_show("merge", &loaded.snapshot);
		if (!r)
			r = add(merge, &groups, &loaded.snapshot, i);
		gm_load_free(&loaded);
	}
	gm_progress_end();
	if (!r)
		r = join_builds(merge, &groups);
	gm_groups_close(&groups);
	if (!r && !there) {
		gm_input_bad("merge", ask->device, "no rank has that device");
		r = -EBADMSG;
	}
	return r;
}

static int merge_words(const struct ask *ask, char **words, size_t count)
{
	struct merge merge = { .ask = ask, .rank_count = count };
	int r;

	merge.ranks = calloc(count, sizeof(*merge.ranks));
	r = merge.ranks ? read_all(&merge, words) : -ENOMEM;
	if (!r)
		order_ranks(&merge);
	for (size_t i = 0; !r && i < merge.row_count; i++)
		judge(&merge, &merge.rows[i]);
	if (!r && merge.row_count)
		qsort(merge.rows, merge.row_count, sizeof(*merge.rows), by_off);
	if (r && r != -EBADMSG)
		fprintf(stderr, "gpumem merge: %s\n", gm_limit_why(r));
	else if (!r && ask->json)
		print_json(&merge);
	else if (!r)
		print_text(&merge);
	close_merge(&merge);
	return r ? GM_EXIT_INPUT : gm_show_finish("merge", GM_EXIT_OK);
}

int gm_verb_merge(int argc, char **argv)
{
	struct ask ask = { .by = GM_BY_SITE, .top = 20 };
	int weigh = 0;			/* peak, live */
	const struct gm_argument arguments[] = {
		{ "by", GM_ARG_WORD, &ask.by }, { "weigh", GM_ARG_WORD, &weigh },
		{ "device", GM_ARG_DEVICE, &ask.device }, { "level", GM_ARG_WORD, &ask.level },
		{ "top", GM_ARG_COUNT, &ask.top },
		{ "json", GM_ARG_FLAG, &ask.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);

	ask.at_peak = weigh == 0;
	return status >= 0 ? status : merge_words(&ask, argv + optind, (size_t)(argc - optind));
}
