/*
 * signal_probe.c - a process that gets what is sent to all of a group: see signal_probe.h.
 */
#define _GNU_SOURCE
#include "tools/verbs/signal_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 200			/* for its report: one loop of one sender signals both */
#define FILES 64			/* that gpumem run may have open */
#define OLD_MS 1000			/* an older report is of another signal */

struct word { int32_t number; pid_t sender; int64_t when_ms; };

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* It dies with its parent, but a moment later. So it closes what others wait for the end of: our output,
 * and the lock of the run's room. */
static void __attribute__((noreturn)) watch(int said, pid_t parent)
{
	sigset_t all;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "gpumem-signals");
	if (getppid() != parent)
		_exit(0);
	if (dup2(said, 0) < 0)
		_exit(0);
	if (close_range(1, ~0u, 0))	/* before Linux 5.9 */
		for (int fd = 1; fd < FILES; fd++)
			close(fd);
	sigfillset(&all);
	for (;;) {
		struct word word = { 0 };
		siginfo_t info;

		if (sigwaitinfo(&all, &info) < 0)
			continue;
		word = (struct word){ info.si_signo, info.si_pid, now_ms() };
		if (write(0, &word, sizeof(word)) < 0 && errno != EAGAIN)
			_exit(0);
	}
}

void gm_signal_probe_start(struct gm_signal_probe *probe)
{
	pid_t parent = getpid();
	int ends[2];

	*probe = (struct gm_signal_probe){ .reports = -1 };
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	probe->pid = fork();
	if (!probe->pid)
		watch(ends[1], parent);
	close(ends[1]);
	probe->reports = ends[0];
	if (probe->pid < 0)
		gm_signal_probe_end(probe);
}

bool gm_signal_probe_saw(const struct gm_signal_probe *probe, const siginfo_t *info)
{
	int64_t began = now_ms(), remaining = WAIT_MS;
	struct word word;

	while (probe->reports >= 0 && remaining >= 0) {
		struct pollfd in = { .fd = probe->reports, .events = POLLIN };

		if (read(probe->reports, &word, sizeof(word)) == (ssize_t)sizeof(word)) {
			if (word.number == info->si_signo && word.sender == info->si_pid &&
			    word.when_ms >= began - OLD_MS)
				return true;
			continue;
		}
		if (poll(&in, 1, (int)remaining) <= 0 || in.revents & (POLLHUP | POLLERR))
			break;
		remaining = began + WAIT_MS - now_ms();
	}
	return false;
}

void gm_signal_probe_end(struct gm_signal_probe *probe)
{
	if (probe->pid > 0) {
		kill(probe->pid, SIGKILL);
		waitpid(probe->pid, NULL, 0);
	}
	if (probe->reports >= 0)
		close(probe->reports);
	*probe = (struct gm_signal_probe){ .reports = -1 };
}
