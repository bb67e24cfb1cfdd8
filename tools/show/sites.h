/*
 * sites.h - which frames of a stack do not tell who asked for memory. Single-threaded.
 */
#ifndef GM_TOOLS_SITES_H
#define GM_TOOLS_SITES_H

#include <stdbool.h>

/* Of the CUDA runtime or driver (linked in or not), of an allocator above it, or ours. */
bool gm_stack_plumbing(const char *name, const char *module);

/* Is a Python file one that was installed, not the program's own? */
bool gm_stack_installed(const char *file);

#endif
