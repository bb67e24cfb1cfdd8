/*
 * reuse_check.c - is limbo in order? Counts violations, never stops.
 *
 * Thread context: any; takes retire and limbo. See allocator/reuse.h.
 */
#include <stddef.h>

#include "allocator/reuse_internal.h"
#include "test/rules/check.h"

struct sum { uint64_t items, bytes; };

static int check_epoch(const struct gm_reuse *reuse, const struct gm_reuse_epoch *epoch,
		       struct sum *sum)
{
	int bad = 0;

	for (const struct gm_reuse_chunk *chunk = epoch ? epoch->chunks : NULL; chunk;
	     chunk = chunk->next) {
		bad += chunk->count > GM_REUSE_CHUNK;
		for (uint64_t i = 0; i < chunk->count && i < GM_REUSE_CHUNK; i++) {
			sum->items++;
			sum->bytes += chunk->items[i].bytes;
		}
	}
	bad += epoch && (epoch->stamp > reuse->stamp || epoch->gone);
	return bad;
}

static int check_locked(const struct gm_reuse *reuse)
{
	const struct gm_reuse_epoch *last = NULL;
	struct sum sum = { 0, 0 };
	uint32_t bits = reuse->hot->attention;
	int bad = 0;

	for (const struct gm_reuse_epoch *epoch = reuse->oldest; epoch; epoch = epoch->next) {
		bad += check_epoch(reuse, epoch, &sum);
		bad += last && last->stamp > epoch->stamp;
		last = epoch;
	}
	bad += last != reuse->newest;
	bad += check_epoch(reuse, reuse->closing, &sum);
	bad += check_epoch(reuse, reuse->open, &sum);
	bad += sum.items != reuse->items || sum.bytes != reuse->bytes;
	/* A free without its event is never overlooked by the hooks. */
	bad += (reuse->open || reuse->closing || reuse->one_open || reuse->one_recording) !=
	       !!(bits & GM_REUSE_OPEN);
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
	gm_unlock(&reuse->retire);
	return bad;
}
