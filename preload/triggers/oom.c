/*
 * oom.c - allocations that fail because memory ran out: record the failure, call observers, copy the
 * journal; and decide which failure gets a snapshot, when, and which files stay.
 *
 * Programs probe for memory and retry, so failures come in storms. The thread whose call failed copies the
 * journal, and the helper thread writes the copy to a file. A newer copy replaces an older one that is not
 * written yet, except the copy of the first failure. Copies take at most a twentieth of the program's time,
 * and at most BUDGET_NS at once. A copy costs the processor time of its thread; time in which other
 * programs keep the thread from running does not count. A failure beyond this budget gets no copy, and its
 * file shows the state at the time of writing.
 *
 * Of N = oom_snapshots files the first half belong to the first failures and stay. The others belong to the
 * last failures, and each new one replaces the oldest of them. After the first half there is a pause
 * between files: twenty times the time that the previous file took, at least a second. After the pause, or
 * when the program ends, the next file shows the newest failure. So a storm of failures costs a bounded
 * number of files and at most a twentieth of the program's time.
 *
 * Thread context: the failing thread, inside its hook; functions about files in the thread that writes
 * snapshots; gm_oom_owed in any thread. Locks: oom_copying; oom_lock (leaf). Signal context: gm_oom_owed.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/hooks/hook.h"
#include "preload/triggers/trigger.h"
#include "preload/process/state.h"
#include "recorder/read/copy.h"
#include "recorder/journal/clock.h"
#include "recorder/journal/recorder.h"

#define WRITE_NS UINT64_C(2000000000)	/* without a helper: wait for a snapshot that another thread writes */
#define BUDGET_NS INT64_C(100000000)
#define COPY_NS UINT64_C(200000000)	/* wait for a copy that another thread makes */
#define PAUSE_NS UINT64_C(1000000000)	/* shortest pause between files, after the first half */
#define TOOK_NS UINT64_C(10000000000)	/* longest time that counts for one file */
#define PAUSE_FACTOR 20u		/* copies and files may take a twentieth of the time */

/* Return how many of @kept files belong to the first failures. At least one file is left for the last failure. */
static unsigned int first_ones(uint64_t kept)
{
	return (unsigned int)kept / 2;
}

/* Raise @word to @number if it is less. */
static void raise_to(_Atomic(uint64_t) *word, uint64_t number)
{
	uint64_t before = gm_get_acquire(word);

	while (before < number &&
	       !__atomic_compare_exchange_n((uint64_t *)word, &before, number, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

/* ---- the thread whose allocation failed -------------------------------------------------------- */

/* Call the observers. They belong to the program, and may allocate, free or ask for a snapshot. */
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

/* Is it time for a file? After a yes the answer is no until gm_oom_done. */
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

/* Return the processor time that this thread has used, in nanoseconds. */
static int64_t thread_ns(void)
{
	struct timespec used = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* Copy the journal if the budget allows. If another thread is making a copy, do nothing: either that copy has this
 * failure, too, or this failure gets a file later without a copy. */
static void keep_copy(void)
{
	uint64_t at = gm_now_ns(), passed;
	int64_t began = thread_ns();
	struct gm_oom_copy *to;

	if (!gm_lock_try(&gm_state.oom_copying))
		return;
	passed = at - gm_state.oom_budget_at_ns;
	if (!gm_state.oom_budget_at_ns ||
	    passed / PAUSE_FACTOR > (uint64_t)(BUDGET_NS - gm_state.oom_budget_ns))
		gm_state.oom_budget_ns = BUDGET_NS;
	else
		gm_state.oom_budget_ns += (int64_t)(passed / PAUSE_FACTOR);
	if (gm_state.oom_budget_ns > 0) {
		to = &gm_state.oom_copies[gm_state.oom_first_kept ||
					  !first_ones(gm_state.options.oom_snapshots)];
		gm_state.oom_first_kept = true;
		gm_copy_free(&to->copy);
		to->time_us = gm_wall_us();
		if (gm_copy_from_process(&to->copy))
			gm_copy_free(&to->copy);
		gm_state.oom_budget_ns -= thread_ns() - began;
	}
	gm_state.oom_budget_at_ns = at;
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
	raise_to(&gm_state.oom_failure, number);
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

/* ---- the files --------------------------------------------------------------------------------- */

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

	raise_to(&gm_state.oom_shown, number);
	if (written && header)
		raise_to(&header->failure_shown, number);
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
	uint64_t pause;

	if (!gm_lock(&gm_state.oom_lock))
		return;
	pause = gm_passed_ns(&gm_state.oom_begun_ns, TOOK_NS) * PAUSE_FACTOR;	/* sets oom_begun_ns to now */
	if (pause < PAUSE_NS)
		pause = PAUSE_NS;
	if (gm_state.written[GM_REQUEST_OOM] < first_ones(gm_state.options.oom_snapshots))
		pause = 0;
	gm_state.oom_next_ns = gm_state.oom_begun_ns + pause;
	gm_unlock(&gm_state.oom_lock);
}

void gm_oom_written(unsigned int number, const char *path)
{
	unsigned int kept = (unsigned int)gm_state.options.oom_snapshots;
	unsigned int first = first_ones(kept), last = kept - first;
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
