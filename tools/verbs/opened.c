/*
 * opened.c - the inputs of a verb: see opened.h.
 */
#include "tools/verbs/opened.h"

#include <stdio.h>
#include <string.h>

#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/symbols/symbols.h"
#include "tools/verbs/arguments.h"
#include "tools/write/convert.h"

bool gm_device_is_in(const json_t *root, const char *device)
{
	const json_t *one;
	size_t i;

	if (!device || !strcmp(device, "host"))
		return true;
	json_array_foreach(gm_json_list(root, "devices"), i, one) {
		char text[24];

		snprintf(text, sizeof(text), "%lld", (long long)gm_json_number(one, "device"));
		if (!strcmp(text, device))
			return true;
	}
	return false;
}

static int no_device(const char *verb, const char *word, const char *device, const char *where)
{
	char why[80];

	snprintf(why, sizeof(why), "there is no device %.20s in %s", device, where);
	return gm_input_bad(verb, word, why);
}

int gm_device_check(const char *verb, const char *device, const char *word, const json_t *root)
{
	return gm_device_is_in(root, device) ? 0 : no_device(verb, word, device, "it");
}

static int open_cut(const char *verb, const char *word, const char *device, const struct gm_cut *cut,
		    enum gm_pool_level level, struct gm_opened *ret)
{
	int status, r = 0;

	if (gm_load(word, GM_LOAD_WHOLE, &ret->loaded))
		return gm_input_bad(verb, word, ret->loaded.error);
	status = gm_device_check(verb, device, word, ret->loaded.snapshot.root);
	if (!status)
		r = gm_level_apply(&ret->loaded.snapshot, level);
	if (!status && !r)
		r = gm_names_show(verb, &ret->loaded.snapshot);
	/* After gm_level_apply, which needs the whole history to know the pieces of pools. */
	if (!status && !r && cut && gm_cut_wanted(cut))
		r = gm_convert_cut(&ret->loaded.snapshot, cut);
	if (!status && !r)
		r = gm_snapshot_annotate(&ret->loaded.snapshot);
	if (!status && !r)
		r = gm_scene_open(&ret->scene, &ret->loaded.snapshot);
	if (r)
		status = gm_input_bad(verb, word, gm_limit_why(r));
	if (status)
		gm_load_free(&ret->loaded);
	return status;
}

int gm_open(const char *verb, const char *word, const char *device, enum gm_pool_level level, struct gm_opened *ret)
{
	return open_cut(verb, word, device, NULL, level, ret);
}

int gm_open_part(const char *verb, const char *word, const struct gm_cut *cut, enum gm_pool_level level,
		 struct gm_opened *ret)
{
	return open_cut(verb, word, cut->device, cut, level, ret);
}

void gm_opened_close(struct gm_opened *opened)
{
	gm_scene_close(&opened->scene);
	gm_load_free(&opened->loaded);
}

int gm_compare(const char *verb, char **words, int count, const char *device, enum gm_pool_level level,
	       struct gm_suppressions *known, enum gm_by by, struct gm_compared *ret)
{
	int r = gm_groups_open(&ret->groups, by), status = 0;
	bool there = false;

	memset(ret->inputs, 0, sizeof(ret->inputs));
	for (int i = 0; !r && !status && i < count; i++) {
		struct gm_opened *one = &ret->inputs[i];

		status = gm_open(verb, words[i], NULL, level, one);
		if (status)
			break;
		r = gm_groups_add(&ret->groups, count == 1 ? 1 : i, &one->scene, device, GM_LIVES_END, known);
		there |= gm_device_is_in(one->loaded.snapshot.root, device);
		gm_lives_close(&one->scene.lives);	/* the sums are made, and the next input may be as large */
	}
	if (!r && !status && count == 2)
		r = gm_groups_merge_builds(&ret->groups);
	if (r) {
		fprintf(stderr, "gpumem %s: %s\n", verb, gm_limit_why(r));
		status = GM_EXIT_INPUT;
	} else if (!status && !there) {
		status = no_device(verb, words[count - 1], device, count == 1 ? "it" : "any of them");
	}
	gm_groups_sort(&ret->groups);
	if (status)
		gm_compared_close(ret);
	return status;
}

void gm_compared_close(struct gm_compared *compared)
{
	gm_groups_close(&compared->groups);
	gm_opened_close(&compared->inputs[0]);
	gm_opened_close(&compared->inputs[1]);
}
