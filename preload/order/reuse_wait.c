/*
 * reuse_wait.c - the host waits for marks, but only where the driver's own cudaFree would have made this thread wait.
 *
 * No lock is held over a wait. The mark is kept until its last waiter is done.
 *
 * Thread context: any. Signal context: none. See reuse.h.
 */
#include <errno.h>
#include <stddef.h>

#include "preload/order/reuse_internal.h"

/* This thread's last frees at which the driver would have waited, for a few contexts. */
#define OWN 8u
static __thread struct { uint64_t point; uint32_t context; } own[OWN];

void gm_reuse_note_own(uint32_t context, uint64_t point)
{
	unsigned int at = 0;

	for (unsigned int i = 0; i < OWN; i++) {
		if (own[i].context == context && own[i].point) {
			own[i].point = point;
			return;
		}
		if (own[i].point < own[at].point)
			at = i;
	}
	own[at].context = context;
	own[at].point = point;
}

/* Return the point up to which this thread may wait for @context; 0: it must not wait. */
static uint64_t may_wait_until(const struct gm_reuse *reuse, uint32_t context)
{
	for (unsigned int i = 0; i < OWN; i++)
		if (own[i].context == context && own[i].point)
			return gm_rule(GM_RULE_WAIT_OWN) ? own[i].point : reuse->freed_point;
	return gm_rule(GM_RULE_WAIT_OWN) ? 0 : reuse->freed_point;
}

/* A lane, and what it was for when it was looked up. That may change while the lane is empty, so it is compared under
 * the lock. */
struct lane { const struct gm_reuse_lane *lane; uint64_t stream; uint32_t context; };

static bool next_lane_of(struct gm_reuse *reuse, struct lane *at)
{
	bool found = false;

	if (!gm_lock(&reuse->limbo))
		return false;
	at->lane = at->lane ? at->lane->next : reuse->lanes;
	if (at->lane) {
		at->context = at->lane->context;
		at->stream = at->lane->stream;
		found = true;
	}
	gm_unlock(&reuse->limbo);
	return found;
}

/* Return the point of the first block in the lane that was freed from point @from to @until; 0: none. */
static uint64_t freed_from(struct gm_reuse *reuse, const struct lane *at, uint64_t from, uint64_t until)
{
	const struct gm_reuse_chunk *chunk;
	uint64_t point = 0;

	if (!gm_lock(&reuse->limbo))
		return 0;
	chunk = at->lane->context == at->context && at->lane->stream == at->stream ? at->lane->oldest : NULL;
	for (; chunk && !point; chunk = chunk->next)
		if (chunk->count && chunk->point >= from && chunk->point <= until)
			point = chunk->point;
	gm_unlock(&reuse->limbo);
	return point;
}

/* Return a mark in use for which this thread may wait. *@ret_point: the point of a block that waits for this mark only.
 * NULL: this lane has none. Late marks are skipped, because they cover more than the driver would have waited for. */
static struct gm_mark *choose_in(struct gm_reuse *reuse, const struct lane *at, uint64_t until, uint64_t *ret_point)
{
	uint64_t others = at->stream ? UINT64_MAX : gm_timeline_passed_by_others(&reuse->time, at->context), from = 1;
	struct gm_mark *mark;

	while ((*ret_point = freed_from(reuse, at, from, until < others ? until : others)) != 0) {
		mark = gm_timeline_use(&reuse->time, at->context, *ret_point);
		if (!mark || mark->late < *ret_point || !gm_rule(GM_RULE_WAIT_SEALED))
			return mark;
		from = mark->late + 1;
		gm_timeline_unuse(&reuse->time, mark);
	}
	return NULL;
}

/* Return the oldest such mark of all lanes. */
static struct gm_mark *choose(struct gm_reuse *reuse, uint32_t *ret_context, uint64_t *ret_point)
{
	struct gm_mark *best = NULL, *mark, *other;
	struct lane at = { .lane = NULL };
	uint64_t until, point = 0;

	while (next_lane_of(reuse, &at)) {
		until = at.stream && gm_rule(GM_RULE_WAIT_HOST_FREES) ? 0 : may_wait_until(reuse, at.context);
		mark = until ? choose_in(reuse, &at, until, &point) : NULL;
		other = mark;
		if (mark && (!best || mark->point < best->point)) {
			other = best;
			best = mark;
			*ret_context = at.context;
			*ret_point = point;
		}
		if (other)
			gm_timeline_unuse(&reuse->time, other);
	}
	return best;
}

int gm_reuse_wait(struct gm_reuse *reuse)
{
	uint64_t point = 0, vain = reuse->vain;
	struct gm_mark *mark;
	uint32_t context = 0;
	size_t done;
	int r;

	if (!reuse->items)
		return -ENOENT;
	if (gm_reuse_poll_all(reuse))
		return 0;
	mark = choose(reuse, &context, &point);
	if (!mark)
		return -ENOENT;
	r = gm_timeline_wait(&reuse->time, mark);
	done = gm_reuse_poll_all(reuse);
	gm_timeline_unuse(&reuse->time, mark);
	if (!done && reuse->vain != vain)
		return -ETIMEDOUT;
	if (!r && gm_timeline_passed(&reuse->time, context) < point)
		return -EIO;		/* the wait succeeded, but the context has not passed the point */
	return r == -EBUSY ? -ENOENT : r;
}

/* Return the point of the oldest block in limbo; UINT64_MAX: limbo is empty. */
static uint64_t oldest_point(struct gm_reuse *reuse)
{
	uint64_t point = UINT64_MAX;

	if (!gm_lock(&reuse->limbo))
		return point;
	for (const struct gm_reuse_lane *lane = reuse->lanes; lane; lane = lane->next)
		if (lane->oldest && lane->oldest->point < point)
			point = lane->oldest->point;
	gm_unlock(&reuse->limbo);
	return point;
}

size_t gm_reuse_wait_all(struct gm_reuse *reuse)
{
	uint64_t before = reuse->completed, until = reuse->time.now;

	/* Do not wait for what other threads free meanwhile. */
	while (!gm_reuse_wait(reuse) && oldest_point(reuse) <= until)
		continue;
	return (size_t)(reuse->completed - before);
}

/* ---- before "out of memory" is reported -------------------------------------------------------- */

uint64_t gm_reuse_now(struct gm_reuse *reuse)
{
	return reuse->time.now;
}

uint64_t gm_reuse_completed(struct gm_reuse *reuse)
{
	return reuse->completed;
}

/* Does the first block of @lane wait, if it was freed up to @point? Returns as gm_reuse_waits. The caller holds
 * limbo. */
static int waits_in_locked(struct gm_reuse *reuse, const struct gm_reuse_lane *lane, uint64_t point)
{
	if (!lane->oldest || lane->oldest->point > point)
		return 0;
	if (gm_timeline_marked(&reuse->time, lane->context) >= lane->oldest->point)
		return 1;
	return gm_timeline_is_capturing(&reuse->time, lane->context) ? -EAGAIN : 1;
}

int gm_reuse_waits(struct gm_reuse *reuse, uint64_t point, uint32_t context)
{
	int r = 0, one;

	if (!reuse->items || !gm_lock(&reuse->limbo))
		return 0;
	for (const struct gm_reuse_lane *lane = reuse->lanes; lane && r <= 0; lane = lane->next) {
		if (context ? lane->context && lane->context != context : !lane->stream)
			continue;
		one = waits_in_locked(reuse, lane, point);
		r = one ? one : r;
	}
	gm_unlock(&reuse->limbo);
	return r;
}

uint64_t gm_reuse_progress(struct gm_reuse *reuse)
{
	return reuse->completed + reuse->time.moves + reuse->time.streams_moves;
}
