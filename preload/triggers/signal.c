/*
 * signal.c - the signal that asks for a snapshot.
 *
 * Taken only from a program that left it at its default, which is to be killed by it. The handler
 * is inherited by children, whose default it must not change either: in a process that is not
 * ours it puts the default back and lets the signal happen again.
 *
 * Thread context: gm_signal_start in the first hook. Signal context: handler(), in any thread of
 * the program; under 1 KiB of stack, errno kept. Fork: see above; exec resets it by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/process/say.h"
#include "preload/triggers/signal.h"
#include "preload/process/state.h"
#include "preload/triggers/trigger.h"

/* As if we were not there: the signal's default, once this handler has returned. */
static void by_default(int number)
{
	struct sigaction action = { .sa_handler = SIG_DFL };

	sigaction(number, &action, NULL);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

static void handler(int number, siginfo_t *info, void *context)
{
	int kept = errno;

	(void)info;
	(void)context;
	if (gm_state_is_mine())
		gm_trigger_ask(GM_REQUEST_SIGNAL);
	else
		by_default(number);
	errno = kept;
}

void gm_signal_start(unsigned int number)
{
	struct sigaction action = { .sa_sigaction = handler,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK };
	struct sigaction before;
	struct gm_decimal text;

	if (!number || sigaction((int)number, NULL, &before))
		return;
	if (before.sa_flags & SA_SIGINFO || before.sa_handler != SIG_DFL) {
		/* A child that starts inherits the handler of its parent's start. */
		if (before.sa_flags & SA_SIGINFO && before.sa_sigaction == handler)
			return;
		if (gm_state.options.verbose)
			gm_say_always("signal ", gm_decimal(&text, number), " is in use by the "
				      "program: it asks for no snapshot");
		return;
	}
	sigemptyset(&action.sa_mask);
	sigaction((int)number, &action, NULL);
}
