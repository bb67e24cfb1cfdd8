/*
 * signal_probe.h - was a signal sent to this process alone, or to its command as well?
 *
 * kill(-GROUP), and programs that signal every process of a job (mpirun, slurmstepd, timeout), reach the
 * command too. Passed on, the signal would come to it twice, which many programs take for an order to
 * abort at once. A signal does not say to whom else it was sent. So a process waits beside the command,
 * of the same group and parent, and reports what it got.
 *
 * One thread; every signal is blocked when it starts.
 */
#ifndef GM_TOOLS_SIGNAL_PROBE_H
#define GM_TOOLS_SIGNAL_PROBE_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct gm_signal_probe { pid_t pid; int reports; };

/* Start one. Without it (no process to be had) every signal is taken for one to us alone. */
void gm_signal_probe_start(struct gm_signal_probe *probe);

/* Has what sent us @info sent it to the probe, too? Waits a moment for its word. */
bool gm_signal_probe_saw(const struct gm_signal_probe *probe, const siginfo_t *info);

/* It ends, and is waited for. */
void gm_signal_probe_end(struct gm_signal_probe *probe);

#endif
