/*
 * suppress.h - leaks that are known: a file of patterns, as LeakSanitizer's. Single-threaded.
 *
 * A line is leak:PATTERN (or PATTERN); it matches a stack with a frame whose function, source file
 * or module contains it. * stands for anything, ^ and $ for the start and the end. # begins a
 * comment.
 */
#ifndef GM_TOOLS_SUPPRESS_H
#define GM_TOOLS_SUPPRESS_H

#include "tools/show/groups.h"

struct gm_suppressions {
	char **patterns;
	size_t count;
	size_t matched;			/* allocations left out */
};

/* Read @path. Returns 0, or -errno with one clause of @error saying why. */
int gm_suppressions_read(struct gm_suppressions *suppressions, const char *path, char *ret_error,
			 size_t bytes);
void gm_suppressions_free(struct gm_suppressions *suppressions);

/* For gm_groups_add: @arg is a struct gm_suppressions. */
bool gm_suppressed(void *arg, const struct gm_scene *scene, int64_t stack);

#endif
