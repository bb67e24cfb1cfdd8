/*
 * clock.c - virtual time: when operations start and end, and that their effects happen only then.
 *
 * An operation starts when all it depends on has ended (or, for overlapping launches, started) and
 * its work may start; it ends its duration later, or when the last thing that its end waits for has
 * ended, or when its work says it may. Time moves only in fc_clock_advance and fc_clock_next, to
 * the next end, in order of (end, submission): the same program always takes the same course.
 *
 *   running   started, sorted by (end_ns, seq)
 *   late      past their end_ns, held back by unmet_end or may_end
 *   blocked   nothing to wait for, held back by may_start
 *
 * Lock: fc.lock, never given up in fc_clock_poll and fc_op_commit; given up in fc_clock_step and
 * fc_clock_advance while a host function executes.
 */
#include "test/fakecuda/stream/clock.h"

#include <stdlib.h>

static struct fc_op *running, *late, *blocked;
static bool polling;		/* in poll: what completes there may commit more */

static void link_before(struct fc_op **at, struct fc_op *op)
{
	op->run_next = *at;
	op->run_prevp = at;
	if (*at)
		(*at)->run_prevp = &op->run_next;
	*at = op;
}

static void unlink_run(struct fc_op *op)
{
	if (!op->run_prevp)
		return;
	*op->run_prevp = op->run_next;
	if (op->run_next)
		op->run_next->run_prevp = op->run_prevp;
	op->run_next = NULL;
	op->run_prevp = NULL;
}

static void link_sorted(struct fc_op **list, struct fc_op *op)
{
	while (*list && ((*list)->end_ns < op->end_ns ||
			 ((*list)->end_ns == op->end_ns && (*list)->seq < op->seq)))
		list = &(*list)->run_next;
	link_before(list, op);
}

static void make_ready(struct fc_op *op);

/* One dependency of those in @op's outs is met; @started: those on its start, else on its end. */
static void meet_outs(struct fc_op *op, bool started)
{
	for (size_t i = 0; i < op->n_outs; i++) {
		struct fc_op *out = op->outs[i].on;

		if ((op->outs[i].kind == FC_AFTER_START) != started)
			continue;
		if (op->outs[i].kind == FC_END_AFTER_END)
			out->unmet_end--;
		else if (!--out->unmet_start && out->state == FC_OP_WAITING)
			make_ready(out);
	}
}

static void start(struct fc_op *op)
{
	unlink_run(op);
	op->state = FC_OP_RUNNING;
	op->start_ns = fc.now_ns;
	op->end_ns = fc.now_ns + op->work->duration_ns;
	link_sorted(&running, op);
	meet_outs(op, true);
}

static void make_ready(struct fc_op *op)
{
	if (op->work->may_start && !op->work->may_start(op->work, op)) {
		op->state = FC_OP_BLOCKED;
		link_sorted(&blocked, op);
	} else {
		start(op);
	}
}

static void unlink_pending(struct fc_op *op)
{
	*op->prevp = op->next;
	if (op->next)
		op->next->prevp = op->prevp;
	else
		fc.pending_tail = op->prevp;
	op->prevp = NULL;
	fc.n_pending--;
}

void fc_op_complete(struct fc_op *op)
{
	if (op->error && !op->ctx->sticky) {
		op->ctx->sticky = op->error;
		op->ctx->dev->faulted = true;
		fc_log("%s: context poisoned with error %d", op->work->name, (int)op->error);
	}
	op->end_ns = fc.now_ns;
	op->state = FC_OP_DONE;
	unlink_pending(op);
	meet_outs(op, false);
	op->n_outs = 0;
	if (op->done)
		op->done(op);
	fc_op_drop_deps(op);
	fc_stream_op_done(op);
	pthread_cond_broadcast(&fc.changed);
	fc_op_put(op);
}

/* Time has passed @op's end. In a poisoned context nothing has an effect any more. */
static void finish(struct fc_op *op)
{
	struct fc_work *w = op->work;

	unlink_run(op);
	if (w->host && !fc_host_start(op)) {
		op->state = FC_OP_EXECUTING;
		fc.executing++;
		return;
	}
	if (w->effect && !op->effect_done && !op->ctx->sticky)
		op->error = w->effect(w, op);
	fc_op_complete(op);
}

static bool work_may_end(struct fc_op *op)
{
	return !op->work->may_end || op->work->may_end(op->work, op);
}

static bool may_end(struct fc_op *op)
{
	return !op->unmet_end && work_may_end(op);
}

/* A launch that overlaps what it must end after has done its stores by then. True: just now. */
static bool early_effect(struct fc_op *op)
{
	struct fc_work *w = op->work;

	if (!op->unmet_end || op->effect_done || !w->effect || op->ctx->sticky ||
	    !work_may_end(op))
		return false;
	op->effect_done = true;
	op->error = w->effect(w, op);
	return true;
}

/* What is due at this instant: one operation ended, or one blocked one started. */
static bool poll_once(void)
{
	struct fc_op *op;

	for (op = running; op && op->end_ns <= fc.now_ns; op = running) {
		if (may_end(op)) {
			finish(op);
			return true;
		}
		unlink_run(op);
		link_sorted(&late, op);
	}
	for (op = late; op; op = op->run_next) {
		if (may_end(op)) {
			finish(op);
			return true;
		}
		if (early_effect(op))
			return true;
	}
	for (op = blocked; op; op = op->run_next)
		if (op->work->may_start(op->work, op)) {
			start(op);
			return true;
		}
	return false;
}

void fc_clock_poll(void)
{
	if (polling)
		return;
	polling = true;
	while (poll_once())
		;
	polling = false;
}

void fc_op_commit(struct fc_op *op)
{
	op->seq = ++fc.next_seq;
	op->submit_ns = fc.now_ns;
	op->state = FC_OP_WAITING;
	fc_op_get(op);
	op->next = NULL;
	op->prevp = fc.pending_tail;
	*fc.pending_tail = op;
	fc.pending_tail = &op->next;
	fc.n_pending++;
	fc_race_submit(op);
	if (!op->unmet_start)
		make_ready(op);
	fc_clock_poll();
}

bool fc_clock_next(void)
{
	fc_clock_poll();
	if (!running)
		return false;
	fc.now_ns = running->end_ns;
	fc_clock_poll();
	return true;
}

void fc_clock_advance(uint64_t ns)
{
	uint64_t target = fc.now_ns + ns;

	fc_clock_poll();
	while (running && running->end_ns <= target) {
		if (fc.now_ns < running->end_ns)
			fc.now_ns = running->end_ns;
		fc_clock_poll();
		fc_host_settle();
	}
	if (fc.now_ns < target)
		fc.now_ns = target;
	fc_clock_poll();
	fc_host_settle();
}

void fc_clock_step(void)
{
	fc_clock_advance(fc.step_ns);
}

/* Everything pending ends here, without effect and without starting anything. */
void fc_clock_reset(void)
{
	fc_host_reset();
	while (fc.pending) {
		struct fc_op *op = fc.pending;

		unlink_run(op);
		unlink_pending(op);
		op->state = FC_OP_DONE;
		op->n_outs = 0;
		fc_op_drop_deps(op);
		fc_op_put(op);
	}
}

/* ---- control ---- */

FC_EXPORT uint64_t fakecuda_now(void)
{
	uint64_t now;

	fc_enter_control();
	now = fc.now_ns;
	fc_leave_control();
	return now;
}

FC_EXPORT void fakecuda_advance(uint64_t ns)
{
	fc_enter_control();
	fc_clock_advance(ns);
	fc_leave_control();
}

FC_EXPORT void fakecuda_set_step_ns(uint64_t ns)
{
	fc_enter_control();
	fc.step_ns = ns;
	fc_leave_control();
}

FC_EXPORT size_t fakecuda_pending(int device)
{
	size_t n = 0;

	fc_enter_control();
	for (struct fc_op *op = fc.pending; op; op = op->next)
		n += device < 0 || op->ctx->dev->ordinal == device;
	fc_leave_control();
	return n;
}
