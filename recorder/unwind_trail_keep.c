/*
 * unwind_trail_keep.c - what a walk learnt, kept as paths (see unwind_path.h). Owns nothing. Contexts as
 * unwind_trail.h: who has entered the trail. Empty but on x86-64.
 */
#include "recorder/unwind_trail_internal.h"

#ifndef __aarch64__

/* The path of the trail's frames [@first, @last) and what they lead to, as far as it goes: how many
 * steps. */
static uint32_t copy_path(const struct gm_trail *t, uint32_t first, uint32_t last,
			  struct gm_path_frame frames[GM_PATH_STEPS + 1])
{
	uint32_t n = 0;

	for (;; n++) {
		frames[n].pc = t->pc[first + n];
		frames[n].step = t->at[first + n].step;
		if (n == GM_PATH_STEPS || first + n == last || !gm_step_is_plain(frames[n].step))
			return n;
	}
}

/* The walk came to its frames by pieces of several paths: they become one, which who has its number can
 * take the next time. (Where the ways are other ones each time, that would never end: so not too
 * often.) */
static void keep_whole(struct gm_trail *t, const struct gm_course *c)
{
	struct gm_path_frame frames[GM_PATH_STEPS + 1];
	uint32_t n = copy_path(t, t->top, t->top + c->count, frames), had = 0;
	uint64_t kind = t->at[t->top].hash | 1;	/* this very stack's */
	const struct gm_path_frame *there = gm_path_find(t->paths, frames[0].pc,
							 frames[0].step & GM_STEP_PLACE, kind);

	while (there && gm_step_is_plain(there[had].step))
		had++;
	if (had >= n) {
		if (there)
			t->path = gm_path_number(t->paths, there);
	} else if (t->credit >= n) {
		t->credit -= n;
		t->path = gm_path_keep(t->paths, frames, n, kind);
	}
}

/* What was unwound can be followed the next time. */
void gm_trail_keep_paths(struct gm_trail *t, const struct gm_course *c)
{
	if (!t->paths && !t->no_paths) {
		t->paths = gm_paths_new();
		t->no_paths = !t->paths;
	}
	if (!t->paths)
		return;
	if (c->pieces >= GM_TRAIL_PIECES)
		keep_whole(t, c);
	for (uint32_t run = 0; run < c->runs; run++) {
		uint32_t first = t->top + c->first[run], last = t->top + c->last[run];

		while (first < last) {
			struct gm_path_frame frames[GM_PATH_STEPS + 1];
			uint32_t n = copy_path(t, first, last, frames);

			if (n)
				gm_path_keep(t->paths, frames, n, 0);
			first += n ? n : 1;
		}
	}
}

#endif
