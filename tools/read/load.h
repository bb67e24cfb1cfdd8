/*
 * load.h - whatever a verb is given, as one snapshot (snapshot.h): a snapshot's JSON, a journal, the pid
 * of a living process, or a snapshot of PyTorch (pickle or JSON).
 *
 * Nothing in the input is trusted. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_LOAD_H
#define GM_TOOLS_LOAD_H

#include <stdbool.h>

#include "tools/read/snapshot.h"

struct gm_loaded {
	struct gm_snapshot snapshot;	/* gm_load_free */
	enum { GM_LOADED_SNAPSHOT, GM_LOADED_JOURNAL, GM_LOADED_PROCESS, GM_LOADED_TORCH } from;
	const struct gm_value *torch;	/* of gm_load_as_said: what a PyTorch snapshot said, all of it */
	char error[512];		/* why it could not be read, one sentence */
	/* its own */
	struct gm_values *values;	/* where @torch lies */
	bool as_said, tables_only;	/* see gm_load_as_said, gm_load_tables */
};

/* Load @word: a path, "-" (a snapshot on standard input), or digits that are no file: a pid.
 * Returns 0, or -errno and @ret->error. */
int gm_load(const char *word, struct gm_loaded *ret);

/* The same, but of a snapshot of PyTorch only what it said: @torch, and an empty @snapshot. */
int gm_load_as_said(const char *word, struct gm_loaded *ret);

/* The same, but of a living process without its events: for those who look often. */
int gm_load_tables(const char *word, struct gm_loaded *ret);
void gm_load_free(struct gm_loaded *loaded);

#endif
