/*
 * recover.h - journals of dead processes made into snapshots: for the verbs recover and run.
 *
 * Single-threaded, no signal context. Only journals whose process is known to be dead are touched,
 * and nothing but the entry that was opened, in the directory that was opened: links are not followed.
 * The snapshot goes where $GPUMEM_OUTPUT of this process says, else into the working directory:
 * never to a path that the journal names.
 */
#ifndef GM_TOOLS_RECOVER_H
#define GM_TOOLS_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct gm_failure;			/* recorder/journal/format.h */
struct gm_flight;			/* recorder/read/copy.h */

struct gm_recovered {
	const char *journal;		/* path */
	const char *snapshot;		/* path of the JSON, "" when none was needed or possible */
	const char *error;		/* "" or why it could not be made, one sentence */
	bool alive;			/* the process lives: nothing was done */
	bool unused;			/* it never allocated: nothing was written */
	bool clean;			/* it ended by itself: likewise; @snapshot is its newest own one */
	bool written;			/* by the process itself when it crashed: @snapshot was there */
	bool removed;			/* the journal's file was removed */
	const char *signal;		/* name of the signal it died of; NULL: not known */
	int64_t pid;
	const char *command;
	int rank;			/* -1 none */
	const struct gm_failure *failure;	/* the newest, if it has no snapshot of its own; NULL */
	unsigned int in_flight;		/* operations that had not returned */
	const struct gm_flight *flights;
	uint64_t live_bytes, peak_bytes;	/* device memory, all devices */
	uint64_t live_blocks;
	uint64_t refused;		/* records of what was live that found no room in the journal */
};

struct gm_recover_for {
	const char *output;		/* template for the snapshots, before $GPUMEM_OUTPUT; NULL none */
	int64_t pid;			/* in directories, only journals of this process; 0 any */
	bool force;			/* where nothing says whether the process lives, take it for dead */
	bool keep;			/* leave the journals' files */
	bool list;			/* only say what is there: nothing is written or removed */
	void (*each)(void *arg, const struct gm_recovered *one);
	void *arg;
};

/* One journal; @each is not called. Returns 0, or -errno as @ret->error explains. What @ret points to is
 * valid until the next call. */
int gm_recover_file(const char *path, const struct gm_recover_for *of, struct gm_recovered *ret);

/* Every *.journal in the open @directory, whose name is @path: @each is called for each. Returns how many
 * there were, or -errno. */
int gm_recover_in(int directory, const char *path, const struct gm_recover_for *of);

/* And in the directories gpumem-UID below it, where the library puts them: this user's; with @anybody,
 * those of other users, too. An emptied one is removed. 0 or -errno. */
int gm_recover_below(int directory, const char *path, bool anybody, const struct gm_recover_for *of);

#endif
