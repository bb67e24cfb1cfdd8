/*
 * attach.h - the journal of a living process, found from outside.
 *
 * Nothing is ever signalled, traced or stopped. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_ATTACH_H
#define GM_TOOLS_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_attached {
	int fd;				/* the journal; the caller closes it */
	bool writable;			/* a request can be left in it */
	char path[4096];		/* as this process can open it, for messages */
};

/* Open the journal that process @pid has mapped, through /proc/PID/maps and, in another mount
 * namespace, /proc/PID/root. Returns 0; -ESRCH no such process; -ENOENT it has no journal (it was
 * not started under the library, or has made no CUDA call yet); -EACCES, -EPERM; or -errno. */
int gm_attach(int64_t pid, struct gm_attached *ret_attached);

/* One sentence for what gm_attach returned. */
const char *gm_attach_explain(int error);

#endif
