/*
 * flame_data.c - stacks and what they weigh; folded and speedscope: see flame.h. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/flame.h"
#include "tools/show.h"
#include "tools/tree_write.h"

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

int gm_flame_open(struct gm_flame *flame, const struct gm_stacks *stacks, const struct gm_lives *lives,
		  const struct gm_lives_filter *filter, enum gm_weigh weigh)
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
	return 0;
}

void gm_flame_close(struct gm_flame *flame)
{
	free(flame->weights);
	flame->weights = NULL;
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

/* Frame 0, "could not be kept", is also what a missing stack shows. */
static void put_frames(struct gm_tree *tree, const struct gm_stacks *stacks)
{
	gm_tree_name(tree, "shared");
	gm_tree_begin(tree, GM_TREE_DICT);
	gm_tree_name(tree, "frames");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t i = 0; i < stacks->frame_count; i++) {
		const struct gm_frame *frame = &stacks->frames[i];

		gm_tree_begin(tree, GM_TREE_DICT);
		put_text(tree, "name", i ? frame->name : "(no stack)");
		if (i) {
			put_text(tree, "file", frame->file);
			gm_tree_name(tree, "line");
			gm_tree_int(tree, frame->line);
		}
		gm_tree_end(tree);
	}
	gm_tree_end(tree);
	gm_tree_end(tree);
}

static void put_sample(struct gm_tree *tree, const struct gm_stacks *stacks, size_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(stacks, (int64_t)stack, &count);

	gm_tree_begin(tree, GM_TREE_LIST);
	if (!count)
		gm_tree_int(tree, 0);
	while (count--)
		gm_tree_int(tree, ids[count]);
	gm_tree_end(tree);
}

static void put_profile(struct gm_tree *tree, const struct gm_flame *flame)
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
			put_sample(tree, flame->stacks, s);
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
	struct gm_tree *tree = gm_tree_json(out);

	if (!tree)
		return -ENOMEM;
	gm_tree_begin(tree, GM_TREE_DICT);
	put_text(tree, "$schema", "https://www.speedscope.app/file-format-schema.json");
	put_text(tree, "exporter", "gpumem " GPUMEM_VERSION);
	put_text(tree, "name", title);
	gm_tree_name(tree, "activeProfileIndex");
	gm_tree_int(tree, 0);
	put_frames(tree, flames[0].stacks);
	gm_tree_name(tree, "profiles");
	gm_tree_begin(tree, GM_TREE_LIST);
	for (size_t i = 0; i < count; i++)
		put_profile(tree, &flames[i]);
	gm_tree_end(tree);
	gm_tree_end(tree);
	return gm_tree_close(tree);
}
