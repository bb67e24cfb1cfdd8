/*
 * unwind_follow.h - following what was kept of a walk, as far as it is true. Internal to
 * unwind_trail.c; x86-64.
 *
 * Which register a frame has its place by, and whether it saved one, changes from frame to frame, and
 * no processor could foresee it: so the steps have no branches but for the end.
 *
 * Thread context: who has entered the trail.
 */
#ifndef GM_RECORDER_UNWIND_FOLLOW_H
#define GM_RECORDER_UNWIND_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind_path.h"
#include "recorder/unwind_rules.h"
#include "recorder/unwind_walk.h"

/* The stack pointer at the frame with this step. */
static inline uintptr_t gm_step_sp(uintptr_t hi, uint64_t step)
{
	return hi - ((step & GM_STEP_DEPTH) << 3);
}

/* How far what was kept is true. */
struct gm_followed {
	uint32_t count;			/* frames that are as they were, the last of which ... */
	bool parted;			/* ... leads elsewhere: to @pc, at @sp */
	uintptr_t pc, sp, fp;
};

/* Does the frame with this step end at @cfa? */
static inline bool gm_step_is_at(uint64_t step, uintptr_t fp, uintptr_t cfa)
{
	uintptr_t by_fp = gm_entry_is_fp(step) ? UINTPTR_MAX : 0;

	return !((fp + gm_entry_offset(step) - cfa) & by_fp);
}

/* The frame pointer in its caller. Where it was not saved, a word that there surely is is read. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline uintptr_t gm_step_caller_fp(uint64_t step, uintptr_t fp, uintptr_t cfa)
{
	uintptr_t save = gm_entry_save(step);
	uintptr_t saved = *(const uintptr_t *)(cfa - (save ? save : 8));

	return save ? saved : fp;
}

/* Follow @frames, of which @w stands at the first. The words to read lie on this thread's stack above
 * it: they were read from there, by the same rule at the same place, when the frames were unwound. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline void gm_follow_path(const struct gm_path_frame *frames, const struct gm_walk *w,
			       struct gm_path_frame *ret_fresh, struct gm_followed *ret)
{
	uintptr_t hi = w->window.hi, fp = w->fp;
	uint32_t i = 0;

	ret->parted = false;
	while (gm_step_is_plain(frames[i].step)) {
		uint64_t step = frames[i].step;
		uintptr_t cfa = gm_step_sp(hi, frames[i + 1].step);
		uintptr_t next = *(const uintptr_t *)(cfa - 8);

		if (__builtin_expect(!gm_step_is_at(step, fp, cfa) || next == 0, 0))
			break;
		fp = gm_step_caller_fp(step, fp, cfa);
		ret_fresh[i] = frames[i];
		if (next != frames[++i].pc) {
			ret->parted = true;
			ret->pc = next;
			ret->sp = cfa;
			break;
		}
	}
	ret->count = i;
	ret->fp = fp;
	if (!ret->parted) {
		ret->pc = frames[i].pc;
		ret->sp = gm_step_sp(hi, frames[i].step);
	}
}

#endif
