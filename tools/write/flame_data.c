/*
 * flame_data.c - stacks and what they weigh; folded and speedscope: see flame.h. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/flame.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/write/tree_write.h"
#include "tools/read/value.h"

const char *gm_weigh_name(enum gm_weigh weigh)
{
	static const char *const names[] = {
		"live bytes", "peak bytes", "allocations", "bytes allocated", "bytes freed again"
	};

	return names[weigh];
}

static int64_t weight_of(const struct gm_life *life, enum gm_weigh weigh, int64_t peak_row)
{
	switch (weigh) {
	case GM_WEIGH_LIVE:	return life->died == GM_LIFE_LIVE ? life->size : 0;
	case GM_WEIGH_PEAK:	return gm_life_at(life, peak_row) ? life->size : 0;
	case GM_WEIGH_COUNT:	return 1;
	case GM_WEIGH_BYTES:	return life->size;
	case GM_WEIGH_CHURN:	return life->died != GM_LIFE_LIVE ? life->size : 0;
	}
	return 0;
}

/* ---- what is shown alike ---------------------------------------------------------------------- */

/* A function has a frame for each place that it calls from. */
static const struct gm_value *frame_text(struct gm_values *texts, const struct gm_frame *frame, bool by_line)
{
	char label[512], text[1200];

	gm_flame_label(frame, label, sizeof(label));
	if (!by_line)
		return gm_value_text(texts, label, strlen(label));
	snprintf(text, sizeof(text), "%s\n%.600s\n%lld", label, frame->file, (long long)frame->line);
	gm_show_repair(text);
	return gm_value_text(texts, text, strlen(text));
}

static int find_alike(struct gm_flame *flame, struct gm_values *texts, bool by_line,
		      const struct gm_value **text_of)
{
	struct gm_table first = { .count = 0 };		/* a text -> frame + 1 */
	size_t i;

	for (i = 0; i < flame->stacks->frame_count; i++) {
		uint64_t key, at;

		text_of[i] = frame_text(texts, &flame->stacks->frames[i], by_line);
		key = (uint64_t)(uintptr_t)text_of[i];
		at = key ? gm_table_get(&first, key, 0) : 0;
		if (!key || (!at && gm_table_put(&first, key, 0, i + 1)))
			break;
		flame->alike[i] = (uint32_t)(at ? at - 1 : i);
	}
	gm_table_free(&first);
	return i < flame->stacks->frame_count ? -ENOMEM : 0;
}

/* The first of the stacks that are shown alike weighs what all of them do. */
static int weigh_alike(struct gm_flame *flame, struct gm_values *texts, const struct gm_value **text_of)
{
	struct gm_table first = { .count = 0 };		/* a list of texts -> stack + 1 */
	const struct gm_value **list = NULL;
	int r = 0;

	for (size_t s = 0; !r && s < flame->count; s++) {
		const struct gm_value **larger, *all;
		size_t count;
		const uint32_t *ids = gm_stack(flame->stacks, (int64_t)s, &count);
		uint64_t at;

		if (!flame->weights[s])
			continue;
		larger = realloc(list, (count + 1) * sizeof(*list));
		list = larger ? larger : list;
		for (size_t i = 0; larger && i < count; i++)
			list[i] = text_of[ids[i]];
		all = larger ? gm_value_shared(texts, GM_VALUE_LIST, list, count) : NULL;
		at = all ? gm_table_get(&first, (uint64_t)(uintptr_t)all, 0) : 0;
		if (at) {
			flame->weights[at - 1] += flame->weights[s];
			flame->weights[s] = 0;
		} else if (!all || gm_table_put(&first, (uint64_t)(uintptr_t)all, 0, s + 1)) {
			r = -ENOMEM;
		}
	}
	gm_table_free(&first);
	free(list);
	return r;
}

static int join_alike(struct gm_flame *flame, bool by_line)
{
	const struct gm_value **text_of = calloc(flame->stacks->frame_count + 1, sizeof(*text_of));
	struct gm_values *texts = gm_values_open(SIZE_MAX);
	int r = -ENOMEM;

	flame->alike = calloc(flame->stacks->frame_count + 1, sizeof(*flame->alike));
	if (text_of && texts && flame->alike)
		r = find_alike(flame, texts, by_line, text_of);
	if (!r)
		r = weigh_alike(flame, texts, text_of);
	gm_values_close(texts);
	free(text_of);
	return r;
}

int gm_flame_open(struct gm_flame *flame, const struct gm_stacks *stacks, const struct gm_lives *lives,
		  const struct gm_lives_filter *filter, enum gm_weigh weigh, bool by_line)
{
	int64_t row = -1;

	*flame = (struct gm_flame){ .stacks = stacks, .weigh = weigh };
	flame->count = stacks->count ? stacks->count : 1;
	flame->weights = calloc(flame->count, sizeof(*flame->weights));
	if (!flame->weights || (weigh == GM_WEIGH_PEAK && gm_lives_peak(lives, filter, &row) < 0)) {
		gm_flame_close(flame);
		return -ENOMEM;
	}
	for (size_t i = 0; i < lives->count; i++) {
		const struct gm_life *life = &lives->list[i];
		int64_t weight = gm_life_counts(life, filter) ? weight_of(life, weigh, row) : 0;
		bool known = life->stack >= 0 && (uint64_t)life->stack < flame->count;

		/* Sums beyond 63 bits come from no device: they are cut. */
		if (weight > INT64_MAX - flame->total)
			weight = INT64_MAX - flame->total;
		flame->weights[known ? life->stack : 0] += weight;
		flame->total += weight;
	}
	if (join_alike(flame, by_line)) {
		gm_flame_close(flame);
		return -ENOMEM;
	}
	return 0;
}

void gm_flame_close(struct gm_flame *flame)
{
	free(flame->weights);
	free(flame->alike);
	flame->weights = NULL;
	flame->alike = NULL;
}

void gm_flame_label(const struct gm_frame *frame, char *ret, size_t room)
{
	const char *slash = strrchr(frame->file, '/');

	if (frame->python)
		snprintf(ret, room, "%s (%s:%lld)", frame->name, slash && slash[1] ? slash + 1 : frame->file,
			 (long long)frame->line);
	else
		snprintf(ret, room, "%s", frame->name);
	gm_show_repair(ret);
}

/* ';' parts frames and a line end parts stacks: in a name they become something else; so does what a
 * terminal would obey. */
static void put_folded(FILE *out, const char *text)
{
	for (; *text; text++) {
		size_t control = gm_show_control(text);

		putc_unlocked(*text == ';' ? ':' : control ? '?' : *text, out);
		text += control ? control - 1 : 0;
	}
}

void gm_flame_folded(FILE *out, const struct gm_flame *flame)
{
	char label[512];

	for (size_t s = 0; s < flame->count; s++) {
		size_t count;
		const uint32_t *ids = gm_stack(flame->stacks, (int64_t)s, &count);

		if (!flame->weights[s])
			continue;
		if (!count)
			fputs("(no stack)", out);
		while (count--) {
			gm_flame_label(&flame->stacks->frames[ids[count]], label, sizeof(label));
			put_folded(out, label);
			if (count)
				putc_unlocked(';', out);
		}
		fprintf(out, " %lld\n", (long long)flame->weights[s]);
	}
}

/* ---- speedscope ------------------------------------------------------------------------------- */

static void put_text(struct gm_tree *tree, const char *name, const char *text)
{
	gm_tree_name(tree, name);
	gm_tree_string(tree, text);
}

/* The frames that are in a stack of some profile, each once; @numbers: their places + 1 in the file. The
 * one behind them all stands for no stack. */
static void put_frames(struct gm_tree *tree, const struct gm_flame *flames, size_t profiles, uint32_t *numbers)
{
	const struct gm_stacks *stacks = flames[0].stacks;
	uint32_t next = 0;

	for (size_t p = 0; p < profiles; p++)
		for (size_t s = 0; s < flames[p].count; s++) {
			size_t count;
			const uint32_t *ids = gm_stack(stacks, (int64_t)s, &count);

			if (flames[p].weights[s] && !count)
				numbers[stacks->frame_count] = 1;
			while (flames[p].weights[s] && count--)
				numbers[flames[p].alike[ids[count]]] = 1;
		}
	gm_tree_name(tree, "shared");
	gm_tree_begin(tree, GM_TREE_DICT);
	gm_tree_name(tree, "frames");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t i = 0; i <= stacks->frame_count; i++) {
		if (!numbers[i])
			continue;
		numbers[i] = ++next;
		gm_tree_begin(tree, GM_TREE_DICT);
		put_text(tree, "name", i < stacks->frame_count ? stacks->frames[i].name : "(no stack)");
		if (i < stacks->frame_count) {
			put_text(tree, "file", stacks->frames[i].file);
			gm_tree_name(tree, "line");
			gm_tree_int(tree, stacks->frames[i].line);
		}
		gm_tree_end(tree);
	}
	gm_tree_end(tree);
	gm_tree_end(tree);
}

static void put_sample(struct gm_tree *tree, const struct gm_flame *flame, size_t stack, const uint32_t *numbers)
{
	size_t count;
	const uint32_t *ids = gm_stack(flame->stacks, (int64_t)stack, &count);

	gm_tree_begin(tree, GM_TREE_LIST);
	if (!count)
		gm_tree_int(tree, numbers[flame->stacks->frame_count] - INT64_C(1));
	while (count--)
		gm_tree_int(tree, numbers[flame->alike[ids[count]]] - INT64_C(1));
	gm_tree_end(tree);
}

static void put_profile(struct gm_tree *tree, const struct gm_flame *flame, const uint32_t *numbers)
{
	gm_tree_begin(tree, GM_TREE_DICT);
	put_text(tree, "type", "sampled");
	put_text(tree, "name", gm_weigh_name(flame->weigh));
	put_text(tree, "unit", flame->weigh == GM_WEIGH_COUNT ? "none" : "bytes");
	gm_tree_name(tree, "startValue");
	gm_tree_int(tree, 0);
	gm_tree_name(tree, "endValue");
	gm_tree_int(tree, flame->total);
	gm_tree_name(tree, "samples");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t s = 0; s < flame->count; s++)
		if (flame->weights[s])
			put_sample(tree, flame, s, numbers);
	gm_tree_end(tree);
	gm_tree_name(tree, "weights");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t s = 0; s < flame->count; s++)
		if (flame->weights[s])
			gm_tree_int(tree, flame->weights[s]);
	gm_tree_end(tree);
	gm_tree_end(tree);
}

int gm_flame_speedscope(FILE *out, const struct gm_flame *flames, size_t count, const char *title)
{
	uint32_t *numbers = calloc(flames[0].stacks->frame_count + 1, sizeof(*numbers));
	struct gm_tree *tree = numbers ? gm_tree_json(out) : NULL;

	if (!tree) {
		free(numbers);
		return -ENOMEM;
	}
	gm_tree_begin(tree, GM_TREE_DICT);
	put_text(tree, "$schema", "https://www.speedscope.app/file-format-schema.json");
	put_text(tree, "exporter", "gpumem " GPUMEM_VERSION);
	put_text(tree, "name", title);
	gm_tree_name(tree, "activeProfileIndex");
	gm_tree_int(tree, 0);
	put_frames(tree, flames, count, numbers);
	gm_tree_name(tree, "profiles");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t i = 0; i < count; i++)
		put_profile(tree, &flames[i], numbers);
	gm_tree_end(tree);
	gm_tree_end(tree);
	free(numbers);
	return gm_tree_close(tree);
}
