/*
 * reuse_check.c - is limbo in order? Counts violations, never stops.
 *
 * Thread context: any; takes retire and limbo. See preload/order/reuse.h.
 */
#include <stddef.h>

#include "preload/order/reuse_internal.h"
#include "test/rules/check.h"

struct sum { uint64_t items, bytes; };

static int check_lane(const struct gm_reuse *reuse, const struct gm_reuse_lane *lane, struct sum *sum)
{
	const struct gm_reuse_chunk *last = NULL;
	int bad = lane->taken;

	for (const struct gm_reuse_chunk *chunk = lane->oldest; chunk; chunk = chunk->next) {
		bad += chunk->count > GM_REUSE_CHUNK;
		bad += chunk->point > reuse->time.now || chunk->point > reuse->time.freed;
		bad += last && last->point > chunk->point;
		for (uint64_t i = 0; i < chunk->count && i < GM_REUSE_CHUNK; i++) {
			sum->items++;
			sum->bytes += chunk->items[i].bytes;
		}
		last = chunk;
	}
	bad += last != lane->newest;
	for (const struct gm_reuse_lane *other = lane->next; other && lane->oldest; other = other->next)
		bad += other->oldest && other->context == lane->context && other->stream == lane->stream;
	return bad;
}

/* A context has passed no point that it has not been marked at, or that the host has not waited for. */
static int check_tracks(struct gm_reuse *reuse)
{
	int bad = 0;

	for (uint32_t i = 0; i < reuse->time.used; i++) {
		const struct gm_track *track = &reuse->time.tracks[i];
		const struct gm_mark *last = NULL;

		for (const struct gm_mark *mark = track->oldest; mark; mark = mark->next) {
			bad += last && last->point > mark->point;
			bad += mark->track != track || mark->passed || mark->point >= reuse->time.now;
			last = mark;
		}
		bad += last != track->newest;
		bad += track->passed >= reuse->time.now || track->marked >= reuse->time.now;
	}
	return bad;
}

static int check_locked(struct gm_reuse *reuse)
{
	struct sum sum = { 0, 0 };
	uint32_t bits = reuse->hot->attention;
	int bad = 0;

	for (const struct gm_reuse_lane *lane = reuse->lanes; lane; lane = lane->next)
		bad += check_lane(reuse, lane, &sum);
	bad += sum.items != reuse->items || sum.bytes != reuse->bytes;
	/* A free without its event is never overlooked by the hooks. */
	bad += (reuse->open || reuse->one_open || reuse->one_recording) != !!(bits & GM_REUSE_OPEN);
	bad += !!reuse->captures != !!(bits & GM_REUSE_CAPTURING);
	bad += reuse->transition_on != !!(bits & GM_REUSE_TRANSITION);
	bad += reuse->transition_on && !reuse->hot->many;
	return bad;
}

int gm_reuse_check(struct gm_reuse *reuse)
{
	int bad;

	if (!gm_lock(&reuse->retire))
		return 1;
	if (!gm_lock(&reuse->limbo)) {
		gm_unlock(&reuse->retire);
		return 1;
	}
	bad = check_locked(reuse);
	gm_unlock(&reuse->limbo);
	if (gm_lock(&reuse->time.lock)) {
		bad += check_tracks(reuse);
		gm_unlock(&reuse->time.lock);
	}
	gm_unlock(&reuse->retire);
	return bad;
}
