/*
 * discover.c - the processes that run under the library: see discover.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/discover.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/read/attach.h"

void gm_discover(void (*visit)(void *arg, int64_t pid), void *arg)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	while (proc && (entry = readdir(proc))) {
		struct gm_attached attached;
		long pid = isdigit((unsigned char)entry->d_name[0])
				   ? strtol(entry->d_name, NULL, 10)
				   : 0;

		if (pid <= 0 || pid == getpid() || gm_attach(pid, &attached))
			continue;
		close(attached.fd);
		visit(arg, pid);
	}
	if (proc)
		closedir(proc);
}
