/*
 * cache_moments.c - which frees the GPU is past, for the pages that may move: see cache_pages.h.
 *
 * A moment is a number, one for each time that the GPU is asked. What is freed gets the present one; then the number
 * goes up and an event is recorded behind all work. When that event is complete, the GPU is past every free with that
 * number or a lower one. While a stream captures, no such event can be recorded, so one is recorded before a capture
 * begins. A free that the host has seen complete, because it waited or because the block was in limbo, has moment 0:
 * it needs no event.
 *
 * What was freed in the order of a stream, from a default pool, needs no event of all work where that stream is
 * known to have got to it (cache_stream_frees.c): a program may wait for just that memory with other work.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: moments (allocator/lock.h), which is tried where
 * nobody may wait; what one number says is atomic.
 */
#include <errno.h>
#include <stdatomic.h>

#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"

static _Atomic(uint64_t) moment = 1, passed;
static _Atomic(bool) freed;		/* something since the last event */
/* Events that are not known to be complete, the oldest first. Where a capture begins there may be a second. */
#define ASKED_MOST 2u
static struct gm_lock asking = { .rank = GM_RANK_MOMENTS };
static struct { uint64_t ticket, moment; } asked[ASKED_MOST];
static uint32_t asked_count;

uint64_t gm_cache_pages_moment(void *arg)
{
	uint64_t now = moment;		/* before @freed: whoever finds that asks for this moment, too */

	if (((const struct gm_cache_heap *)arg)->seen)
		return 0;
	freed = true;
	return now;
}

uint64_t gm_cache_pages_passed(void *arg, uint64_t stream)
{
	const struct gm_cache_heap *heap = arg;
	uint64_t own = 0;

	if (!gm_rule(GM_RULE_PAGES))
		return moment;
	if (heap->kind == GM_KIND_POOL && stream != UINT64_MAX)
		own = gm_cache_stream_passed(stream);
	return own > passed ? own : passed;
}

bool gm_cache_pages_wanted(void *arg)
{
	const struct gm_cache_heap *heap = arg;

	return gm_rule(GM_RULE_AWAIT) && gm_cache_request.waits && heap->heap->idle && (freed || passed + 1 < moment);
}

uint64_t gm_cache_pages_now(void)
{
	return moment;
}

/* Nothing was freed with the present moment, as far as is known: whoever just frees is not counted. */
uint64_t gm_cache_pages_turn(void)
{
	return freed ? atomic_fetch_add(&moment, 1) : moment - 1;
}

int gm_cache_pages_waits(uint64_t until)
{
	int r = 0;

	if (!gm_lock_try(&asking))
		return passed < until;	/* somebody is at it */
	if (passed < until && asked_count)
		r = 1;
	else if (passed < until && freed)
		r = gm_capturing() ? -EAGAIN : 1;
	gm_unlock(&asking);
	return r;
}

uint64_t gm_cache_pages_progress(void)
{
	return passed;
}

/* What is complete is passed. */
static void look_locked(void)
{
	while (asked_count && gm_ticket_query(NULL, asked[0].ticket) == 1) {
		gm_ticket_drop(NULL, asked[0].ticket);
		passed = asked[0].moment;
		asked[0] = asked[1];
		asked_count--;
	}
}

/* An event for what was freed since the last one; where there is no room, in place of that. */
static void ask_locked(void)
{
	uint32_t at = asked_count < ASKED_MOST ? asked_count : ASKED_MOST - 1;
	uint64_t ticket = 0, last;

	if (!atomic_exchange(&freed, false))
		return;
	last = atomic_fetch_add(&moment, 1);
	if (!gm_order_ticket(&ticket)) {
		freed = true;
		return;
	}
	if (at < asked_count)
		gm_ticket_drop(NULL, asked[at].ticket);
	asked[at].ticket = ticket;
	asked[at].moment = last;
	asked_count = at + 1;
}

void gm_cache_pages_look(void)
{
	if (!gm_lock_try(&asking))
		return;
	look_locked();
	if (!asked_count) {
		ask_locked();
		look_locked();		/* perhaps nothing is pending */
	}
	gm_unlock(&asking);
}

void gm_cache_pages_capture_begins(void)
{
	if (!freed || !gm_lock(&asking))
		return;
	look_locked();
	ask_locked();
	gm_unlock(&asking);
}
