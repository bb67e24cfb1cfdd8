/*
 * oom.c - an allocation could not be had: recorded, told to observers, shown in a snapshot.
 *
 * Programs probe for memory and retry, so failures come in storms. Of N = oom_snapshots files the
 * first half are the first failures' and stay; the others belong to the last ones, each replacing
 * the oldest of them. After the first half a snapshot is taken only when twenty times the time
 * that the one before it took has passed: a storm costs a bounded number of files and at most a
 * twentieth of the program's time.
 *
 * Thread context: the failing thread, inside its hook; gm_oom_written: the writer.
 * Lock: oom_lock (leaf). Signal context: none. Fork: gm_state is wiped, observers with it.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/hook.h"
#include "preload/oom.h"
#include "preload/snap.h"
#include "preload/state.h"
#include "preload/trigger.h"
#include "recorder/recorder.h"

#define COPY_NS UINT64_C(2000000000)	/* how long a failing call waits for the copy */
#define PAUSE_FACTOR 20u
#define PAUSE_NS UINT64_C(1000000000)	/* at least, after the first ones */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* How many of @kept files belong to the first failures. */
static unsigned int first_ones(uint64_t kept)
{
	return (unsigned int)(kept + 1) / 2;
}

/* Observers are the program's: they may allocate, free, or ask for a snapshot themselves. */
static void call_observers(const struct gm_failure *failure)
{
	struct gm_oom_observer copy[GM_OOM_OBSERVERS];
	uintptr_t inside = gm_inside;

	if (!gm_lock(&gm_state.oom_lock))
		return;
	memcpy(copy, gm_state.observers, sizeof(copy));
	gm_unlock(&gm_state.oom_lock);
	for (unsigned int i = 0; i < GM_OOM_OBSERVERS; i++) {
		if (!copy[i].fn)
			continue;
		gm_inside = 0;
		copy[i].fn(copy[i].arg, failure->domain < GM_MAX_DEVICES ? failure->domain : -1,
			   failure->requested_bytes, failure->total_bytes, failure->free_bytes);
		gm_inside = inside;
	}
}

/* Is this failure to be shown? Then no other is, until gm_oom_done. */
static bool due(void)
{
	uint64_t now = now_ns();
	bool yes;

	if (!(gm_state.options.snapshot_on & GM_ON_OOM) || !gm_state.options.oom_snapshots ||
	    !gm_lock_try(&gm_state.oom_lock))
		return false;
	yes = now >= gm_state.oom_next_ns;
	if (yes) {
		gm_state.oom_begun_ns = now;
		gm_state.oom_next_ns = UINT64_MAX;
	}
	gm_unlock(&gm_state.oom_lock);
	return yes;
}

void gm_oom_done(void)
{
	uint64_t now = now_ns(), pause;

	if (!gm_lock(&gm_state.oom_lock))
		return;
	pause = (now - gm_state.oom_begun_ns) * PAUSE_FACTOR;
	if (pause < PAUSE_NS)
		pause = PAUSE_NS;
	if (gm_state.written[GM_REQUEST_OOM] < first_ones(gm_state.options.oom_snapshots))
		pause = 0;
	gm_state.oom_next_ns = now + pause;
	gm_unlock(&gm_state.oom_lock);
}

void gm_oom_written(unsigned int number, const char *path)
{
	unsigned int kept = (unsigned int)gm_state.options.oom_snapshots;
	unsigned int first = first_ones(kept), last = kept - first;
	char *slot;

	if (number <= first)
		return;
	/* With oom_snapshots:1 there is one file, the first failure's; later ones have no place. */
	if (!last) {
		unlink(path);
		return;
	}
	slot = gm_state.oom_last[(number - first - 1) % last];
	if (slot[0])
		unlink(slot);
	slot[0] = '\0';
	if (strlen(path) < GM_PATH_BYTES)
		strcpy(slot, path);
}

void gm_oom_report(struct gm_failure *failure)
{
	uint64_t number = gm_record_failure(failure);
	uint32_t request;
	int kept = errno;

	call_observers(failure);
	if (!number || !due())
		return;
	__atomic_store_n((uint64_t *)&gm_state.oom_failure, number, __ATOMIC_RELEASE);
	if (gm_trigger_has_helper()) {
		request = gm_trigger_ask(GM_REQUEST_OOM);
		gm_trigger_wait_copied(request, COPY_NS);
	} else {
		gm_snap_take(1u << GM_REQUEST_OOM, COPY_NS, NULL, NULL);
		errno = kept;
	}
}
