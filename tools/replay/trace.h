/*
 * trace.h - a recorded history of allocations, as `gpumem replay` reads it.
 *
 * Text, plain or gzip, a line an operation:
 *	a ID BYTES STREAM ADDRESS	allocate; ADDRESS (hexadecimal) is what the recorder got
 *	r ID				free requested
 *	f ID				free completed: reusable
 *	e				empty the cache
 *	# segment_alloc|segment_free|oom BYTES STREAM ADDRESS	what was asked of the driver there
 *	# conf=...			settings in force    # memory_limit_bytes=N	0: none
 * Other lines that begin with # are comments. Reading is single-threaded and trusts nothing.
 */
#ifndef GM_TOOLS_TRACE_H
#define GM_TOOLS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gm_trace_op {
	GM_TRACE_ALLOC, GM_TRACE_REQUEST, GM_TRACE_COMPLETE, GM_TRACE_EMPTY, GM_TRACE_SEGMENT_ALLOC,
	GM_TRACE_SEGMENT_FREE, GM_TRACE_OOM,
	/* of snapshots only (history.h) */
	GM_TRACE_TRY,			/* was refused when it was recorded: can it be had, for a moment? */
	GM_TRACE_FREE,			/* completed, and requested if it was not */
	GM_TRACE_DIRECT, GM_TRACE_DIRECT_FREE	/* memory of another sort, past the cache */
};

struct gm_trace_line {
	uint64_t id;			/* 0 .. ids-1, dense */
	uint64_t bytes, stream, address;
	uint32_t number;		/* of the line in the file, from 1 */
	uint8_t op;
};

struct gm_trace {
	struct gm_trace_line *lines;
	size_t count;
	uint64_t ids;			/* allocations */
	uint64_t memory_limit_bytes;
	char conf[2048];
	char error[256];		/* why reading failed, with the line's number */
};

/* Does @path begin with a line of a trace, plain or compressed? */
bool gm_trace_is(const char *path);

/* Read @path. Returns 0, -EINVAL (see @error), or -errno. Free with gm_trace_free. */
int gm_trace_read(struct gm_trace *trace, const char *path);

void gm_trace_free(struct gm_trace *trace);

#endif
