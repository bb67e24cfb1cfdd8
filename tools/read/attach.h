/*
 * attach.h - the journal of a living process, found from outside.
 *
 * Nothing is ever signalled, traced or stopped. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_ATTACH_H
#define GM_TOOLS_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct gm_attached {
	int fd;				/* the journal; the caller closes it */
	bool writable;			/* a request can be left in it */
	uid_t owner;			/* of the file and of the process; (uid_t)-1 where they differ:
					 * then nothing that the journal says is believed */
};

/* Open the journal that process @pid has mapped: through /proc/PID/map_files, or by the name in
 * /proc/PID/maps below /proc/PID/root, if that is the same file. Returns 0; -ESRCH no such process;
 * -ENOENT it has no journal (it was not started under the library, or has made no CUDA call yet);
 * -EWOULDBLOCK a lease is on it; -E2BIG its list of mappings is longer than 32 MiB, and the journal is not among those
 * that were read; -EACCES, -EPERM; or -errno. */
int gm_attach(int64_t pid, struct gm_attached *ret_attached);

/* Call @visit for every process that has a journal mapped and may be read by us: all of this user's, of root all, those
 * in containers and other mount namespaces too. The pids are as seen from here. A journal is shown once, by the process
 * that wrote it: its forked children have it mapped, too. @attached is closed behind the call.
 *
 * Returns how many processes could not be looked into, though we may: no descriptor was left, a lease is on the
 * journal, or the processes of a user have too many mappings (1 MiB of /proc/PID/maps each, 32 MiB more together). */
size_t gm_discover(void (*visit)(void *arg, int64_t pid, const struct gm_attached *attached), void *arg);

/* Open /proc/PID/@name. NULL and errno: it cannot be opened. */
FILE *gm_attach_proc(pid_t pid, const char *name);

/* Has the process ended that wrote the journal? False where nothing tells. */
bool gm_attach_ended(const struct gm_attached *attached);

/* Is process @pid stopped, by job control or a debugger? */
bool gm_attach_stopped(int64_t pid);

/* Map the first @bytes of the journal, which the process and we can write. NULL: it cannot be mapped. If the file is
 * cut short while it is mapped, whoever reads there finds zeroes instead of SIGBUS, and gm_attach_was_cut() is true.
 * There is one mapping at a time, until gm_attach_unmap(). */
void *gm_attach_map(const struct gm_attached *attached, size_t bytes);
bool gm_attach_was_cut(void);
void gm_attach_unmap(void);

/* One sentence for what gm_attach returned for @pid. Of a process that ended it says whether its journal is still
 * there, and what makes a snapshot of it. Static memory. */
const char *gm_attach_explain(int64_t pid, int error);

/* ---- labels.c --------------------------------------------------------------------------------- */

/*
 * Where a living process belongs: its job, pod and container, by its environment and control group.
 */

enum { GM_LABEL_JOB, GM_LABEL_NAMESPACE, GM_LABEL_POD, GM_LABEL_CONTAINER, GM_LABELS };

extern const char *const gm_label_names[GM_LABELS];

/* "": not known. */
struct gm_labels { char text[GM_LABELS][128]; };

/* What /proc says of @pid; all "" where it may not be read. */
void gm_labels_of(pid_t pid, struct gm_labels *ret);

#endif
