/*
 * merge.c - gpumem merge FILE...: the ranks of one job side by side, the odd one out first.
 *
 * The snapshots are read one after the other, the next while one is summed (ahead.h); of each only
 * sums are kept. One thread.
 */
#define _GNU_SOURCE
#include "tools/verbs/merge.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/show/groups.h"
#include "tools/read/limit.h"
#include "tools/read/load.h"
#include "tools/show/progress.h"
#include "tools/show/show.h"
#include "tools/verbs/verbs.h"

struct ask { struct gm_lives_filter filter; enum gm_by by; bool at_peak, json; size_t top; };

/* ---- one rank -------------------------------------------------------------------------------- */

static bool device_counts(const struct ask *ask, const json_t *device)
{
	return !ask->filter.device ||
	       strtol(ask->filter.device, NULL, 10) == gm_json_number(device, "device");
}

static void describe(const struct ask *ask, const json_t *root, struct gm_merge_rank *rank)
{
	const json_t *process = gm_json_object(root, "process"), *device;
	const json_t *number = json_object_get(process, "rank");
	size_t i;

	rank->rank = json_is_integer(number) ? json_integer_value(number) : -1;
	rank->pid = gm_json_number(process, "pid");
	snprintf(rank->command, sizeof(rank->command), "%s", gm_json_text(process, "command"));
	snprintf(rank->host, sizeof(rank->host), "%s", gm_json_text(process, "host"));
	snprintf(rank->reason, sizeof(rank->reason), "%s", gm_json_text(root, "reason"));
	json_array_foreach(gm_json_list(root, "devices"), i, device) {
		const json_t *stats = gm_json_object(device, "memory_stats");

		if (!device_counts(ask, device))
			continue;
		rank->live = gm_wrap_add(rank->live,
					 gm_json_number(stats, "allocated_bytes.all.current"));
		rank->peak = gm_wrap_add(rank->peak,
					 gm_json_number(stats, "allocated_bytes.all.peak"));
		rank->reserved_peak = gm_wrap_add(rank->reserved_peak,
						  gm_json_number(stats, "reserved_bytes.all.peak"));
		rank->blocks = gm_wrap_add(rank->blocks,
					   gm_json_number(stats, "allocation.all.current"));
		rank->ooms = gm_wrap_add(rank->ooms, gm_json_number(stats, "num_ooms"));
	}
}

/* Rows for the groups that this rank was the first to have. */
static int widen(struct gm_merge *merge, const struct gm_groups *groups, size_t ranks)
{
	struct gm_merge_row *larger = realloc(merge->rows, (groups->count + 1) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	merge->rows = larger;
	while (merge->row_count < groups->count) {
		const struct gm_group *group = &groups->list[merge->row_count];
		struct gm_merge_row *row = &merge->rows[merge->row_count];

		*row = (struct gm_merge_row){ .name = strdup(group->key),
					      .bytes = calloc(ranks, sizeof(int64_t)),
					      .blocks = calloc(ranks, sizeof(int64_t)) };
		if (groups->by == GM_BY_STACK)
			row->stack = gm_groups_json_stack(group->scene, group->stack);
		merge->row_count++;
		if (!row->name || !row->bytes || !row->blocks)
			return -ENOMEM;
	}
	return 0;
}

/* Sum one snapshot into @groups, side 1, and take its share out again. */
static int add(struct gm_merge *merge, struct gm_groups *groups, const struct ask *ask,
	       const struct gm_snapshot *snapshot, size_t place, size_t ranks)
{
	struct gm_scene scene;
	int64_t row;
	int r = gm_scene_open(&scene, snapshot);

	if (r)
		return r;
	merge->ranks[place].shown_peak = gm_lives_peak(&scene.lives, &ask->filter, &row);
	if (ask->at_peak)
		r = gm_groups_add_at(groups, 1, &scene, &ask->filter, row);
	else
		r = gm_groups_add(groups, 1, &scene, &ask->filter, NULL, NULL);
	if (!r)
		r = widen(merge, groups, ranks);
	for (size_t i = 0; !r && i < groups->count; i++) {
		merge->rows[i].bytes[place] = groups->list[i].bytes[1];
		merge->rows[i].blocks[place] = groups->list[i].count[1];
		groups->list[i].bytes[1] = groups->list[i].count[1] = 0;
	}
	gm_scene_close(&scene);
	return r;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
	int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;

	return p < q ? -1 : p > q;
}

int64_t gm_merge_median(const int64_t *values, size_t count)
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

static void judge(struct gm_merge_row *row, size_t ranks)
{
	row->median = gm_merge_median(row->bytes, ranks);
	for (size_t i = 0; i < ranks; i++) {
		if (row->bytes[i] < row->bytes[row->least_rank])
			row->least_rank = i;
		if (row->bytes[i] > row->bytes[row->most_rank])
			row->most_rank = i;
		if (apart(row->bytes[i], row->median) >
		    apart(row->bytes[row->off_rank], row->median))
			row->off_rank = i;
	}
	row->least = row->bytes[row->least_rank];
	row->most = row->bytes[row->most_rank];
	row->off = apart(row->bytes[row->off_rank], row->median);
}

static int by_off(const void *a, const void *b)
{
	const struct gm_merge_row *p = a, *q = b;

	if (p->off != q->off)
		return p->off < q->off ? 1 : -1;
	if (p->most != q->most)
		return p->most < q->most ? 1 : -1;
	return strcmp(p->name, q->name);
}

/* The ranks' order: by number; those without one behind, as they were named. */
static const struct gm_merge *sorting;
static int by_rank(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	uint64_t p = (uint64_t)sorting->ranks[x].rank, q = (uint64_t)sorting->ranks[y].rank;

	return p != q ? (p < q ? -1 : 1) : x < y ? -1 : x > y;
}

static void permute(int64_t *values, const size_t *order, int64_t *scratch, size_t count)
{
	for (size_t i = 0; i < count; i++)
		scratch[i] = values[order[i]];
	memcpy(values, scratch, count * sizeof(*values));
}

static int order_ranks(struct gm_merge *merge)
{
	size_t count = merge->rank_count;
	size_t *order = calloc(count + 1, sizeof(*order));
	int64_t *scratch = calloc(count + 1, sizeof(*scratch));
	struct gm_merge_rank *ranks = calloc(count + 1, sizeof(*ranks));

	if (!order || !scratch || !ranks) {
		free(order);
		free(scratch);
		free(ranks);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	sorting = merge;
	qsort(order, count, sizeof(*order), by_rank);
	for (size_t i = 0; i < count; i++)
		ranks[i] = merge->ranks[order[i]];
	for (size_t i = 0; i < merge->row_count; i++) {
		permute(merge->rows[i].bytes, order, scratch, count);
		permute(merge->rows[i].blocks, order, scratch, count);
	}
	for (size_t i = 0, again = 0; i < count; i++) {
		again = i && ranks[i].rank >= 0 && ranks[i].rank == ranks[i - 1].rank ? again + 1
										      : 0;
		if (ranks[i].rank < 0)
			snprintf(ranks[i].label, sizeof(ranks[i].label), "#%zu", order[i] + 1);
		else if (again && again < 26)
			snprintf(ranks[i].label, sizeof(ranks[i].label), "%lld%c",
				 (long long)ranks[i].rank, (int)('a' + again));
		else
			snprintf(ranks[i].label, sizeof(ranks[i].label), "%lld",
				 (long long)ranks[i].rank);
	}
	free(merge->ranks);
	merge->ranks = ranks;
	free(order);
	free(scratch);
	return 0;
}

static void close_merge(struct gm_merge *merge)
{
	for (size_t i = 0; i < merge->row_count; i++) {
		free(merge->rows[i].name);
		free(merge->rows[i].bytes);
		free(merge->rows[i].blocks);
		json_decref(merge->rows[i].stack);
	}
	free(merge->rows);
	free(merge->ranks);
}

static int read_all(struct gm_merge *merge, const struct ask *ask, char **words, size_t count)
{
	struct gm_groups groups;
	int r = gm_groups_open(&groups, ask->by);
	bool there = false;

	if (r)
		return r;
	for (size_t i = 0; !r && i < count; i++) {
		struct gm_loaded loaded;

		gm_progress("gpumem merge: snapshots read", i, count);
		if (gm_load(words[i], &loaded)) {
			gm_progress_end();
			gm_input_bad("merge", words[i], loaded.error);
			gm_groups_close(&groups);
			return -EBADMSG;
		}
		merge->ranks[i].input = words[i];
		there |= gm_device_is_in(loaded.snapshot.root, ask->filter.device);
		describe(ask, loaded.snapshot.root, &merge->ranks[i]);
		r = add(merge, &groups, ask, &loaded.snapshot, i, count);
		gm_load_free(&loaded);
	}
	gm_progress_end();
	gm_groups_close(&groups);
	if (!r && !there) {
		gm_input_bad("merge", ask->filter.device, "no rank has that device");
		r = -EBADMSG;
	}
	return r;
}

static int merge_words(const struct ask *ask, char **words, size_t count)
{
	struct gm_merge merge = { .rank_count = count,
				  .by = gm_by_name(ask->by),
				  .at_peak = ask->at_peak,
				  .top = ask->top };
	int r;

	merge.ranks = calloc(count, sizeof(*merge.ranks));
	r = merge.ranks ? read_all(&merge, ask, words, count) : -ENOMEM;
	if (!r)
		r = order_ranks(&merge);
	for (size_t i = 0; !r && i < merge.row_count; i++)
		judge(&merge.rows[i], count);
	if (!r && merge.row_count)
		qsort(merge.rows, merge.row_count, sizeof(*merge.rows), by_off);
	if (r && r != -EBADMSG)
		fprintf(stderr, "gpumem merge: %s\n", gm_limit_why(r));
	else if (!r && ask->json)
		gm_merge_json(&merge);
	else if (!r)
		gm_merge_text(&merge);
	close_merge(&merge);
	return r ? GM_EXIT_INPUT : gm_show_end("merge", GM_EXIT_OK);
}

int gm_verb_merge(int argc, char **argv)
{
	struct ask ask = { .by = GM_BY_SITE, .top = 20 };
	int weigh = 0;			/* peak, live */
	const struct gm_argument arguments[] = {
		{ "by", GM_ARG_WORD, &ask.by }, { "weigh", GM_ARG_WORD, &weigh },
		{ "device", GM_ARG_DEVICE, &ask.filter.device }, { "top", GM_ARG_COUNT, &ask.top },
		{ "json", GM_ARG_FLAG, &ask.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);

	ask.at_peak = weigh == 0;
	return status >= 0 ? status : merge_words(&ask, argv + optind, (size_t)(argc - optind));
}
