/*
 * snapshot.h - a journal copy as the JSON snapshot, version 1: docs/snapshot.md describes it.
 *
 * Streams through one 64 KiB buffer to a file descriptor; no malloc, no stdio, no locale.
 * Thread context: any one thread. Not for signal handlers.
 */
#ifndef GM_RECORDER_SNAPSHOT_H
#define GM_RECORDER_SNAPSHOT_H

#include <stdint.h>

#include "recorder/read/copy.h"

struct gm_snapshot_request {
	const char *reason;		/* "exit", "signal", "oom", "api", "crash", "recovered", "outside" */
	uint64_t time_us;		/* wall clock of the moment shown; 0: the copy's last stamp */
	bool recovered;			/* made after the death of the process */
	uint64_t failure;		/* number of the struct gm_failure to show; 0 none */
	/* Called just before the file, which is complete, gets the name @path; once more for each
	 * other name that is tried because a file has it. May be NULL. */
	void (*naming)(const char *path, uint64_t inode);
};

/* Write the JSON of a resolved journal copy to @fd. Returns 0; -errno (of write); -EBADMSG for a
 * damaged journal, whose snapshot would be far larger than what was read. */
int gm_snapshot_emit(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		     int fd);

/* Write it to a file named by @template (outfile.h; @number goes with the reason, as "signal-1", 0:
 * none). When the directory cannot be written, @fallback_dir is used (NULL: none). Returns 0 and the
 * path, or -errno. */
int gm_snapshot_write(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		      const char *template, unsigned int number, const char *fallback_dir,
		      char *ret_path, size_t ret_path_bytes);

#endif
