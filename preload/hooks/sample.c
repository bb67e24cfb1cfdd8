/*
 * sample.c - free bytes of the device, as the driver tells them (see sample.h).
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <time.h>

#include "preload/hooks/sample.h"
#include "recorder/journal/recorder.h"

#define INTERVAL_MS 100u
#define TRIES 3u

static _Atomic(uint64_t) sampled_ms[GM_MAX_DEVICES];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total)
{
	size_t free_bytes = 0, total_bytes = 0;

	*ret_free = *ret_total = 0;
	if (where.domain >= GM_MAX_DEVICES)
		return;
	/* What is not ours is a difference: both of its sides must be of one moment. Of one that
	 * other threads leave no moment for, the sample before stands. */
	for (unsigned int i = 0; i < TRIES; i++) {
		uint64_t held = 0, after = 1;
		int r = gm_record_held_bytes(where.domain, &held);

		if (GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
			return;
		if (r || gm_record_held_bytes(where.domain, &after))
			break;
		if (after == held) {
			gm_record_free_bytes(where.domain, free_bytes, total_bytes, held);
			break;
		}
	}
	sampled_ms[where.domain] = now_ms();
	*ret_free = free_bytes;
	*ret_total = total_bytes;
}

void gm_sample_growth(struct gm_where where)
{
	uint64_t free_bytes, total_bytes, now = now_ms(), last;

	if (where.domain >= GM_MAX_DEVICES)
		return;
	last = sampled_ms[where.domain];
	if (last && now - last < INTERVAL_MS)
		return;
	/* One of the threads that find it due asks. */
	if (__atomic_compare_exchange_n((uint64_t *)&sampled_ms[where.domain], &last, now, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		gm_sample_now(where, &free_bytes, &total_bytes);
}
