/*
 * wait.c - how a host thread waits: it makes the clock move until what it waits for has ended.
 *
 * Where the clock cannot move, somebody else must act: a host function that executes, or another
 * host thread that writes the word a kernel waits for. Then the lock is given up for a real
 * millisecond at a time, and waiting.c is asked whether this can ever end. Lock: fc.lock.
 */
#include "test/fakecuda/stream/clock.h"
#include "test/fakecuda/memory/pool.h"

#include <time.h>

static bool satisfied(const struct fc_wait *w)
{
	if (w->op)
		return w->op->state == FC_OP_DONE;
	for (struct fc_op *op = fc.pending; op && op->seq <= w->seq; op = op->next)
		if (op->ctx == w->ctx)
			return false;
	return true;
}

static void link_wait(struct fc_wait *w)
{
	w->thread = pthread_self();
	w->next = fc.waits;
	w->prevp = &fc.waits;
	if (fc.waits)
		fc.waits->prevp = &w->next;
	fc.waits = w;
}

static void unlink_wait(struct fc_wait *w)
{
	*w->prevp = w->next;
	if (w->next)
		w->next->prevp = w->prevp;
}

static void sleep_ms(long ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&fc.changed, &fc.lock, &t);
}

static CUresult wait_for(struct fc_wait *w)
{
	CUresult r = CUDA_SUCCESS;

	link_wait(w);
	for (;;) {
		fc_clock_poll();
		fc_host_settle();
		if (satisfied(w))
			break;
		if (fc_clock_next()) {
			w->stuck_polls = 0;
			continue;
		}
		if (satisfied(w))
			break;
		r = fc_waiting_stuck(w);
		if (r)
			break;
		w->stuck_polls++;
		sleep_ms(1);
	}
	unlink_wait(w);
	if (!r)
		fc_pool_synced();
	return r;
}

CUresult fc_wait_op(struct fc_op *op, const char *why)
{
	struct fc_wait w = { .why = why, .op = op };
	CUresult r;

	if (!op)
		return CUDA_SUCCESS;
	fc_op_get(op);
	r = wait_for(&w);
	if (!r)
		fc_race_host_saw(op);
	fc_op_put(op);
	return r;
}

CUresult fc_wait_ctx(struct fc_ctx *ctx, const char *why)
{
	struct fc_wait w = { .why = why, .ctx = ctx, .seq = fc.next_seq };
	CUresult r;

	fc_ctx_ref(ctx);
	r = wait_for(&w);
	if (!r)
		fc_race_host_saw_ctx(ctx, w.seq);
	fc_ctx_put(ctx);
	return r;
}

CUresult fc_wait_stream(struct fc_stream *s, const char *why)
{
	return fc_wait_op(s->tail, why);
}
