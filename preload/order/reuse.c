/*
 * reuse.c - submissions: when marks are recorded, and how single-stream mode ends and comes back.
 *
 * The lock "order" orders everything here, and is held across the recording of events. A thread that submits work while
 * frees lack their event takes this lock first, so no submission slips in between such a free and its event. A
 * submission that passed the hooks' test just before another thread's free is unordered with that free.
 *
 * Thread context: any. Signal context: none. See reuse.h.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "preload/order/reuse_internal.h"

/* Written by the holder of limbo only; the hooks read it without the lock. */
void gm_reuse_attention_locked(struct gm_reuse *reuse)
{
	uint32_t bits = 0;

	if (reuse->open || reuse->one_open || reuse->one_recording)
		bits |= GM_REUSE_OPEN;
	if (reuse->transition_on)
		bits |= GM_REUSE_TRANSITION;
	if (reuse->captures)
		bits |= GM_REUSE_CAPTURING;
	if (reuse->hot->attention != bits)
		reuse->hot->attention = bits;
}

struct gm_reuse *gm_reuse_new(const struct gm_reuse_ops *ops, struct gm_reuse_hot *hot)
{
	static _Atomic(uint64_t) instances;
	struct gm_reuse *reuse = ops->time.memory(ops->time.arg, sizeof(*reuse));

	if (!reuse)
		return NULL;
	reuse->ops = *ops;
	gm_timeline_init(&reuse->time, &ops->time, (++instances << 40) + 1);
	reuse->hot = hot;
	reuse->order.rank = reuse->retire.rank = GM_RANK_CAPTURE;
	reuse->limbo.rank = GM_RANK_LEAF;
	hot->attention = 0;
	hot->many = 0;
	hot->others = 0;
	hot->stream = 0;
	return reuse;
}

/* ---- events ------------------------------------------------------------------------------------ */

struct gm_timeline *gm_reuse_time(struct gm_reuse *reuse)
{
	return &reuse->time;
}

/* Do captures allow an event on the one stream now? @begins: the one that is counted is only about to begin. */
static bool may_record_locked(const struct gm_reuse *reuse, bool begins)
{
	return !(reuse->hot->attention & GM_REUSE_CAPTURING) || (begins && reuse->captures == 1) ||
	       !gm_rule(GM_RULE_CAPTURE_EVENTS);
}

/* Begin the next point for later frees. *@ret_point: the point before. False: the lock could not be taken. */
static bool turn(struct gm_reuse *reuse, uint64_t *ret_point)
{
	if (!gm_lock(&reuse->limbo))
		return false;
	*ret_point = reuse->time.now++;
	gm_unlock(&reuse->limbo);
	return true;
}

void gm_reuse_seal_locked(struct gm_reuse *reuse, enum gm_mark_how how, bool anyway)
{
	uint64_t point;
	bool done;

	if (!gm_lock(&reuse->limbo))
		return;
	if (!anyway && !reuse->open) {
		gm_unlock(&reuse->limbo);
		return;
	}
	point = reuse->time.now++;
	gm_unlock(&reuse->limbo);
	done = gm_timeline_mark(&reuse->time, point, how);
	if (how == GM_MARK_LAZY || !gm_lock(&reuse->limbo))
		return;
	if (reuse->lane_freed <= point)
		reuse->open = !done;
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
}

/* Record the event of early frees on the one stream, to which nothing was submitted since. @begins: as above. @anyway:
 * even if that event covers all early frees. */
static void record_one_locked(struct gm_reuse *reuse, bool begins, bool anyway)
{
	uint64_t point;
	int r;

	if (!gm_lock(&reuse->limbo))
		return;
	if (!(reuse->one_open || anyway) || !may_record_locked(reuse, begins)) {
		gm_unlock(&reuse->limbo);
		return;
	}
	point = reuse->one_point;
	reuse->one_open = false;
	reuse->one_recording = true;
	reuse->time.now++;
	gm_unlock(&reuse->limbo);
	r = reuse->ops.record_stream(reuse->ops.arg, reuse->hot->stream, &reuse->one_ticket);
	if (!r)
		reuse->one_covers = point;
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->one_recording = false;
	reuse->one_open |= r != 0;
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
}

/* ---- single-stream mode ends ---------------------------------------------------------------------- */

/* End the mode: free nothing early from here on. The event of the earlier early frees was recorded before the first
 * submission after them. If there was no such submission yet, record it now. */
static void leave_locked(struct gm_reuse *reuse)
{
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->many = 1;
	gm_unlock(&reuse->limbo);
	if (!reuse->hot->stream)
		return;
	record_one_locked(reuse, false, !gm_rule(GM_RULE_TRANSITION_POINT));
	if (!reuse->one_ticket)
		return;
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->transition = reuse->one_ticket;
	reuse->transition_on = true;
	reuse->one_ticket = 0;
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
	if (!gm_rule(GM_RULE_TRANSITION) || !reuse->one_covers)
		gm_reuse_transition_over_locked(reuse);
}

void gm_reuse_transition_over_locked(struct gm_reuse *reuse)
{
	uint64_t ticket = reuse->transition;

	if (!ticket || !gm_lock(&reuse->limbo))
		return;
	reuse->transition = 0;
	reuse->transition_on = false;
	reuse->waited_count = 0;
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
	reuse->ops.drop(reuse->ops.arg, ticket);
}

static bool has_waited(const struct gm_reuse *reuse, uint64_t stream)
{
	for (uint32_t i = 0; i < reuse->waited_count; i++)
		if (reuse->waited[i] == stream)
			return true;
	return false;
}

/* Without room the stream waits again at its next work, which is harmless. */
static void remember_waited(struct gm_reuse *reuse, uint64_t stream)
{
	if (reuse->waited_count == reuse->waited_room) {
		uint32_t room = reuse->waited_room ? reuse->waited_room * 2 : 512;
		uint64_t *waited = gm_reuse_memory(reuse, room * sizeof(*waited));

		if (!waited)
			return;
		if (reuse->waited_count)
			memcpy(waited, reuse->waited, reuse->waited_count * sizeof(*waited));
		reuse->waited = waited;
		reuse->waited_room = room;
	}
	reuse->waited[reuse->waited_count++] = stream;
}

/* Make later work of @stream run after the early frees, unless it has waited for them, or their event is complete. */
static void wait_for_transition_locked(struct gm_reuse *reuse, uint64_t stream)
{
	if (stream == reuse->hot->stream || has_waited(reuse, stream))
		return;
	if (reuse->ops.query(reuse->ops.arg, reuse->transition) == 1) {
		gm_reuse_transition_over_locked(reuse);
		return;
	}
	if (reuse->waited_count && !gm_rule(GM_RULE_TRANSITION_EVERY))
		return;
	if (!reuse->ops.stream_wait(reuse->ops.arg, stream, reuse->transition))
		remember_waited(reuse, stream);
}

/* ---- single-stream mode comes back ---------------------------------------------------------------
 *
 * This is for programs whose other streams had work only once, for example while a library started.
 *
 * A check has two steps, some seals apart. The first step marks everything submitted so far in every context. From then
 * on, work of any stream but the one that is submitted to at that time is noted (@others). If the marks are complete at
 * the second step, and no work was noted, that one stream has all the work of the process. Each return of the mode
 * makes the steps eight times as long, because the end of the mode makes other streams wait: a program that uses them
 * now and then should feel that only a few times in its life.
 *
 * During a step, a thread on its way to the driver has passed the hooks' test, but its work is not noted. So each step
 * invalidates what the hooks compare (ops.forget_streams), and a thread that finds a change after the real call reports
 * its work (gm_reuse_submitted). That is early enough, because nobody knows of the work until the call returns. (Except
 * if a host function within the work tells somebody, while the call is blocked for the whole check.)
 */

#define SEALS 256u			/* between the steps of a check, until the mode has come back once */

#define FIRST_SEALS (gm_rules_single ? gm_rules_single : SEALS)

static void single_off_locked(struct gm_reuse *reuse)
{
	reuse->single_on = false;
	reuse->single_seals = 0;
}

static void begin_check_locked(struct gm_reuse *reuse, uint64_t stream)
{
	if (reuse->ops.first && stream != reuse->hot->stream)
		reuse->ops.first(reuse->ops.arg, stream);
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->stream = stream;
	reuse->hot->others = 0;
	gm_unlock(&reuse->limbo);
	reuse->ops.forget_streams(reuse->ops.arg);
	reuse->single_on = turn(reuse, &reuse->single_point) &&
			   gm_timeline_mark(&reuse->time, reuse->single_point, GM_MARK_EVERY);
}

/* A freeing thread must not see the mode before it is certain. It looks under limbo, or compares the point of its last
 * early free (is_early_again), which is not the present point any more. */
static void end_check_locked(struct gm_reuse *reuse)
{
	bool ended;

	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->many = 0;
	reuse->ops.forget_streams(reuse->ops.arg);
	ended = !(reuse->hot->others && gm_rule(GM_RULE_SINGLE_OTHERS));
	if (ended) {
		reuse->time.now++;
		reuse->one_open = false;
		reuse->one_covers = 0;
	} else {
		reuse->hot->many = 1;
	}
	gm_unlock(&reuse->limbo);
	if (ended)
		reuse->single_wait = reuse->single_wait < UINT32_MAX / 8 ? reuse->single_wait * 8 : UINT32_MAX;
}

/* Before a submission to @stream: take the next step of the check, if it is due. */
static void single_locked(struct gm_reuse *reuse, uint64_t stream)
{
	if (!reuse->single_wait)
		reuse->single_wait = FIRST_SEALS;
	if (!reuse->ops.forget_streams || reuse->no_early || reuse->transition ||
	    reuse->hot->attention & GM_REUSE_CAPTURING || ++reuse->single_seals < reuse->single_wait)
		return;
	reuse->single_seals = 0;
	if (!reuse->single_on) {
		begin_check_locked(reuse, stream);
	} else if (reuse->hot->others && gm_rule(GM_RULE_SINGLE_OTHERS)) {
		single_off_locked(reuse);
	} else if (!gm_rule(GM_RULE_SINGLE_COMPLETE) || gm_timeline_ask(&reuse->time, reuse->single_point)) {
		end_check_locked(reuse);
		single_off_locked(reuse);
	}
}

/* ---- submissions ---- */

/* The first work of the process: frees before it had no work to wait for. */
static void first_work_locked(struct gm_reuse *reuse, uint64_t stream)
{
	gm_reuse_seal_locked(reuse, GM_MARK_SUBMISSION, false);
	if (reuse->ops.first)
		reuse->ops.first(reuse->ops.arg, stream);
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->hot->stream = stream;
	reuse->time.now++;	/* no event marks the point of earlier frees: later frees must not share it */
	gm_unlock(&reuse->limbo);
}

/* The order lock could not be taken, because its holder is blocked in the driver, or has ended. Then marks that are
 * still missing are late, because they also cover this work, and nothing is freed early any more. */
static void submit_unordered(struct gm_reuse *reuse)
{
	if (!gm_lock(&reuse->limbo))
		return;
	reuse->no_early = true;
	gm_timeline_late(&reuse->time, reuse->lane_freed);
	gm_unlock(&reuse->limbo);
}

void gm_reuse_submit(struct gm_reuse *reuse, uint64_t stream)
{
	if (!gm_lock(&reuse->order)) {
		submit_unordered(reuse);
		return;
	}
	gm_reuse_note_other(reuse->hot, stream);
	if (!reuse->hot->many && !reuse->hot->stream)
		first_work_locked(reuse, stream);
	else if (!reuse->hot->many && reuse->hot->stream != stream)
		leave_locked(reuse);
	if (gm_rule(GM_RULE_SEAL)) {
		if (!reuse->hot->many)
			record_one_locked(reuse, false, false);
		gm_reuse_seal_locked(reuse, GM_MARK_SUBMISSION, false);
	}
	if (reuse->transition)
		wait_for_transition_locked(reuse, stream);
	else if (reuse->hot->many)
		single_locked(reuse, stream);
	gm_unlock(&reuse->order);
}

void gm_reuse_submitted(struct gm_reuse *reuse, uint64_t stream)
{
	if (!gm_rule(GM_RULE_SINGLE_LATE))
		return;
	gm_reuse_note_other(reuse->hot, stream);
	if (!reuse->hot->many && reuse->hot->stream != stream)
		gm_reuse_submit(reuse, stream);
}

void gm_reuse_behind(struct gm_reuse *reuse, uint64_t stream)
{
	uint64_t ticket;

	if (!gm_lock(&reuse->order))
		return;
	if (!reuse->hot->many && reuse->hot->stream)
		record_one_locked(reuse, false, false);
	ticket = reuse->transition ? reuse->transition : reuse->one_ticket;
	if (ticket && reuse->one_covers && reuse->ops.query(reuse->ops.arg, ticket) != 1)
		reuse->ops.stream_wait(reuse->ops.arg, stream, ticket);
	gm_unlock(&reuse->order);
}

void gm_reuse_end_single(struct gm_reuse *reuse)
{
	/* The caller may be anywhere, even inside the loader: take no lock that is held over driver calls, and call no
	 * driver function. Streams whose work is seen are still kept apart as before. */
	if (!gm_rule(GM_RULE_OTHER_WRITERS) || !gm_lock(&reuse->limbo))
		return;
	reuse->no_early = true;
	gm_unlock(&reuse->limbo);
}

/* ---- ends of streams --------------------------------------------------------------------------- */

void gm_reuse_stream_ends(struct gm_reuse *reuse, uint64_t stream)
{
	if (reuse->hot->stream != stream || !gm_lock(&reuse->order))
		return;
	if (!reuse->hot->many && reuse->hot->stream == stream)
		leave_locked(reuse);
	else if (reuse->hot->stream == stream)
		single_off_locked(reuse);
	gm_unlock(&reuse->order);
}

void gm_reuse_pass(struct gm_reuse *reuse)
{
	if (gm_lock(&reuse->order))
		gm_unlock(&reuse->order);
	if (gm_lock(&reuse->retire))
		gm_unlock(&reuse->retire);
}

void gm_reuse_streams_ended(struct gm_reuse *reuse, bool one)
{
	if (!gm_lock(&reuse->order))
		return;
	single_off_locked(reuse);
	reuse->waited_count = 0;
	if (one && gm_lock(&reuse->limbo)) {
		/* The stream's work is complete, and so is everything that waited for it. */
		reuse->hot->many = 1;
		reuse->one_open = false;
		gm_reuse_attention_locked(reuse);
		gm_unlock(&reuse->limbo);
		if (reuse->one_ticket)
			reuse->ops.drop(reuse->ops.arg, reuse->one_ticket);
		reuse->one_ticket = 0;
		gm_reuse_transition_over_locked(reuse);
	}
	gm_unlock(&reuse->order);
}

int gm_reuse_in_order(struct gm_reuse *reuse, int (*fn)(void *arg), void *arg)
{
	int r = -EAGAIN;

	if (!gm_lock(&reuse->order))
		return -EBUSY;
	if (may_record_locked(reuse, false))
		r = fn(arg);
	gm_unlock(&reuse->order);
	return r;
}

/* ---- streams ----------------------------------------------------------------------------------- */

/* Does nothing while any stream captures, because a default stream must not be queried or get an event then. */
static void ask_stream(struct gm_reuse *reuse, const struct gm_stream_track *stream, uint64_t point, bool mark)
{
	if (!gm_lock(&reuse->order))
		return;
	if (may_record_locked(reuse, false) && mark)
		gm_timeline_stream_mark(&reuse->time, stream, point);
	else if (may_record_locked(reuse, false))
		gm_timeline_stream_ask(&reuse->time, stream, point);
	gm_unlock(&reuse->order);
}

static void look_at_stream(struct gm_reuse *reuse, const struct gm_stream_track *stream, uint64_t point)
{
	if (gm_timeline_stream_asks(stream)) {
		ask_stream(reuse, stream, point, false);
	} else if (gm_lock(&reuse->retire)) {
		gm_timeline_stream_look(&reuse->time, stream->key, point);
		gm_unlock(&reuse->retire);
	}
}

void gm_reuse_look_streams(struct gm_reuse *reuse, bool ended_only)
{
	uint64_t point = gm_reuse_before(reuse);
	struct gm_stream_track copy;

	if (reuse->time.streams_ended)	/* a stream that ended without an event needs its context's mark */
		gm_reuse_look(reuse);
	for (uint32_t at = 0; gm_timeline_stream_next(&reuse->time, &at, &copy);)
		if (!ended_only || copy.ended)
			look_at_stream(reuse, &copy, point);
}

bool gm_reuse_stream_is_past(struct gm_reuse *reuse, uint64_t stream)
{
	uint64_t point = gm_reuse_before(reuse);
	struct gm_stream_track copy;
	bool ended;

	if (!gm_timeline_stream_copy(&reuse->time, stream, &copy))
		return false;
	if (gm_timeline_stream_asks(&copy)) {
		look_at_stream(reuse, &copy, point);
		return point && gm_timeline_stream_passed(&reuse->time, stream) >= point;
	}
	look_at_stream(reuse, &copy, point);
	return gm_timeline_stream_frees(&reuse->time, stream, &ended) == GM_FREES_PASSED;
}

void gm_reuse_mark_streams(struct gm_reuse *reuse)
{
	uint64_t point = gm_reuse_before(reuse);
	struct gm_stream_track copy;

	reuse->time.reported = true;
	for (uint32_t at = 0; gm_timeline_stream_next(&reuse->time, &at, &copy);)
		ask_stream(reuse, &copy, point, true);
}

bool gm_reuse_stream_wait(struct gm_reuse *reuse, uint64_t stream, bool may_record,
			  int (*wait)(void *arg, uint64_t event), void *arg)
{
	bool done;

	if (!gm_lock(&reuse->retire))
		return false;
	done = gm_timeline_stream_wait(&reuse->time, stream, may_record, wait, arg);
	gm_unlock(&reuse->retire);
	return done;
}

/* ---- captures ---------------------------------------------------------------------------------- */

static void count_capture(struct gm_reuse *reuse, bool begins)
{
	if (!gm_lock(&reuse->limbo))
		return;
	if (begins)
		reuse->captures++;
	else if (reuse->captures)
		reuse->captures--;
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
}

/* First count the capture, so that nothing is freed early from here on. Then mark the earlier frees, while the driver
 * still allows an event in that context. */
void gm_reuse_capture_begins(struct gm_reuse *reuse, uint32_t context)
{
	bool ordered = gm_lock(&reuse->order);

	count_capture(reuse, true);
	if (ordered) {
		if (!reuse->hot->many)
			record_one_locked(reuse, true, false);
		gm_reuse_seal_locked(reuse, GM_MARK_NOW, gm_timeline_unmarked(&reuse->time));
	}
	gm_timeline_captures(&reuse->time, context, true);
	if (ordered)
		gm_unlock(&reuse->order);
}

void gm_reuse_capture_ended(struct gm_reuse *reuse, uint32_t context)
{
	bool ordered = gm_lock(&reuse->order);

	count_capture(reuse, false);
	gm_timeline_captures(&reuse->time, context, false);
	if (!ordered)
		return;
	gm_reuse_seal_locked(reuse, GM_MARK_NOW, false);
	gm_unlock(&reuse->order);
}

bool gm_reuse_behind_all(struct gm_reuse *reuse, bool (*fn)(void *arg, uint64_t event), void *arg)
{
	uint64_t point;
	bool done;

	if (!gm_lock(&reuse->order))
		return false;
	done = turn(reuse, &point) && gm_timeline_mark(&reuse->time, point, GM_MARK_EVERY) &&
	       gm_timeline_last_marks(&reuse->time, fn, arg);
	gm_unlock(&reuse->order);
	return done;
}

uint64_t gm_reuse_turn(struct gm_reuse *reuse)
{
	uint64_t point = 0;

	turn(reuse, &point);
	return point;
}

uint64_t gm_reuse_before(struct gm_reuse *reuse)
{
	uint64_t point = 0;

	if (!gm_lock(&reuse->limbo))
		return 0;
	if (reuse->time.freed < reuse->time.now)
		point = reuse->time.now - 1;
	else
		point = reuse->time.now++;
	gm_unlock(&reuse->limbo);
	return point;
}
