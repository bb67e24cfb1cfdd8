/*
 * race_clock.c - vector clocks, and the lanes they count.
 *
 * A lane is a chain of operations that end one after the other: a stream's, a host thread's, or one
 * that operations of graphs share. A lane may be continued by anything that knows its last
 * operation, so that a program that makes streams and graphs for ever needs no more lanes than it
 * has ever had unordered work; epochs only rise, whoever continues it.
 *
 * All under fc.lock.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>
#include <string.h>

struct lane {
	uint64_t last;
	bool owned;
};

static struct lane *lanes;
static uint32_t n_lanes;

static bool grow(struct race_vc *vc, uint32_t n)
{
	uint64_t *grown;

	if (n <= vc->n)
		return true;
	grown = realloc(vc->epoch, n * sizeof(*grown));
	if (!grown) {
		race_broken();
		return false;
	}
	memset(grown + vc->n, 0, (n - vc->n) * sizeof(*grown));
	vc->epoch = grown;
	vc->n = n;
	return true;
}

void race_vc_join(struct race_vc *into, const struct race_vc *from)
{
	if (!grow(into, from->n))
		return;
	for (uint32_t i = 0; i < from->n; i++)
		if (into->epoch[i] < from->epoch[i])
			into->epoch[i] = from->epoch[i];
}

void race_vc_set(struct race_vc *vc, uint32_t lane, uint64_t epoch)
{
	if (grow(vc, lane + 1))
		vc->epoch[lane] = epoch;
}

void race_vc_free(struct race_vc *vc)
{
	free(vc->epoch);
	vc->epoch = NULL;
	vc->n = 0;
}

/* ---- lanes ---- */

static uint32_t new_lane(bool owned)
{
	struct lane *grown = realloc(lanes, (n_lanes + 1) * sizeof(*grown));

	if (!grown) {
		race_broken();
		return 0;
	}
	lanes = grown;
	lanes[n_lanes] = (struct lane){ .owned = owned };
	return n_lanes++;
}

uint32_t race_lane_own(void)
{
	return new_lane(true);
}

void race_lane_claim(uint32_t lane)
{
	if (lane < n_lanes)
		lanes[lane].owned = true;
}

uint32_t race_lane_count(void)
{
	return n_lanes;
}

void race_lane_disown(uint32_t lane)
{
	if (lane < n_lanes)
		lanes[lane].owned = false;
}

uint64_t race_lane_next(const struct race_vc *vc, uint32_t preferred, uint32_t *ret_lane)
{
	uint32_t lane = n_lanes;

	if (preferred && race_vc_knows(vc, preferred - 1, lanes[preferred - 1].last))
		lane = preferred - 1;
	else if (preferred && !lanes[preferred - 1].last)
		lane = preferred - 1;
	for (uint32_t i = 0; lane == n_lanes && i < n_lanes; i++)
		if (!lanes[i].owned && race_vc_knows(vc, i, lanes[i].last))
			lane = i;
	if (lane == n_lanes)
		lane = new_lane(false);
	*ret_lane = lane;
	return lanes ? ++lanes[lane].last : 1;
}

void race_clock_reset(void)
{
	free(lanes);
	lanes = NULL;
	n_lanes = 0;
}
