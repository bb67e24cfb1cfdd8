/*
 * bus.c - a journal that somebody cuts short (truncates) does not kill the program.
 *
 * The kernel answers an access behind the end of a mapped file with SIGBUS, and no file with a name can be
 * kept from its owner. Our handler stands before the one that was there at the first CUDA call, the
 * default included. Of a fault within the journal's mapping it has memory put there that tells of nothing
 * (gm_recorder_lose), turns the cache off, and returns. Every other signal goes to whom it went before, as
 * it would have: with that handler's mask and flags.
 *
 * The kernel still kills a program that ignores SIGBUS or has a handler for one time only (neither is
 * changed), one that installs a handler of its own later, and a thread that has SIGBUS blocked.
 *
 * Thread context: gm_bus_start in the first hook. Signal context: on_bus, in any thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "preload/process/bus.h"
#include "preload/cache/cache.h"
#include "preload/triggers/crash.h"
#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

static struct sigaction before;

static void pass_on(int number, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(number, info, context);
	else if (before.sa_handler != SIG_DFL)
		before.sa_handler(number);
	else
		gm_crash_by_default(number, info);
}

static void on_bus(int number, siginfo_t *info, void *context)
{
	int kept = errno;
	bool ours = info->si_code == BUS_ADRERR && gm_state_is_mine() &&
		    gm_recorder_lose(info->si_addr);

	if (ours)
		gm_cache_lost();
	errno = kept;
	if (!ours)
		pass_on(number, info, context);
}

void gm_bus_start(void)
{
	struct sigaction action;
	bool plain;

	if (!gm_state.journal[0] || sigaction(SIGBUS, NULL, &action))
		return;
	plain = !(action.sa_flags & SA_SIGINFO);
	if (!plain && action.sa_sigaction == on_bus)	/* a forked child's, which begins anew */
		return;
	before = action;
	if ((plain && before.sa_handler == SIG_IGN) || before.sa_flags & (int)SA_RESETHAND)
		return;
	action.sa_sigaction = on_bus;
	action.sa_flags |= SA_SIGINFO;
	if (plain && before.sa_handler == SIG_DFL)
		action.sa_flags |= SA_RESTART | SA_ONSTACK;
	sigaction(SIGBUS, &action, NULL);
}
