/*
 * recover.h - journals of dead processes made into snapshots: for the verbs recover and run.
 *
 * Single-threaded, no signal context. Only journals whose process is known to be dead are touched.
 */
#ifndef GM_TOOLS_RECOVER_H
#define GM_TOOLS_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct gm_recovered {
	const char *journal;		/* path */
	const char *snapshot;		/* path of the JSON, "" when none was needed or possible */
	const char *error;		/* "" or why it could not be made, one sentence */
	bool alive;			/* the process lives: nothing was done */
	bool unused;			/* it never allocated: nothing was written */
	bool ended;			/* it ended well and has its snapshot: the journal is only a rest */
	int64_t pid;
	const char *command;
	unsigned int in_flight;		/* operations that had not returned */
	uint64_t live_bytes, peak_bytes;	/* device memory, all devices */
	uint64_t live_blocks;
};

/* One journal. @keep: leave the journal's file. Returns 0, or -errno as @ret->error explains.
 * The strings of @ret are valid until the next call. */
int gm_recover_file(const char *path, bool keep, struct gm_recovered *ret);

/* Every *.journal in @directory (not below it); calls @each for each. Returns how many, or -errno. */
int gm_recover_directory(const char *directory, bool keep,
			 void (*each)(void *arg, const struct gm_recovered *one), void *arg);

#endif
