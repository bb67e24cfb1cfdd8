/*
 * discover.h - the processes that run under the library. Single-threaded.
 */
#ifndef GM_TOOLS_DISCOVER_H
#define GM_TOOLS_DISCOVER_H

#include <stdint.h>

/* Call @visit for every process that has a journal mapped and may be read by us: all of this user's,
 * of root all, in containers and other mount namespaces, too. Numbers as seen from here. */
void gm_discover(void (*visit)(void *arg, int64_t pid), void *arg);

#endif
