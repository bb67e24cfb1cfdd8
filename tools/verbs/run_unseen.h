/*
 * run_unseen.h - why gpumem run sees nothing of a program: it cannot be preloaded, or a process of it was started
 * without the library. Single-threaded.
 */
#ifndef GM_TOOLS_RUN_UNSEEN_H
#define GM_TOOLS_RUN_UNSEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Why the library cannot be in @command (execvp's argv), as far as its file and its words tell: "./app is linked
 * statically: ...". Returns false, and "" in @ret: nothing speaks against it. */
bool gm_run_suspect(char *const *command, char *ret, size_t bytes);

#define GM_RUN_PROCESSES 256u

/* The processes of a run that need no second look. Zeroed at first. */
struct gm_run_watch {
	pid_t done[GM_RUN_PROCESSES];
	size_t count;
	int64_t next_ms, pause_ms;	/* when to look again, on CLOCK_MONOTONIC, and how long after that */
};

/* When it is time, say on stderr which of @child and its descendants have the CUDA driver and not this library, each
 * once. Reads /proc alone. Returns milliseconds until the next look, from @now_ms. */
int64_t gm_run_look(struct gm_run_watch *watch, pid_t child, int64_t now_ms);

#endif
