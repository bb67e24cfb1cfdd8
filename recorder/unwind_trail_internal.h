/*
 * unwind_trail_internal.h - a trail, and a walk on it. Internal to unwind_trail*.c; x86-64.
 */
#ifndef GM_RECORDER_UNWIND_TRAIL_INTERNAL_H
#define GM_RECORDER_UNWIND_TRAIL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind_path.h"
#include "recorder/unwind_recipe.h"

#define GM_TRAIL_FRAMES 336u		/* kept of a stack */
#define GM_TRAIL_RUNS 4u		/* of frames unwound in one walk, to be kept */
#define GM_TRAIL_PIECES 3u		/* of which a walk's frames become a path of their own */
#define GM_TRAIL_WHAT_BITS 48		/* of a recipe's @what: the caller's; above, the stamp */
#define GM_TRAIL_CREDIT_MOST (GM_PATH_FRAMES / 2)

/* Frames from @top on, innermost first, the outermost at GM_TRAIL_FRAMES - 1. Behind that: what the
 * outermost one's rule leads to. What each walk uses lies together. */
struct gm_trail {
	_Alignas(64) uintptr_t pc[GM_TRAIL_FRAMES + 1];
	struct {
		uint64_t step;		/* as in a struct gm_path_frame */
		uint64_t hash;		/* gm_trail_hash_of the frames from here outwards */
	} at[GM_TRAIL_FRAMES + 1];
	_Alignas(64) _Atomic(uint32_t) busy;
	uint32_t owner;			/* number of a thread; 0 nobody's */
	uint32_t strangers, pause;
	uint32_t generation;		/* of the rules */
	uint32_t stamp;			/* changes with these and the owner */
	uint32_t top;
	bool open;			/* the stack goes on beyond the outermost frame */
	bool no_paths, no_recipes;	/* there was no room for them */
	struct gm_paths *paths;
	struct gm_recipes *recipes;
	uint32_t path, expected;	/* that the last walk began with, that the next one may */
	uint32_t credit;		/* frames that may be kept a second time, in a longer path */
	uint64_t followed, recalled;
	struct gm_path_frame fresh[GM_TRAIL_FRAMES];	/* those walked before it is joined */
};

/* The walk on its trail: of @count new frames, and known ones from @at on. */
struct gm_course {
	uint32_t max, count, at;
	uint64_t bits;			/* of the generation, gm_rule_find's */
	uint64_t stamp;			/* as it stands in a step */
	bool joined;
	uint32_t pieces;		/* paths and runs that they were got by */
	uint32_t runs;			/* of frames that were unwound: kept as paths */
	uint32_t first[GM_TRAIL_RUNS], last[GM_TRAIL_RUNS];	/* behind the last */
};

/* Keep what the walk learnt as paths; the trail has its frames, from its top on. */
void gm_trail_keep_paths(struct gm_trail *t, const struct gm_course *c);

#endif
