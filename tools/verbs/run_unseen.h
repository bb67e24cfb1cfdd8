/*
 * run_unseen.h - why gpumem run records nothing of a program: the library cannot be preloaded into it, or one of its
 * processes was started without the library. Single-threaded.
 */
#ifndef GM_TOOLS_RUN_UNSEEN_H
#define GM_TOOLS_RUN_UNSEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Write why the library cannot be preloaded into @command (execvp's argv), by its file and its words: "./app is linked
 * statically ...". Returns false, and "" in @ret, if these show no reason. */
bool gm_run_suspect(char *const *command, char *ret, size_t bytes);

#define GM_RUN_PROCESSES 256u

/* The processes of a run that need no second look. Begin with zeroes. */
struct gm_run_watch {
	pid_t done[GM_RUN_PROCESSES];
	size_t count;
	int64_t next_ms, pause_ms;	/* time of the next look, on CLOCK_MONOTONIC, and the pause before it */
};

/* If a look is due, say on stderr which of @child and its descendants have the CUDA driver and not this library, each
 * process once. Reads only /proc. Returns the milliseconds from @now_ms to the next look. */
int64_t gm_run_look(struct gm_run_watch *watch, pid_t child, int64_t now_ms);

#endif
