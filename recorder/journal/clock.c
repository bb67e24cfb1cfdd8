/*
 * clock.c - the clock that orders events: see clock.h.
 *
 * Stamps are TSC ticks where the kernel itself keeps time by the TSC. The TSC then runs at one rate
 * on all cores, and two cores differ by less than a message between them takes. Elsewhere (another
 * clock source, unreadable /sys, the TSC forbidden to this process) stamps are CLOCK_MONOTONIC, which
 * one shared word makes unique and ordered. aarch64 always uses CLOCK_MONOTONIC, because its counter
 * runs at 1 MHz to 1 GHz and may advance by tens of ns at once: a free and the allocation that follows
 * could get the same stamp.
 */
#include "recorder/journal/clock.h"

#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"

enum { SOURCE_TSC = 0, SOURCE_MONOTONIC = 1 };		/* gm_clock.source */

_Atomic(bool) gm_clock_is_tsc;
static _Atomic(uint64_t) last_stamp;			/* SOURCE_MONOTONIC */

uint64_t gm_clock_monotonic(void)
{
	uint64_t now = gm_now_ns(), last = gm_get(&last_stamp), next;

	do {
		next = now > last ? now : last + 1;
	} while (!atomic_compare_exchange_weak_explicit(&last_stamp, &last, next,
							memory_order_acq_rel, memory_order_relaxed));
	return next;
}

void gm_clock_init(void)
{
	char name[32];
	int mode = 0;
	ssize_t n = gm_file_read(gm_sys.clocksource, name, sizeof(name));

	gm_set(&gm_clock_is_tsc, n >= 3 && !strncmp(name, "tsc", 3) && (n == 3 || name[3] == '\n') &&
	       prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_ENABLE);
}

struct gm_clock_pair gm_clock_read(void)
{
	struct gm_clock_pair best = { 0 };
	uint64_t spread = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		struct timespec wall, mono;
		uint64_t before = gm_stamp(), after;

		clock_gettime(CLOCK_REALTIME, &wall);
		clock_gettime(CLOCK_MONOTONIC, &mono);
		after = gm_stamp();
		if (after - before >= spread)
			continue;
		spread = after - before;
		best.stamp = before + spread / 2;
		best.wall_ns = (uint64_t)wall.tv_sec * UINT64_C(1000000000) + (uint64_t)wall.tv_nsec;
		best.monotonic_ns = (uint64_t)mono.tv_sec * UINT64_C(1000000000) +
				    (uint64_t)mono.tv_nsec;
	}
	return best;
}

static void set_pair(struct gm_clock *clock, int i, const struct gm_clock_pair *pair)
{
	uint32_t sequence = gm_get(&clock->sequence);

	/* The sequence must be odd before any of the words changes. An atomic exchange would not do: on aarch64
	 * its store may become visible after theirs. */
	gm_set(&clock->sequence, sequence + 1);
	atomic_thread_fence(memory_order_release);
	clock->stamp[i] = pair->stamp;
	clock->wall_ns[i] = pair->wall_ns;
	clock->monotonic_ns[i] = pair->monotonic_ns;
	gm_set_release(&clock->sequence, sequence + 2);
}

void gm_clock_begin(struct gm_clock *clock, const struct gm_clock_pair *first)
{
	clock->source = gm_get(&gm_clock_is_tsc) ? SOURCE_TSC : SOURCE_MONOTONIC;
	set_pair(clock, 0, first);
	gm_clock_refresh(clock);
}

void gm_clock_refresh(struct gm_clock *clock)
{
	struct gm_clock_pair now = gm_clock_read();

	set_pair(clock, 1, &now);
}

uint64_t gm_wall_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
