/*
 * reuse_single.c - single-stream mode comes back: a program whose other streams were given work once, by
 * a library that starts up say, and have none left.
 *
 * A look takes two steps, so many seals apart. It begins with an event after everything submitted
 * in every context, and from there on work for any stream but the one that was submitted to just
 * then is noted ("others"). If the event is complete at the second step and nothing was noted, that
 * one stream has all the work there is. Each return makes the next one eight times as late: the end
 * of the mode has other streams wait, which a program that uses them now and then is to feel a few
 * times in its life at most.
 *
 * Who was on the way to the driver when the look began, or ended, has been noted by nobody: each
 * step moves what the hooks compare (ops.forget_streams), and who finds it moved after the real call comes
 * here (gm_reuse_submitted). Nobody can have been told of that work before, but by a host function
 * within it while the call that submitted it stood still for all the length of a look.
 *
 * Thread context: any, the order lock held. Signal context: none. Fork: the owner makes a new one.
 */
#include <stddef.h>

#include "allocator/reuse_internal.h"

#define SEALS 256u			/* between the steps of a look, at first */

#if GM_TEST_RULES
#define FIRST_SEALS (gm_rules_single ? gm_rules_single : SEALS)
#else
#define FIRST_SEALS SEALS
#endif

void gm_reuse_single_off_locked(struct gm_reuse *reuse)
{
	if (reuse->single_on && reuse->single_ticket)
		reuse->ops.drop(reuse->ops.arg, reuse->single_ticket);
	reuse->single_on = false;
	reuse->single_ticket = 0;
	reuse->single_seals = 0;
}

static void begin_locked(struct gm_reuse *reuse, uint64_t stream)
{
	if (reuse->ops.first && stream != reuse->hot->stream)
		reuse->ops.first(reuse->ops.arg, stream);
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->stream = stream;
	reuse->hot->others = 0;
	gm_unlock(&reuse->limbo);
	reuse->ops.forget_streams(reuse->ops.arg);
	reuse->single_on = !reuse->ops.record_all(reuse->ops.arg, &reuse->single_ticket);
	if (!reuse->single_on)
		reuse->single_ticket = 0;
}

/* Nobody who frees is to see the mode before it is certain: they look under limbo, or at the stamp. */
static void end_locked(struct gm_reuse *reuse)
{
	bool ended;

	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->many = 0;
	reuse->ops.forget_streams(reuse->ops.arg);
	ended = !(reuse->hot->others && gm_rule(GM_RULE_SINGLE_OTHERS));
	if (ended) {
		reuse->stamp++;
		reuse->one_open = false;
		reuse->one_covers = 0;
	} else {
		reuse->hot->many = 1;
	}
	gm_unlock(&reuse->limbo);
	if (ended)
		reuse->single_wait = reuse->single_wait < UINT32_MAX / 8 ? reuse->single_wait * 8 : UINT32_MAX;
}

void gm_reuse_single_locked(struct gm_reuse *reuse, uint64_t stream)
{
	if (!reuse->single_wait)
		reuse->single_wait = FIRST_SEALS;
	if (!reuse->ops.forget_streams || reuse->no_early || reuse->transition ||
	    reuse->hot->attention & GM_REUSE_CAPTURING || ++reuse->single_seals < reuse->single_wait)
		return;
	reuse->single_seals = 0;
	if (!reuse->single_on) {
		begin_locked(reuse, stream);
	} else if (reuse->hot->others && gm_rule(GM_RULE_SINGLE_OTHERS)) {
		gm_reuse_single_off_locked(reuse);
	} else if (!reuse->single_ticket || !gm_rule(GM_RULE_SINGLE_COMPLETE) ||
		   reuse->ops.query(reuse->ops.arg, reuse->single_ticket) == 1) {
		end_locked(reuse);
		gm_reuse_single_off_locked(reuse);
	}
}

void gm_reuse_submitted(struct gm_reuse *reuse, uint64_t stream)
{
	if (!gm_rule(GM_RULE_SINGLE_LATE))
		return;
	gm_reuse_note_other(reuse->hot, stream);
	if (!reuse->hot->many && reuse->hot->stream != stream)
		gm_reuse_submit(reuse, stream);
}
