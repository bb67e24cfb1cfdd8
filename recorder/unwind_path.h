/*
 * unwind_path.h - ways that a thread's stacks went, kept by the frame that each begins with: runs of
 * frames and the rules that undo them, for unwind_trail.c to follow where its last walk is no help.
 * What is kept are guesses. x86-64.
 *
 * A frame is two words, its pc and
 *
 *	63   51 50  45 44 43   42    41    26 25          0
 *	| offset | save | form | exact | stamp | depth / 8   |
 *
 *	offset, save, form	of a plain entry of unwind_rules.h; offset 0: no rule that fits
 *	exact			the pc is an instruction, not a return address
 *	stamp			whose, and of which objects: what has another one is out of date
 *	depth			of its stack pointer, from the end of the stack
 *
 * Thread context: whoever has entered the trail that the paths belong to.
 */
#ifndef GM_RECORDER_UNWIND_PATH_H
#define GM_RECORDER_UNWIND_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_STEP_DEPTH ((UINT64_C(1) << 26) - 1)
#define GM_STEP_STAMP_SHIFT 26
#define GM_STEP_STAMPS (UINT64_C(1) << 16)
#define GM_STEP_EXACT (UINT64_C(1) << 42)
#define GM_STEP_PLACE ((UINT64_C(1) << 43) - 1)	/* what tells it from other frames with its pc */
#define GM_STEP_END (UINT64_C(1) << 44)		/* a form without offset: of the outermost frame */

#define GM_PATH_STEPS 31u
#define GM_PATH_FRAMES_LOG2 15u
#define GM_PATH_FRAMES (1u << GM_PATH_FRAMES_LOG2)	/* kept in all, a ring */
#define GM_PATH_TAGS (1u << (32 - GM_PATH_FRAMES_LOG2))
#define GM_PATH_BUCKETS 1024u
#define GM_PATH_WAYS 4u

struct gm_path_frame {
	uintptr_t pc;
	uint64_t step;
};

/* The frames of a path follow each other; the last one has no rule. Of one that is overwritten the
 * beginning goes first: what is found is whole. Paths stand in the order in which they were met: who
 * comes to them in that order again finds them in few pages. */
struct gm_paths {
	uint32_t index[GM_PATH_BUCKETS][GM_PATH_WAYS];	/* tag, number */
	struct gm_path_frame frames[GM_PATH_FRAMES];
	uint32_t used;
};

static inline bool gm_step_is_plain(uint64_t step)
{
	return step >> 51 != 0;
}

static inline uint64_t gm_path_hash(uintptr_t pc, uint64_t place, uint64_t kind)
{
	return (pc ^ place << 36 ^ place >> 28 ^ kind) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline bool gm_path_begins(const struct gm_path_frame *frame, uintptr_t pc, uint64_t place)
{
	return frame->pc == pc && (frame->step & GM_STEP_PLACE) == place;
}

static inline uint32_t gm_path_number(const struct gm_paths *paths, const struct gm_path_frame *path)
{
	return (uint32_t)(path - paths->frames);
}

/* The path of that number, if it begins so; NULL if not. The number may be anything. */
static inline const struct gm_path_frame *gm_path_at(const struct gm_paths *paths, uint32_t number,
						     uintptr_t pc, uint64_t place)
{
	const struct gm_path_frame *frame = &paths->frames[number % GM_PATH_FRAMES];

	return gm_path_begins(frame, pc, place) ? frame : NULL;
}

/* It will be wanted. */
static inline void gm_path_fetch(const struct gm_paths *paths, uint32_t number)
{
	const struct gm_path_frame *frame = &paths->frames[number % GM_PATH_FRAMES];

	for (uint32_t i = 0; i < 20; i += 4)	/* more than most have */
		__builtin_prefetch(frame + i);
}

/* The path that begins with the frame at @place; NULL: none is known. @kind: several may begin there,
 * and are kept apart by that. */
static inline const struct gm_path_frame *gm_path_find(const struct gm_paths *paths, uintptr_t pc,
						       uint64_t place, uint64_t kind)
{
	uint64_t hash = gm_path_hash(pc, place, kind);
	const uint32_t *words = paths->index[hash >> 54];

	for (uint32_t i = 0; i < GM_PATH_WAYS; i++) {
		const struct gm_path_frame *frame = &paths->frames[words[i] % GM_PATH_FRAMES];

		if (words[i] / GM_PATH_FRAMES == (uint32_t)(hash >> 32) % GM_PATH_TAGS &&
		    gm_path_begins(frame, pc, place))
			return frame;
	}
	return NULL;
}

/* Room for paths, all empty; NULL when there is none. */
struct gm_paths *gm_paths_new(void);

/* Keep a path of @count steps, GM_PATH_STEPS at most, each with a rule, and the frame that the last
 * one leads to: @count + 1 in @frames. Returns its number. */
uint32_t gm_path_keep(struct gm_paths *paths, const struct gm_path_frame *frames, uint32_t count,
		      uint64_t kind);

/* The stamps begin anew: nothing that is kept may come alive. */
void gm_paths_clear(struct gm_paths *paths);

#endif
