/*
 * snapshot.h - write a journal copy as a JSON snapshot, version 1 (docs/snapshot.md).
 *
 * Streams through one 64 KiB buffer to a file descriptor. No malloc, no stdio, no locale.
 * Thread context: any one thread. Signal context: none.
 */
#ifndef GM_RECORDER_SNAPSHOT_H
#define GM_RECORDER_SNAPSHOT_H

#include <stdint.h>

#include "recorder/read/copy.h"

struct gm_jsonw_sink;

/*
 * GM_EMIT_TABLES leaves out stacks, frames and who held the peak. GM_EMIT_STACKS has all stacks and their frames, but
 * no memory. In both a stack has the same number in each copy of the same journal.
 */
enum gm_emit { GM_EMIT_ALL, GM_EMIT_TABLES, GM_EMIT_STACKS };

struct gm_snapshot_request {
	enum gm_emit what;
	const char *reason;		/* "exit", "signal", "oom", "api", "crash", "recovered", "outside" */
	uint64_t time_us;		/* wall-clock time of the state that is shown; 0: the copy's last stamp */
	bool recovered;			/* the snapshot is made after the death of the process */
	uint64_t failure;		/* number of the struct gm_failure to show; 0: none */
	/* Called just before the complete file gets the name @path, and again for the next name if
	 * that name is taken. May be NULL. */
	void (*naming)(const char *path, uint64_t inode);
	struct gm_jsonw_sink *sink;	/* gm_snapshot_emit gives it the values; NULL: text to @fd */
};

/* Write the JSON of a resolved journal copy to @fd, or give its values to a sink. Returns 0; -errno of write;
 * -EBADMSG for a damaged journal whose snapshot would be far larger than the journal. */
int gm_snapshot_emit(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		     int fd);

/* Write the JSON to a file named by @template (outfile.h). @number is appended to the reason, as in
 * "signal-1"; 0: none. If the directory cannot be written, @fallback_dir is used (NULL: none). Returns 0
 * and the path, or -errno and the path that was wanted, as long as there is room. */
int gm_snapshot_write(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		      const char *template, unsigned int number, const char *fallback_dir,
		      char *ret_path, size_t ret_path_bytes);

#endif
