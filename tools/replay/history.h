/*
 * history.h - the recorded history of a snapshot as a trace that can be replayed. Single-threaded.
 */
#ifndef GM_TOOLS_HISTORY_H
#define GM_TOOLS_HISTORY_H

#include "tools/read/snapshot.h"
#include "tools/replay/trace.h"

struct gm_history {
	struct gm_trace trace;		/* @conf: the settings in force, "" unknown */
	int device;
	int64_t dropped;		/* events that the history has lost */
	int64_t total_bytes;		/* of the device, 0 unknown */
	int64_t others_bytes;		/* that nobody recorded: contexts, other processes */
	int64_t reserved_peak;		/* recorded, 0 unknown */
	int64_t reserved;		/* at the end */
	int64_t free_bytes; /* of the device, when memory ran out last; -1 it never did */
	int64_t tries;			/* requests in it that were refused */
	unsigned int devices;		/* that have a history */
};

/* The history of @device, or of the one with most events (-1). Pinned memory of the host and
 * imported memory are left out; managed memory, arrays and virtual memory go past the cache.
 * Returns 0; -ENODATA: there is none; -ENOMEM. Free with gm_trace_free(&history->trace). */
int gm_history_open(struct gm_history *history, const struct gm_snapshot *snapshot, int device);

#endif
