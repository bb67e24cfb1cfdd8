/*
 * exit.c - process exits in which our code still runs, and the exit snapshot.
 *
 * exit(): a handler, registered at the first CUDA call, marks the process as exiting. The snapshot is taken
 * at the next release, reset or destruction of a context, or in our destructor, whichever is first. (The
 * runtime's clean-up releases contexts, and leaves the device empty.) The handler itself does not take it,
 * because memory that static objects of the program free later would look leaked.
 * _exit, _Exit, quick_exit: hooked; the snapshot is taken at once.
 *
 * A clean end removes the journal once the snapshot is written. If the snapshot cannot be written, the journal
 * stays and can be recovered.
 *
 * Thread context: any thread, also the last of the process. Signal context: a handler may call _exit
 * whatever code it interrupted, so every wait is bounded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/order/context.h"
#include "preload/triggers/trigger.h"
#include "preload/hooks/hook.h"
#include "preload/driver/real.h"
#include "preload/process/say.h"
#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

#define WAIT_NS UINT64_C(10000000000)

/* End the process by a system call, because gm_libc is not filled in yet. */
static __attribute__((noreturn)) void leave(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

/* gm_state.exit_step */
enum { EXIT_NOT_YET = GM_EXIT_NOT_YET, EXIT_TAKING, EXIT_TAKEN, EXIT_FAILED };

static uint32_t step(void)
{
	return gm_get_acquire(&gm_state.exit_step);
}

static void set_life(enum gm_life life)
{
	struct gm_header *header = gm_recorder_header();

	if (header)
		gm_set_release(&header->life, life);
}

/* Wait for requested snapshots that are still being written, such as one of a failure just now. Used when there is
 * no exit snapshot. Returns false when the wait took too long. */
static bool finish_asked(void)
{
	const struct gm_header *header = gm_recorder_header();

	return !header || !gm_trigger_has_helper() ||
	       gm_trigger_wait_written(gm_get_acquire(&header->request), WAIT_NS);
}

/* Take the exit snapshot if it is wanted. Returns false when a snapshot was not written in time. */
static bool take(void)
{
	enum gm_request reason = GM_REQUEST_EXIT;	/* also writes the files of failures that have none yet */
	uint32_t request;

	if (!(gm_state.options.snapshot_on & GM_ON_EXIT) || !gm_snap_worth_it()) {
		if (!gm_oom_owed())
			return finish_asked();
		reason = GM_REQUEST_OOM;
	}
	if (!gm_trigger_has_helper())
		return gm_snap_take(1u << reason, WAIT_NS, NULL, NULL) == 0;
	request = gm_trigger_ask(reason);
	if (!gm_trigger_wait_written(request, WAIT_NS)) {
		gm_say("the last snapshot took too long; the journal stays: ",
		       gm_state.journal[0] ? gm_state.journal : "(in memory)");
		return false;
	}
	return reason != GM_REQUEST_EXIT || gm_get_acquire(&gm_state.exit_result) == 0;
}

/* Take the exit snapshot once: a second thread waits until the first has taken it. */
static void exit_snapshot(void)
{
	const struct timespec limit = { 0, 100000000 };
	uint32_t before = EXIT_NOT_YET, me = (uint32_t)syscall(SYS_gettid);
	bool done;

	if (__atomic_compare_exchange_n((uint32_t *)&gm_state.exit_step, &before, EXIT_TAKING,
					false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		gm_state.exit_taker = me;
		done = take();
		gm_set_release(&gm_state.exit_step, done ? EXIT_TAKEN : EXIT_FAILED);
		syscall(SYS_futex, (uint32_t *)&gm_state.exit_step, FUTEX_WAKE_PRIVATE, INT32_MAX,
			NULL, NULL, 0);
		return;
	}
	/* A signal handler must not wait for the thread that it interrupted. */
	for (int i = 0; i < 100 && step() == EXIT_TAKING && gm_state.exit_taker != me; i++)
		syscall(SYS_futex, (uint32_t *)&gm_state.exit_step, FUTEX_WAIT_PRIVATE, EXIT_TAKING,
			&limit, NULL, 0);
}

/* Do the last work of the library in this process. */
static void end(void)
{
	int kept = errno, cancel = gm_cancel_off();

	set_life(GM_LIFE_EXITING);
	exit_snapshot();
	if (step() == EXIT_TAKEN) {
		set_life(GM_LIFE_CLEAN);
		gm_recorder_unlink();
	}
	gm_cancel_back(cancel);
	errno = kept;
}

static void mark_exiting(void)
{
	if (!gm_state_is_mine())
		return;
	set_life(GM_LIFE_EXITING);
	gm_set_release(&gm_state.exiting, 1);
	gm_context_handles_changed();	/* the driver may refuse calls from now on */
}

void gm_exit_start(void)
{
	atexit(mark_exiting);
}

void gm_exit_context_end(void)
{
	int kept = errno, cancel = gm_cancel_off();

	if (gm_get_acquire(&gm_state.exiting) && gm_state_is_mine())
		exit_snapshot();
	gm_cancel_back(cancel);
	errno = kept;
}

static __attribute__((destructor)) void unloading(void)
{
	if (gm_state_is_mine())
		end();
}

/* ---- the hooked ways out ----------------------------------------------------------------------- */

static _Noreturn void end_by(void (*real)(int status), int status)
{
	if (gm_state_is_mine())
		end();
	if (real)
		real(status);
	leave(status);
}

GM_PUBLIC void quick_exit(int status)
{
	end_by(gm_libc.quick_exit, status);
}

GM_PUBLIC void _exit(int status)
{
	end_by(gm_libc.exit_now, status);
}

GM_PUBLIC void _Exit(int status)
{
	end_by(gm_libc.exit_now_c, status);
}
