/*
 * recover.h - make snapshots of the journals of dead processes, for the verbs recover and run.
 *
 * Single-threaded, no signal context. Only journals whose process is known to be dead are changed, and only the entry
 * that was opened, in the directory that was opened: links are not followed. A snapshot goes where @output or this
 * process's $GPUMEM_OUTPUT says, else into the working directory, never to a path that the journal names.
 */
#ifndef GM_TOOLS_RECOVER_H
#define GM_TOOLS_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct gm_failure;			/* recorder/journal/format.h */
struct gm_flight;			/* recorder/read/copy.h */

struct gm_recovered {
	const char *journal;		/* path */
	const char *snapshot;		/* path of the JSON; "": none was needed or possible */
	const char *error;		/* why the snapshot could not be made, one sentence; "": no error */
	bool alive;			/* the process lives: nothing was done */
	bool unused;			/* the process never allocated: nothing was written */
	bool clean;			/* the process ended by itself: nothing was written; @snapshot is its newest */
	bool written;			/* the process wrote @snapshot itself when it crashed */
	bool removed;			/* the journal's file was removed */
	const char *signal;		/* name of the signal that ended the process; NULL: not known */
	int64_t pid;
	const char *command;
	int rank;			/* -1: none */
	const struct gm_failure *failure;	/* the newest without a snapshot of its own; NULL: none */
	unsigned int in_flight;		/* operations that had not returned */
	const struct gm_flight *flights;
	uint64_t live_bytes, peak_bytes;	/* device memory, all devices */
	uint64_t live_blocks;
	uint64_t refused;		/* records of live memory that found no room in the journal */
};

struct gm_recover_for {
	const char *output;		/* template for the snapshots, in place of $GPUMEM_OUTPUT; NULL: none */
	int64_t pid;			/* in directories, only journals of this process; 0: of any */
	bool force;			/* take the process for dead if nothing says whether it lives */
	bool keep;			/* leave the journals' files */
	bool list;			/* only report: write and remove nothing */
	void (*each)(void *arg, const struct gm_recovered *one);
	void *arg;
};

/* Recover one journal, without a call of @each. Returns 0, or -errno and the reason in @ret->error. @ret points to
 * static memory, until the next journal. */
int gm_recover_file(const char *path, const struct gm_recover_for *of, struct gm_recovered *ret);

/* Recover every *.journal in the open @directory, whose name is @path, and call @each for each. Returns the number of
 * journals, or -errno. */
int gm_recover_in(int directory, const char *path, const struct gm_recover_for *of);

/* Recover the journals in the directories gpumem-UID below @directory, where the library puts them: this user's and,
 * with @anybody, those of other users. Remove a directory that becomes empty, unless @of->list is set or processes may
 * begin a journal there at any time. Returns 0 or -errno. */
int gm_recover_below(int directory, const char *path, bool anybody, const struct gm_recover_for *of);

#endif
