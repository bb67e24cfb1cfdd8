/*
 * reuse_single.c - single-stream mode comes back: for a program whose other streams had work once, of
 * a library that started up say, and have none any more.
 *
 * A check takes two steps, some seals apart. It begins with an event after everything submitted in
 * every context. From there on work for any stream but the one that was submitted to just then is
 * noted ("others"). If at the second step the event is complete and nothing was noted, that one stream
 * has all the work there is. Each return makes the next one eight times as late: the end of the mode
 * has other streams wait, which a program that uses them now and then is to feel a few times in its
 * life at most.
 *
 * A thread that is on its way to the driver when a step is made has passed the hooks' test, and nobody
 * has noted its work. So each step changes what the hooks compare (ops.forget_streams): a thread that
 * finds it changed after the real call reports its work (gm_reuse_submitted). That is soon enough:
 * until the call returns nobody knows of its work, unless a host function in that work says so while
 * the call stands still for the whole of the check.
 *
 * Thread context: any, the order lock held. Signal context: none.
 */
#include <stddef.h>

#include "allocator/reuse_internal.h"

#define SEALS 256u			/* between the steps of a check, at first */

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
