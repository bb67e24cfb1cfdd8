/*
 * oom.c - an allocation could not be had: it is recorded, observers are called, the moment is copied.
 *
 * Programs probe for memory and retry, so failures come in storms. The thread that failed copies the
 * journal, and the helper writes a file of it (oom_files.c); a copy that still waits for that gives way to
 * a newer one, but for the first failure's. Copies cost at most a twentieth of the program's time, and at
 * most BUDGET_NS at once: of a failure beyond it the file shows what is held when its turn comes.
 *
 * Thread context: the failing thread, inside its hook. Locks: oom_copying; oom_lock (leaf).
 */
#include <errno.h>
#include <string.h>

#include "preload/hooks/hook.h"
#include "preload/triggers/oom.h"
#include "preload/triggers/oom_files.h"
#include "preload/triggers/snap.h"
#include "preload/process/state.h"
#include "preload/triggers/trigger.h"
#include "recorder/read/copy.h"
#include "recorder/journal/clock.h"
#include "recorder/journal/recorder.h"

#define WRITE_NS UINT64_C(2000000000)	/* without a helper: for a snapshot that another thread writes */
#define BUDGET_NS INT64_C(100000000)

/* Observers are the program's: they may allocate, free, or ask for a snapshot themselves. */
static void call_observers(const struct gm_failure *failure)
{
	struct gm_oom_observer copied[GM_OOM_OBSERVERS];
	uintptr_t inside = gm_inside;

	if (!gm_lock(&gm_state.oom_lock))
		return;
	memcpy(copied, gm_state.observers, sizeof(copied));
	gm_unlock(&gm_state.oom_lock);
	for (unsigned int i = 0; i < GM_OOM_OBSERVERS; i++) {
		if (!copied[i].fn)
			continue;
		gm_inside = 0;
		copied[i].fn(copied[i].arg, failure->domain < GM_MAX_DEVICES ? failure->domain : -1,
			   failure->requested_bytes, failure->total_bytes, failure->free_bytes);
		gm_inside = inside;
	}
}

static bool wanted(void)
{
	return (gm_state.options.snapshot_on & GM_ON_OOM) && gm_state.options.oom_snapshots;
}

/* Is it time for a file? Then no other is asked for, until gm_oom_done. */
static bool due(void)
{
	uint64_t now = gm_now_ns();
	bool yes;

	if (!gm_lock_try(&gm_state.oom_lock))
		return false;
	yes = now >= gm_state.oom_next_ns;
	if (yes)
		gm_state.oom_next_ns = UINT64_MAX;
	gm_unlock(&gm_state.oom_lock);
	return yes;
}

/* The moment is kept, as far as that may cost something. Where another thread is at it, that one will
 * do: both failures are in its copy, or this one has to wait for its turn. */
static void keep_copy(void)
{
	uint64_t began = gm_now_ns(), passed;
	struct gm_oom_copy *to;

	if (!gm_lock_try(&gm_state.oom_copying))
		return;
	passed = began - gm_state.oom_budget_at_ns;
	if (!gm_state.oom_budget_at_ns ||
	    passed / GM_OOM_PAUSE_FACTOR > (uint64_t)(BUDGET_NS - gm_state.oom_budget_ns))
		gm_state.oom_budget_ns = BUDGET_NS;
	else
		gm_state.oom_budget_ns += (int64_t)(passed / GM_OOM_PAUSE_FACTOR);
	if (gm_state.oom_budget_ns > 0) {
		to = &gm_state.oom_copies[gm_state.oom_first_kept ||
					  !gm_oom_first_ones(gm_state.options.oom_snapshots)];
		gm_state.oom_first_kept = true;
		gm_copy_free(&to->copy);
		to->time_us = gm_wall_us();
		if (gm_copy_from_process(&to->copy))
			gm_copy_free(&to->copy);
		gm_state.oom_budget_ns -= (int64_t)(gm_now_ns() - began);
	}
	gm_state.oom_budget_at_ns = began;
	gm_unlock(&gm_state.oom_copying);
}

static void report(struct gm_failure *failure, bool observed)
{
	uint64_t number = gm_record_failure(failure);
	int kept = errno;

	if (observed)
		call_observers(failure);
	if (!number || !wanted())
		return;
	gm_oom_raise(&gm_state.oom_failure, number);
	keep_copy();
	if (due()) {
		if (gm_trigger_has_helper())
			gm_trigger_ask(GM_REQUEST_OOM);
		else
			gm_snap_take(1u << GM_REQUEST_OOM, WRITE_NS, NULL, NULL);
	}
	errno = kept;
}

void gm_oom_report(struct gm_failure *failure)
{
	report(failure, true);
}

void gm_oom_report_pool(struct gm_failure *failure)
{
	report(failure, false);
}
