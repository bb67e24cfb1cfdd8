/*
 * trace_rows.h - the events of a snapshot as rows, of all devices and the host, in order of time.
 */
#ifndef GM_TOOLS_TRACE_ROWS_H
#define GM_TOOLS_TRACE_ROWS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define GM_ROW_HOST (-1)

struct gm_row {
	int64_t time_us;
	int device;			/* GM_ROW_HOST: the host */
	uint32_t annotation;		/* of an annotate, after gm_rows_annotate: its place + 1; else 0 */
	const char *action, *kind;	/* of the snapshot: valid as long as it is */
	uint64_t address;
	int64_t size, stream, thread, module, stack;
};

/* All rows of @root. Columns of different lengths are read as far as all of them go. Returns 0 or
 * -ENOMEM; free(*ret_rows). */
int gm_rows_of(const json_t *root, struct gm_row **ret_rows, size_t *ret_count);

/* Which of the snapshot's annotations each row of action annotate is; those that have none (PyTorch's)
 * get one. Returns 0 or -ENOMEM. */
int gm_rows_annotate(const json_t *root, struct gm_row **rows, size_t *count);

/* That annotation; NULL: none. */
const json_t *gm_row_annotation(const json_t *root, const struct gm_row *row);

#endif
