/*
 * snap.c - take a snapshot: copy the journal, make the copy consistent, write a file for each reason.
 *
 * Thread context: the helper thread; without one, the asking thread. The lock gm_state.writing is held
 * throughout (rank: above every other). Signal context: only when _exit is called in a handler and there is no
 * helper thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "preload/options/text.h"
#include "preload/triggers/trigger.h"
#include "preload/process/say.h"
#include "preload/process/state.h"
#include "recorder/journal/clock.h"
#include "recorder/journal/sys.h"
#include "recorder/read/copy.h"
#include "recorder/journal/place.h"
#include "recorder/journal/recorder.h"
#include "recorder/snapshot/snapshot.h"
#include "recorder/modules/names.h"

#define NAMES_NS UINT64_C(50000000)	/* time for naming frames that have no name yet */
#define COPIES 3u

static const char *const reason_names[] = {
	[GM_REQUEST_SIGNAL] = "signal", [GM_REQUEST_OUTSIDE] = "outside", [GM_REQUEST_API] = "api",
	[GM_REQUEST_OOM] = "oom", [GM_REQUEST_EXIT] = "exit", [GM_REQUEST_CRASH] = "crash",
};
#define REASONS (sizeof(reason_names) / sizeof(reason_names[0]))

/* Has the process ever had a segment? Ids begin with 1, because 0 means "none". */
static bool ever_allocated(const struct gm_header *header)
{
	const struct gm_region *region = &header->regions[GM_REGION_SEGMENTS];

	return gm_get_acquire(&region->used) > region->item_bytes;
}

static bool ever_failed(const struct gm_header *header)
{
	const struct gm_region *region = &header->regions[GM_REGION_FAILURES];
	uint64_t bytes = gm_get_acquire(&region->populated);
	const char *ring = (const char *)header + region->offset;

	for (uint64_t at = 0; at + sizeof(struct gm_failure) <= bytes;
	     at += sizeof(struct gm_failure))
		if (__atomic_load_n((const uint64_t *)(const void *)(ring + at), __ATOMIC_ACQUIRE))
			return true;
	return false;
}

bool gm_snap_worth_it(void)
{
	const struct gm_header *header = gm_recorder_header();

	return header && (ever_allocated(header) || ever_failed(header));
}

/* Copy the directory of @path to @ret; "" if @path has none. */
static void directory_of(const char *path, char ret[GM_PATH_BYTES])
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;

	memcpy(ret, path, length);
	ret[length] = '\0';
}

static void set_path(char place[1024], const char *path)
{
	size_t length = strnlen(path, 1023);

	memcpy(place, path, length);
	memset(place + length, 0, 1024 - length);
}

/* Note the path of the newest file. The path of a file that another process asked for is noted separately: that
 * process may remove its file, and must not remove one that was written just after it. */
static void note_path(struct gm_header *header, enum gm_request reason, const char *path)
{
	set_path(header->last_snapshot, path);
	if (reason == GM_REQUEST_OUTSIDE)
		set_path(header->last_outside, path);
	atomic_fetch_add_explicit(&header->snapshots, 1, memory_order_release);
}

/* Link the snapshot beside the journal, in the directory of `gpumem run`, which reads the links. This takes one
 * system call and opens no file. */
static void link_for_run(enum gm_request reason, unsigned int number, const char *path)
{
	char link[GM_PATH_BYTES + 48];
	struct gm_line line = { link, sizeof(link), 0 };

	if (!strstr(gm_state.journal, "/" GM_RUN_ROOM) || reason == GM_REQUEST_CRASH)
		return;
	gm_line_add(&line, gm_state.journal);
	gm_line_add(&line, ".");
	gm_line_add(&line, reason_names[reason]);
	if (number) {
		gm_line_add(&line, "-");
		gm_line_add_number(&line, number);
	}
	if (symlink(path, link))
		return;			/* an earlier link has this name */
}

/* Record a snapshot event after the copy, so that the next snapshot shows where this one was taken, as in PyTorch. */
static void note_snapshot(const struct gm_copy *copy)
{
	const struct gm_region *region = &copy->header->regions[GM_REGION_DOMAINS];

	for (uint8_t i = 0; i < GM_MAX_DEVICES; i++) {
		const struct gm_domain *domain = (const void *)(copy->base + region->offset +
							       (uint64_t)i * region->item_bytes);

		if (domain->present)
			gm_record_note(GM_ACTION_SNAPSHOT, i, (uint64_t)
				       domain->stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL].current,
				       0);
	}
}

struct writing {
	const struct gm_copy *copy;
	const struct gm_snapshot_request *request;
	const char *template;
	unsigned int number;
	int result;
	int refused;			/* error of the first attempt, if the second, elsewhere, succeeded; else 0 */
	char path[4096];
};

/* Path of the last file that could not be written. Only one snapshot is written at a time. */
static char wanted[1024];

static void write_file(void *arg)
{
	char journal[GM_PATH_BYTES], fallback[GM_PATH_BYTES + 64];
	struct writing *w = arg;
	struct gm_fd_guard guard;
	int r = gm_snapshot_write(w->copy, w->request, w->template, w->number, NULL, w->path,
				  sizeof(w->path)), found;

	w->result = r;
	if (r)
		set_path(wanted, w->path);
	if (!r || r == -ENOSPC || r == -EDQUOT)
		return;
	directory_of(gm_state.journal, journal);
	gm_fd_guard_begin(&guard);
	found = gm_place_on_disk(journal, fallback, sizeof(fallback));
	gm_fd_guard_end(&guard);
	if (found || gm_snapshot_write(w->copy, w->request, w->template, w->number, fallback,
				       w->path, sizeof(w->path)))
		return;
	w->refused = r;
	w->result = 0;
}

static void say_failed(const struct writing *w, enum gm_request reason)
{
	bool kept = reason == GM_REQUEST_EXIT && gm_state.journal[0];

	gm_say("the ", w->request->reason, " snapshot could not be written to ", wanted, ": ",
	       gm_error_text(w->result), kept ? "; gpumem recover makes one of the journal: " : "",
	       kept ? gm_state.journal : "");
}

static const char *reason_name(const struct gm_header *header, enum gm_request reason)
{
	bool ended = reason == GM_REQUEST_CRASH && gm_signal_is_wish(gm_signal_name(header->crash_signal));

	return ended ? "ended" : reason_names[reason];
}

static int write_one(const struct gm_copy *copy, enum gm_request reason, uint64_t time_us)
{
	struct gm_snapshot_request request = {
		.reason = reason_name(copy->header, reason),
		.time_us = time_us,
		.naming = reason == GM_REQUEST_CRASH ? gm_crash_naming : NULL,
	};
	unsigned int number = reason == GM_REQUEST_EXIT ? 0 : gm_state.written[reason] + 1;
	struct writing writing = { .copy = copy, .request = &request, .number = number,
				   .template = copy->header->output };

	if (reason == GM_REQUEST_API && gm_state.api_path[0])
		writing.template = gm_state.api_path;
	if (reason == GM_REQUEST_OOM)
		request.failure = gm_oom_newest(copy);
	gm_with_own_files(write_file, &writing);
	if (reason == GM_REQUEST_OUTSIDE)	/* forget the path of the previous file */
		set_path(gm_recorder_header()->last_outside, "");
	if (writing.result) {
		say_failed(&writing, reason);
		return writing.result;
	}
	gm_state.written[reason]++;
	if (!strcmp(writing.path, "/dev/null")) {
		if (reason == GM_REQUEST_CRASH)
			gm_crash_written();
		return 0;			/* there is no file to note */
	}
	note_path(gm_recorder_header(), reason, writing.path);
	link_for_run(reason, number, writing.path);
	if (writing.refused)
		gm_say("the ", request.reason, " snapshot could not be written to ", wanted,
		       " (", gm_error_text(writing.refused), "): it is in ", writing.path);
	else if (gm_state.options.verbose)
		gm_say_always("snapshot (", request.reason, "): ", writing.path);
	if (reason == GM_REQUEST_OOM)
		gm_oom_written(number, writing.path);
	if (reason == GM_REQUEST_CRASH)
		gm_crash_written();
	return 0;
}

/* Make @copy consistent, and write a file for each of @reasons. Returns 0 or -errno. The caller frees @copy. */
static int finish(struct gm_copy *copy, uint32_t reasons, uint64_t time_us)
{
	bool exiting = reasons == 1u << GM_REQUEST_EXIT;
	int failed = 0, r;

	r = gm_copy_resolve(copy, exiting ? gm_state.options.exit_history : UINT64_MAX);
	if (r)
		gm_say("no snapshot could be taken: ",
		       copy->error[0] ? copy->error : gm_error_text(r));
	for (unsigned int reason = 1; !r && reason < REASONS; reason++)
		if (reasons >> reason & 1) {
			int one = write_one(copy, reason, time_us);

			failed = one ? one : failed;
		}
	return r ? r : failed;
}

/* Copy the journal. Prints a failure. Returns 0 or -errno. */
static int make_copy(struct gm_copy *copy)
{
	int r;

	memset(copy, 0, sizeof(*copy));
	gm_recorder_review();
	/* Copy again if the tables changed while they were copied, because a thread lost the processor for long
	 * while it held a lock. */
	for (unsigned int tries = 1; (r = gm_copy_from_process(copy)) == 0; tries++) {
		if (copy->consistent || tries == COPIES)
			break;
		gm_copy_free(copy);
	}
	if (r)
		gm_say("no snapshot could be taken: ",
		       copy->error[0] ? copy->error : gm_error_text(r),
		       gm_state.journal[0] ? "; the journal is " : "", gm_state.journal);
	return r;
}

/* Take one snapshot. @last: record no snapshot event, because a crashed thread, or a signal handler that called
 * _exit, may have interrupted a holder of locks, and because no later snapshot would show the event. */
static int take_locked(uint32_t reasons, bool last, void (*copied)(void *arg), void *arg)
{
	uint64_t time_us = gm_wall_us();
	struct gm_copy copy;
	int r = make_copy(&copy);

	if (copied)
		copied(arg);
	if (!r)
		r = finish(&copy, reasons, time_us);
	if (!r && !last)
		note_snapshot(&copy);
	gm_copy_free(&copy);
	return r;
}

/* Write the file of a failure that has none yet. The file shows the journal copy that was made at the failure, or
 * without one a copy made now. @last: repeat until the newest failure has a file, COPIES times at most. */
static void take_oom(bool last)
{
	struct gm_copy copy, ready;
	uint64_t time_us, ready_us, number;

	gm_oom_begun();
	for (unsigned int tries = 0; tries < (last ? COPIES : 1) && gm_oom_owed(); tries++) {
		int r = 0;

		number = gm_get_acquire(&gm_state.oom_failure);
		if (gm_oom_take_copy(&copy, &time_us)) {
			gm_copy_renew_names(&copy);
		} else {
			time_us = gm_wall_us();
			r = make_copy(&copy);
			/* If the failed thread was still making its copy, that copy is ready by now. Prefer it,
			 * because it shows the state at the failure: the thread may have gone on and freed memory
			 * before our copy was made. */
			if (gm_oom_take_copy(&ready, &ready_us)) {
				gm_copy_free(&copy);
				copy = ready;
				time_us = ready_us;
				r = 0;
				gm_copy_renew_names(&copy);
			}
		}
		if (!r) {
			/* Without memory for the records of failures, the copy shows none. */
			if (gm_oom_newest(&copy))
				number = gm_oom_newest(&copy);
			r = finish(&copy, 1u << GM_REQUEST_OOM, time_us);
		}
		gm_oom_shown(number, !r);
		if (!r && !last)
			note_snapshot(&copy);
		gm_copy_free(&copy);
	}
	while (!gm_oom_owed() && gm_oom_take_copy(&copy, &time_us))
		gm_copy_free(&copy);	/* a later file has shown the failures of this copy */
	gm_oom_done();
}

static int take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg)
{
	const uint32_t exit_bit = 1u << GM_REQUEST_EXIT, crash_bit = 1u << GM_REQUEST_CRASH,
		       oom_bit = 1u << GM_REQUEST_OOM;
	bool last = (reasons & (exit_bit | crash_bit)) ||
		    gm_get_acquire(&gm_state.exit_step) != GM_EXIT_NOT_YET;
	int r = 0, r_exit = 0;

	if (!gm_recorder_header())
		return -ENODATA;
	if (!gm_lock_within(&gm_state.writing, limit_ns))
		return -ETIMEDOUT;
	if (reasons & crash_bit && !gm_snap_worth_it()) {
		gm_crash_not_worth_it();
		reasons &= ~crash_bit;
	}
	if (reasons & crash_bit)
		gm_crash_describe();
	else if (reasons)
		gm_names_catch_up(reasons & exit_bit ? GM_NAMES_EXIT_NS : NAMES_NS);
	/* Do this first, because writing the crash snapshot may remove the journal. */
	if (reasons & oom_bit || (last && gm_oom_owed()))
		take_oom(last);
	reasons &= ~oom_bit;
	/* The exit snapshot gets its own copy, because it has fewer events and shows the very end. */
	if (reasons & ~exit_bit)
		r = take_locked(reasons & ~exit_bit, reasons & crash_bit, copied, arg);
	if (reasons & exit_bit)
		r_exit = take_locked(exit_bit, true, copied, arg);
	if (reasons & exit_bit)
		gm_set_release(&gm_state.exit_result, r_exit);
	if (reasons & 1u << GM_REQUEST_API)
		gm_set_release(&gm_state.api_result, r);
	gm_unlock(&gm_state.writing);
	return r_exit ? r_exit : r;
}

int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg)
{
	int cancel = gm_cancel_off();
	int r = take(reasons, limit_ns, copied, arg);

	gm_cancel_back(cancel);
	return r;
}
