/*
 * oom_files.c - the snapshots of memory running out: which failure has one, when, and which files stay.
 *
 * Of N = oom_snapshots files the first half are the first failures' and stay; the others belong to the
 * last ones, each replacing the oldest of them. After the first half a file is written only when twenty
 * times the time that the one before it took has passed, at least a second: the newest failure is shown
 * then, or when the program ends, whichever is first. So a storm of failures costs a bounded number of
 * files and at most a twentieth of the program's time.
 *
 * Thread context: the writer of snapshots, but for gm_oom_owed: any. Locks: oom_copying; oom_lock (leaf).
 * Signal context: gm_oom_owed.
 */
#include <string.h>
#include <unistd.h>

#include "preload/process/state.h"
#include "preload/triggers/oom_files.h"
#include "recorder/journal/clock.h"
#include "recorder/journal/recorder.h"
#include "recorder/read/copy.h"

#define COPY_NS UINT64_C(200000000)	/* for a copy that another thread makes */
#define PAUSE_NS UINT64_C(1000000000)	/* at least, after the first ones */

unsigned int gm_oom_first_ones(uint64_t kept)
{
	return (unsigned int)kept / 2;
}

bool gm_oom_take_copy(struct gm_copy *ret, uint64_t *ret_time_us)
{
	struct gm_oom_copy *from;
	bool yes;

	if (!gm_lock_within(&gm_state.oom_copying, COPY_NS))
		return false;
	from = &gm_state.oom_copies[!gm_state.oom_copies[0].copy.base];
	yes = from->copy.base != NULL;
	*ret_time_us = from->time_us;
	memcpy(ret, &from->copy, sizeof(*ret));
	memset(&from->copy, 0, sizeof(from->copy));
	gm_unlock(&gm_state.oom_copying);
	return yes;
}

uint64_t gm_oom_newest(const struct gm_copy *copy)
{
	uint64_t newest = 0;

	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_FAILURES); i++)
		if (gm_copy_failure(copy, i)->number > newest)
			newest = gm_copy_failure(copy, i)->number;
	return newest;
}

void gm_oom_raise(_Atomic(uint64_t) *word, uint64_t number)
{
	uint64_t before = gm_get_acquire(word);

	while (before < number &&
	       !__atomic_compare_exchange_n((uint64_t *)word, &before, number, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

bool gm_oom_owed(void)
{
	return gm_get_acquire(&gm_state.oom_failure) > gm_get_acquire(&gm_state.oom_shown);
}

uint64_t gm_oom_owed_ns(void)
{
	uint64_t now = gm_now_ns(), next = UINT64_MAX;

	if (gm_oom_owed() && gm_lock(&gm_state.oom_lock)) {
		next = gm_state.oom_next_ns;
		gm_unlock(&gm_state.oom_lock);
	}
	return next == UINT64_MAX ? next : next > now ? next - now : 0;
}

void gm_oom_shown(uint64_t number, bool written)
{
	struct gm_header *header = gm_recorder_header();

	gm_oom_raise(&gm_state.oom_shown, number);
	if (written && header)
		gm_oom_raise(&header->failure_shown, number);
}

void gm_oom_begun(void)
{
	if (!gm_lock(&gm_state.oom_lock))
		return;
	gm_state.oom_begun_ns = gm_now_ns();
	gm_state.oom_next_ns = UINT64_MAX;
	gm_unlock(&gm_state.oom_lock);
}

void gm_oom_done(void)
{
	uint64_t now = gm_now_ns(), pause;

	if (!gm_lock(&gm_state.oom_lock))
		return;
	pause = (now - gm_state.oom_begun_ns) * GM_OOM_PAUSE_FACTOR;
	if (pause < PAUSE_NS)
		pause = PAUSE_NS;
	if (gm_state.written[GM_REQUEST_OOM] < gm_oom_first_ones(gm_state.options.oom_snapshots))
		pause = 0;
	gm_state.oom_next_ns = now + pause;
	gm_unlock(&gm_state.oom_lock);
}

void gm_oom_written(unsigned int number, const char *path)
{
	unsigned int kept = (unsigned int)gm_state.options.oom_snapshots;
	unsigned int first = gm_oom_first_ones(kept), last = kept - first;
	char *slot;

	if (number <= first)
		return;
	slot = gm_state.oom_last[(number - first - 1) % last];
	if (slot[0])
		unlink(slot);
	slot[0] = '\0';
	if (strlen(path) < GM_PATH_BYTES)
		strcpy(slot, path);
}
