/*
 * trigger.c - ask for a snapshot: by the word on which the helper thread sleeps, and by a signal.
 *
 * Thread context: any. Signal context: gm_trigger_ask, on_signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/options/text.h"
#include "preload/process/say.h"
#include "preload/process/state.h"
#include "preload/triggers/trigger.h"
#include "recorder/journal/recorder.h"

#define SLICE_NS UINT64_C(100000000)	/* longest sleep before a wait checks the helper thread */

/* A shared futex, because gpumem snapshot PID wakes it from another process. */
void gm_trigger_sleep(_Atomic(uint32_t) *word, uint32_t value, uint64_t limit_ns)
{
	const struct timespec limit = { (time_t)(limit_ns / 1000000000),
					(long)(limit_ns % 1000000000) };

	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void gm_trigger_wake(_Atomic(uint32_t) *word)
{
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- asking ------------------------------------------------------------------------------------ */

bool gm_trigger_has_helper(void)
{
	uint32_t helper = gm_get_acquire(&gm_state.helper);

	return helper != 0 && helper != (uint32_t)syscall(SYS_gettid);
}

uint32_t gm_trigger_ask(enum gm_request reason)
{
	struct gm_header *header = gm_recorder_header();
	int kept = errno;
	uint32_t number;

	if (!header)
		return 0;
	atomic_fetch_or(&gm_state.reasons, 1u << reason);
	number = atomic_fetch_add(&header->request, 1) + 1;
	gm_trigger_wake(&header->request);
	errno = kept;
	return number;
}

static bool wait_until(_Atomic(uint32_t) *word, uint32_t number, uint64_t limit_ns)
{
	uint64_t at = gm_now_ns(), waited = 0;
	uint32_t seen;
	int kept = errno;

	while ((int32_t)((seen = gm_get_acquire(word)) - number) < 0 && waited < limit_ns &&
	       gm_get_acquire(&gm_state.helper)) {
		gm_trigger_sleep(word, seen, limit_ns - waited < SLICE_NS ? limit_ns - waited : SLICE_NS);
		waited += gm_passed_ns(&at, SLICE_NS);
	}
	errno = kept;
	return (int32_t)(seen - number) >= 0;
}

bool gm_trigger_wait_copied(uint32_t number, uint64_t limit_ns)
{
	struct gm_header *header = gm_recorder_header();

	return header && wait_until(&header->copied, number, limit_ns);
}

bool gm_trigger_wait_written(uint32_t number, uint64_t limit_ns)
{
	struct gm_header *header = gm_recorder_header();

	return header && wait_until(&header->answered, number, limit_ns);
}

/* ---- the signal ---------------------------------------------------------------------------------
 *
 * The handler is installed only if the program left the signal at its default, which kills the process. A
 * forked child inherits the handler, but the signal must kill the child. So in a process that is not ours
 * the handler restores the default and raises the signal again. It takes under 1 KiB of stack and keeps
 * errno.
 */

static void on_signal(int number, siginfo_t *info, void *context)
{
	int kept = errno;

	(void)context;
	if (gm_state_is_mine())
		gm_trigger_ask(GM_REQUEST_SIGNAL);
	else
		gm_crash_by_default(number, info);
	errno = kept;
}

void gm_trigger_take_signal(unsigned int number)
{
	struct sigaction action = { .sa_sigaction = on_signal,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK };
	struct sigaction before;
	char text[24] = "";
	struct gm_line line = { text, sizeof(text), 0 };

	if (!number || sigaction((int)number, NULL, &before))
		return;
	if (before.sa_flags & SA_SIGINFO || before.sa_handler != SIG_DFL) {
		/* A forked child that starts the library has inherited our handler from its parent. */
		if (before.sa_flags & SA_SIGINFO && before.sa_sigaction == on_signal)
			return;
		gm_line_add_number(&line, number);
		if (gm_state.options.verbose)
			gm_say_always("signal ", text, " is in use by the program: it asks for no "
				      "snapshot");
		return;
	}
	sigemptyset(&action.sa_mask);
	sigaction((int)number, &action, NULL);
}
