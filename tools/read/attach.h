/*
 * attach.h - find and open the journal of a living process, from outside.
 *
 * No process is signalled, traced or stopped. Single-threaded, no signal context.
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
	uid_t owner;			/* of the file and of the process; (uid_t)-1: they differ, and no content of
					 * the journal is believed */
};

/* Open the journal that process @pid has mapped: through /proc/PID/map_files, or by the name in
 * /proc/PID/maps below /proc/PID/root, if that is the same file. Returns 0; -ESRCH no such process;
 * -ENOENT it has no journal (it was not started under the library, or has made no CUDA call yet);
 * -EWOULDBLOCK a lease is on it; -E2BIG its list of mappings is longer than 32 MiB, and the journal is not among those
 * that were read; -EACCES, -EPERM; or -errno. */
int gm_attach(int64_t pid, struct gm_attached *ret_attached);

/* Call @visit for every process that has a journal mapped and that we may read: all processes of this user, for root
 * those of all users, also in containers and other mount namespaces. Pids are those of our PID namespace. Forked
 * children have their parent's journal mapped, too, so a journal is shown once, with the process that wrote it.
 * @attached is closed after the call.
 *
 * Returns the number of processes that we may read but could not: no descriptor was left, a lease is on the journal, or
 * a user's processes have too many mappings. /proc/PID/maps is read up to 1 MiB for each process; what goes beyond
 * that may be 32 MiB for all processes of a user together. */
size_t gm_discover(void (*visit)(void *arg, int64_t pid, const struct gm_attached *attached), void *arg);

/* Open /proc/PID/@name. NULL and errno: it cannot be opened. */
FILE *gm_attach_proc(pid_t pid, const char *name);

/* Has the process that wrote the journal ended? False if that is not known. */
bool gm_attach_ended(const struct gm_attached *attached);

/* Is process @pid stopped, by job control or a debugger? */
bool gm_attach_stopped(int64_t pid);

/* Map the first @bytes of the journal, shared with the process, for reading and writing. NULL: it cannot be mapped. If
 * the file is cut short, the first access to a lost page turns the whole mapping into zeroes instead of a SIGBUS that
 * kills us, and gm_attach_was_cut() is true from then on. There is one mapping at a time, until gm_attach_unmap(). */
void *gm_attach_map(const struct gm_attached *attached, size_t bytes);
bool gm_attach_was_cut(void);
void gm_attach_unmap(void);

/* Return a clause that explains @error, which gm_attach returned for @pid. If the process has ended and its journal is
 * still there, the clause names the command that makes a snapshot of it. Static memory. */
const char *gm_attach_explain(int64_t pid, int error);

/* ---- labels.c --------------------------------------------------------------------------------- */

/*
 * Where a living process belongs: its job, pod and container, by its environment and control group.
 */

enum { GM_LABEL_JOB, GM_LABEL_NAMESPACE, GM_LABEL_POD, GM_LABEL_CONTAINER, GM_LABELS };

extern const char *const gm_label_names[GM_LABELS];

/* "": not known. */
struct gm_labels { char text[GM_LABELS][128]; };

/* Read the labels of @pid from /proc. Each label is "" if /proc/PID may not be read. */
void gm_labels_of(pid_t pid, struct gm_labels *ret);

#endif
