/*
 * flame_data.c - the weight of each stack; the formats folded and speedscope: see flame.h. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/convert.h"
#include "tools/write/flame.h"
#include "tools/show/groups.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/write/writer.h"
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

/* ---- frames and stacks that are shown alike --------------------------------------------------- */

/* Return the text that frames shown alike share: the label and, with @by_line, file and line. Without these, the frames
 * of a native function's different lines are one frame. */
static const char *frame_text(struct gm_values *texts, const struct gm_frame *frame, bool by_line)
{
	char text[1200];

	gm_flame_label(frame, text, 512);
	if (by_line)
		snprintf(text + strlen(text), sizeof(text) - 512, "\n%.600s\n%lld", frame->file,
			 (long long)frame->line);
	gm_show_repair(text);
	return gm_values_string(texts, text, strlen(text));
}

int gm_flame_find_alike(struct gm_flame *flame, bool by_line)
{
	struct gm_table first = { .count = 0 };		/* a text -> frame + 1 */
	int r = 0;

	for (size_t i = 0; !r && i < flame->stacks->frame_count; i++) {
		const struct gm_frame *frame = &flame->stacks->frames[i];
		uint64_t key = (uint64_t)(uintptr_t)frame_text(flame->stacks->texts, frame, by_line);
		uint64_t at = gm_table_get(&first, key, 0);

		flame->alike[i] = (uint32_t)(at ? at - 1 : i);
		if (!key || (!at && gm_table_put(&first, key, 0, i + 1)))
			r = -ENOMEM;
	}
	gm_table_free(&first);
	return r;
}

/* Move the weights of stacks that are shown alike to the first of them. Return 0 or -ENOMEM. */
static int weigh_alike(struct gm_flame *flame)
{
	struct gm_table first = { .count = 0 };		/* the frames, as a text -> stack + 1 */
	uint32_t *list = NULL;
	int r = 0;

	for (size_t s = 0; !r && s < flame->count; s++) {
		size_t count;
		const uint32_t *ids = gm_stack(flame->stacks, (int64_t)s, &count);
		uint32_t *larger = flame->weights[s] ? realloc(list, (count + 1) * sizeof(*list)) : NULL;
		uint64_t key = 0, at;

		if (!flame->weights[s])
			continue;
		list = larger ? larger : list;
		for (size_t i = 0; larger && i < count; i++)
			list[i] = flame->alike[ids[i]];
		if (larger)
			key = (uint64_t)(uintptr_t)gm_values_string(flame->stacks->texts, (const char *)list,
								    count * sizeof(*list));
		at = gm_table_get(&first, key, 1);
		if (at) {
			flame->weights[at - 1] += flame->weights[s];
			flame->weights[s] = 0;
		} else if (!key || gm_table_put(&first, key, 1, s + 1)) {
			r = -ENOMEM;
		}
	}
	gm_table_free(&first);
	free(list);
	return r;
}

int gm_flame_open(struct gm_flame *flame, const struct gm_stacks *stacks, const struct gm_lives *lives,
		  const char *device, const struct gm_flame_ways *ways)
{
	enum gm_weigh weigh = ways->weigh;
	int64_t row = -1;
	bool at_peak;
	int r;

	*flame = (struct gm_flame){ .stacks = stacks, .weigh = weigh };
	flame->count = stacks->count ? stacks->count : 1;
	flame->weights = calloc(flame->count, sizeof(*flame->weights));
	flame->alike = calloc(stacks->frame_count + 3, sizeof(*flame->alike));
	if (!flame->weights || !flame->alike || (weigh == GM_WEIGH_PEAK && gm_lives_peak(lives, device, &row) < 0)) {
		gm_flame_close(flame);
		return -ENOMEM;
	}
	at_peak = row == GM_LIVES_PEAK;
	for (size_t i = 0; i < (at_peak ? lives->at_peak_count : lives->count); i++) {
		const struct gm_life *life = at_peak ? &lives->at_peak[i] : &lives->list[i];
		int64_t weight = !gm_life_counts(life, device) ? 0 : at_peak ? life->size : weight_of(life, weigh, row);
		bool known = life->stack >= 0 && (uint64_t)life->stack < flame->count;

		/* No device reaches a sum beyond 63 bits: cut it. */
		if (weight > INT64_MAX - flame->total)
			weight = INT64_MAX - flame->total;
		flame->weights[known ? life->stack : 0] += weight;
		flame->total += weight;
	}
	r = ways->fold || ways->invert ? gm_flame_fold(flame, stacks, ways->fold, ways->invert) :
	    gm_flame_find_alike(flame, ways->by_line);
	if (r || weigh_alike(flame)) {
		gm_flame_close(flame);
		return -ENOMEM;
	}
	return 0;
}

void gm_flame_close(struct gm_flame *flame)
{
	free(flame->weights);
	free(flame->alike);
	free(flame->own.frames);
	free(flame->view.starts);
	free(flame->view.ids);
	flame->own.frames = NULL;
	flame->view.starts = NULL;
	flame->view.ids = NULL;
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

/* Write a frame's @text. ';' would end the frame and becomes ':'; control characters, line ends among them, become
 * '?'. */
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

/* Write each frame of the profiles' stacks once. @numbers gets, by frame, its place in the file + 1. The item behind
 * the last frame is for "(no stack)". */
static void put_frames(struct gm_writer *w, const struct gm_flame *flames, size_t profiles, uint32_t *numbers)
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
	gm_writer_put_begin(w, "shared", GM_WRITER_DICT);
	gm_writer_put_begin(w, "frames", GM_WRITER_LIST);
	for (size_t i = 0; i <= stacks->frame_count; i++) {
		if (!numbers[i])
			continue;
		numbers[i] = ++next;
		gm_writer_begin(w, GM_WRITER_DICT);
		gm_writer_put_string(w, "name", i < stacks->frame_count ? stacks->frames[i].name : "(no stack)");
		if (i < stacks->frame_count) {
			gm_writer_put_string(w, "file", stacks->frames[i].file);
			gm_writer_put_int(w, "line", stacks->frames[i].line);
		}
		gm_writer_end(w);
	}
	gm_writer_end(w);
	gm_writer_end(w);
}

static void put_sample(struct gm_writer *w, const struct gm_flame *flame, size_t stack, const uint32_t *numbers)
{
	size_t count;
	const uint32_t *ids = gm_stack(flame->stacks, (int64_t)stack, &count);

	gm_writer_begin(w, GM_WRITER_LIST);
	if (!count)
		gm_writer_int(w, numbers[flame->stacks->frame_count] - INT64_C(1));
	while (count--)
		gm_writer_int(w, numbers[flame->alike[ids[count]]] - INT64_C(1));
	gm_writer_end(w);
}

static void put_profile(struct gm_writer *w, const struct gm_flame *flame, const uint32_t *numbers)
{
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_string(w, "type", "sampled");
	gm_writer_put_string(w, "name", gm_weigh_name(flame->weigh));
	gm_writer_put_string(w, "unit", flame->weigh == GM_WEIGH_COUNT ? "none" : "bytes");
	gm_writer_put_int(w, "startValue", 0);
	gm_writer_put_int(w, "endValue", flame->total);
	gm_writer_put_begin(w, "samples", GM_WRITER_LIST);
	for (size_t s = 0; s < flame->count; s++)
		if (flame->weights[s])
			put_sample(w, flame, s, numbers);
	gm_writer_end(w);
	gm_writer_put_begin(w, "weights", GM_WRITER_LIST);
	for (size_t s = 0; s < flame->count; s++)
		if (flame->weights[s])
			gm_writer_int(w, flame->weights[s]);
	gm_writer_end(w);
	gm_writer_end(w);
}

int gm_flame_speedscope(FILE *out, const struct gm_flame *flames, size_t count, const char *title)
{
	uint32_t *numbers = calloc(flames[0].stacks->frame_count + 1, sizeof(*numbers));
	struct gm_writer *w = numbers ? gm_writer_open(out, false) : NULL;

	if (!w) {
		free(numbers);
		return -ENOMEM;
	}
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_string(w, "$schema", "https://www.speedscope.app/file-format-schema.json");
	gm_writer_put_string(w, "exporter", "gpumem " GPUMEM_VERSION);
	gm_writer_put_string(w, "name", title);
	gm_writer_put_int(w, "activeProfileIndex", 0);
	put_frames(w, flames, count, numbers);
	gm_writer_put_begin(w, "profiles", GM_WRITER_LIST);
	for (size_t i = 0; i < count; i++)
		put_profile(w, &flames[i], numbers);
	gm_writer_end(w);
	gm_writer_end(w);
	free(numbers);
	return gm_writer_close(w);
}

/* ---- for gpumem convert ----------------------------------------------------------------------- */

/* Write folded stacks of the live bytes, or two profiles for speedscope: the peak and the live bytes. */
static int convert(FILE *out, struct gm_loaded *loaded, bool speedscope, char note[256])
{
	struct gm_flame flames[2] = { { .count = 0 } };
	struct gm_flame_ways ways;
	struct gm_scene scene;
	int r = gm_scene_open(&scene, &loaded->snapshot);

	if (r)
		return r;
	ways = (struct gm_flame_ways){ .weigh = speedscope ? GM_WEIGH_PEAK : GM_WEIGH_LIVE, .by_line = speedscope };
	r = gm_flame_open(&flames[0], &scene.stacks, &scene.lives, NULL, &ways);
	ways.weigh = GM_WEIGH_LIVE;
	if (!r && speedscope)
		r = gm_flame_open(&flames[1], &scene.stacks, &scene.lives, NULL, &ways);
	if (!r && speedscope)
		r = gm_flame_speedscope(out, flames, 2, gm_json_text(gm_json_object(scene.root, "process"), "command"));
	else if (!r)
		gm_flame_folded(out, &flames[0]);
	if (!r && !flames[0].total)
		snprintf(note, 256, speedscope ? "nothing is live in it, nor ever was as far as its history goes" :
			 "nothing is live in it: gpumem flame --format folded --weigh peak has what was");
	gm_flame_close(&flames[0]);
	gm_flame_close(&flames[1]);
	gm_scene_close(&scene);
	return r;
}

int gm_convert_folded(FILE *out, struct gm_loaded *loaded, char note[256])
{
	return convert(out, loaded, false, note);
}

int gm_convert_speedscope(FILE *out, struct gm_loaded *loaded, char note[256])
{
	return convert(out, loaded, true, note);
}
