/*
 * convert_flame.c - folded stacks of what is live, and speedscope with the peak and the end: for
 * `gpumem convert`. One thread.
 */
#include <errno.h>

#include "tools/write/convert.h"
#include "tools/write/flame.h"

static int convert(FILE *out, struct gm_loaded *loaded, bool speedscope, char note[256])
{
	static const struct gm_lives_filter all = { NULL };
	struct gm_flame flames[2] = { { .count = 0 } };
	struct gm_stacks stacks = { .count = 0 };
	struct gm_lives lives;
	int r = gm_lives_open(&lives, &loaded->snapshot);

	if (r)
		return r;
	r = gm_stacks_open(&stacks, &loaded->snapshot);
	if (!r)
		r = gm_flame_open(&flames[0], &stacks, &lives, &all,
				  speedscope ? GM_WEIGH_PEAK : GM_WEIGH_LIVE, speedscope);
	if (!r && speedscope)
		r = gm_flame_open(&flames[1], &stacks, &lives, &all, GM_WEIGH_LIVE, true);
	if (!r && speedscope)
		r = gm_flame_speedscope(out, flames, 2, gm_json_text(gm_json_object(loaded->snapshot.root, "process"),
								     "command"));
	else if (!r)
		gm_flame_folded(out, &flames[0]);
	if (!r && !flames[0].total)
		snprintf(note, 256, speedscope ? "nothing is live in it, nor ever was as far as its history goes" :
			 "nothing is live in it: gpumem flame --format folded --weigh peak has what was");
	gm_flame_close(&flames[0]);
	gm_flame_close(&flames[1]);
	gm_stacks_close(&stacks);
	gm_lives_close(&lives);
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
